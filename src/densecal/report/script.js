"use strict";
(() => {
  for (const part of document.querySelectorAll(".needs-script")) part.hidden = false;

  // The slider shows one severity at a time. Without this script the page shows all of them.
  const slider = document.getElementById("severity");
  const levels = [...document.querySelectorAll("#levels > .level")];
  if (slider) {
    const name = document.getElementById("severity-name");
    const show = () => {
      const chosen = Number(slider.value);
      levels.forEach((level, place) => { level.hidden = place !== chosen; });
      name.textContent = levels[chosen].dataset.name;
      slider.setAttribute("aria-valuetext", levels[chosen].dataset.name);
      slider.style.setProperty("--filled", `${(100 * chosen) / (levels.length - 1)}%`);
    };
    document.getElementById("levels").classList.add("one-at-a-time");
    slider.addEventListener("input", show);
    slider.value = String(levels.length - 1);
    show();
  }

  // Expanding the other methods at one severity expands them at every severity.
  const folds = levels.map((level) => level.querySelector("details")).filter(Boolean);
  for (const fold of folds) {
    fold.addEventListener("toggle", () => { for (const other of folds) other.open = fold.open; });
  }

  const keyOf = (cell) => {
    const value = cell.dataset.value ?? cell.textContent.trim().replace(/[\s%]/g, "");
    const number = Number(value);
    return value === "" || Number.isNaN(number) ? cell.textContent.trim().toLowerCase() : number;
  };

  const sortBy = (table, column, descending) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, place) => ({ row, place, key: keyOf(row.cells[column]) }));
    rows.sort((a, b) => {
      const order = typeof a.key === "number" && typeof b.key === "number"
        ? a.key - b.key : String(a.key).localeCompare(String(b.key));
      return (descending ? -order : order) || a.place - b.place;
    });
    body.append(...rows.map((entry) => entry.row));
  };

  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  const toCsv = (table) => {
    const withInterval = [...table.tHead.rows[0].cells].map((_, column) =>
      [...table.tBodies[0].rows].some((row) => row.cells[column].dataset.low !== undefined));
    const lines = [[...table.tHead.rows[0].cells].flatMap((head, column) => {
      const title = head.textContent.trim();
      return withInterval[column] ? [title, `${title} low`, `${title} high`] : [title];
    })];
    for (const row of table.tBodies[0].rows) {
      lines.push([...row.cells].flatMap((cell, column) => {
        const value = cell.dataset.value ?? cell.firstChild.textContent.trim();
        return withInterval[column] ? [value, cell.dataset.low ?? "", cell.dataset.high ?? ""] : [value];
      }));
    }
    return lines.map((line) => line.map(quote).join(",")).join("\n") + "\n";
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // The clipboard API may be unavailable to a page opened from a file; copying from a text field still works.
      const field = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  };

  for (const table of document.querySelectorAll("table.data")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sortBy(table, column, descending);
      });
    });
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy as CSV";
    button.addEventListener("click", async () => {
      await copy(toCsv(table));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy as CSV"; }, 1500);
    });
    const head = document.createElement("div");
    head.className = "table-head";
    const words = document.createElement("p");
    words.textContent = table.caption.textContent;
    head.append(words, button);
    // Screen readers use the caption; the visible copy is placed outside the horizontal scroll area.
    table.caption.classList.add("for-screen-readers");
    table.parentElement.before(head);
  }

  const theme = document.createElement("button");
  theme.type = "button";
  theme.className = "theme";
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  label();
  document.querySelector(".page-head").append(theme);

  // Expand the metadata for printing.
  const folded = new Map();
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("#metadata details")) { folded.set(fold, fold.open); fold.open = true; }
  });
  addEventListener("afterprint", () => { for (const [fold, open] of folded) fold.open = open; });
})();
