// Where the site is opened as a file, browsers refuse workers; the search's worker then runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.waiting = [];
      this.ready = false;
      const url = new URL(address, document.baseURI).href;
      const frame = (this.frame = document.createElement("iframe"));
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const say = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.document.open();
      inside.document.write("<!doctype html><html><body></body></html>");
      inside.document.close();
      inside.postMessage = (data) => say(data);
      inside.importScripts = (...scripts) =>
        scripts.reduce((before, script) => before.then(() => this.load(script)), Promise.resolve());
      this.load(url).then(() => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }
    load(script) {
      return new Promise((resolve, reject) => {
        const inside = this.frame.contentWindow.document;
        const element = inside.createElement("script");
        element.src = script;
        element.onload = resolve;
        element.onerror = reject;
        inside.body.append(element);
      });
    }
    postMessage(data) {
      if (!this.ready) return void this.waiting.push(data);
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
