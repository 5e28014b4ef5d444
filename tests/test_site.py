"""The built site in headless Chromium: pages, links, figures, search and contrast."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import http.server
import importlib
import inspect
import os
import re
import subprocess
import sys
import threading
import types
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "runs" / "docs"
PACKAGES = [f"densecal{part}" for part in ("", ".metrics", ".evaluation", ".torch", ".shift", ".plots", ".report")]
REPORTS = tuple(f"tutorials/{name}.html" for name in ("report", "trust", "monitor", "days"))
"""Pages that tutorials write: they have tests of their own."""
PHONE = {"width": 360, "height": 740}
pytestmark = pytest.mark.slow


def state_of_the_sources() -> str:
    found = hashlib.sha256()
    results = (
        "benchmarks/RESULTS.md",
        "benchmarks/results",
        "results/tables",
        "results/shift_fit",
        "results/estimation",
        "results/natural",
    )
    for place in ("src/densecal", "docs", "mkdocs.yml", "CHANGELOG.md", *results):
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".safetensors":
                found.update(file.read_bytes())
    return found.hexdigest()


@pytest.fixture(scope="session")
def site():
    """The site, built once for all test processes and rebuilt after a change."""
    pytest.importorskip("torch")
    folder, stamp = WORK / "tested-site", WORK / "tested-site.stamp"
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "tested-site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = state_of_the_sources()
        if not stamp.exists() or stamp.read_text() != state:
            command = [sys.executable, str(ROOT / "docs" / "build.py"), "--site", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"the strict build failed:\n{done.stdout}\n{done.stderr}"
            stamp.write_text(state)
    return folder


@pytest.fixture(scope="session")
def address(site):
    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def lost(request) -> bool:
    """Whether a request failed, other than by leaving the page."""
    return request.failure != "net::ERR_ABORTED"


def listen(page, complaints):
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}") if lost(request) else None)
    page.on(
        "response", lambda answer: complaints.append(f"{answer.status}: {answer.url}") if answer.status >= 400 else None
    )


@pytest.fixture(scope="module")
def walk(browser, address):
    """Every page that can be reached from the home page, in the width of a phone."""
    context = browser.new_context(viewport=PHONE)
    page = context.new_page()
    found, waiting = {}, [address + "index.html"]
    complaints, requested = [], set()
    listen(page, complaints)
    page.on("request", lambda request: requested.add(request.url))
    while waiting:
        url = waiting.pop()
        if url in found:
            continue
        complaints.clear()
        page.goto(url, wait_until="load")
        found[url] = page.evaluate(
            """() => ({
              links: [...document.querySelectorAll("a[href]")].map((a) => a.getAttribute("href")),
              ids: [...document.querySelectorAll("[id]")].map((e) => e.id),
              wide: document.documentElement.scrollWidth,
              headings: document.querySelectorAll("article h1").length,
              small: [...document.querySelectorAll("article p, article li, article td")]
                .filter((e) => e.offsetParent && e.innerText.trim())
                .map((e) => parseFloat(getComputedStyle(e).fontSize)).reduce((a, b) => Math.min(a, b), 99),
              pictures: [...document.querySelectorAll("article img")]
                .filter((e) => e.offsetParent).map((e) => [e.getAttribute("src"), e.alt, e.naturalWidth]),
            })"""
        )
        found[url]["complaints"] = list(complaints)
        for link in found[url]["links"]:
            target = urldefrag(urljoin(url, link)).url
            is_page = target.startswith(address) and target.endswith(".html")
            if is_page and not target.endswith(REPORTS) and target not in found:
                waiting.append(target)
    context.close()
    return types.SimpleNamespace(pages=found, requested=requested, address=address)


def test_every_page_is_reached_and_none_complains(walk, site):
    reached = {url.removeprefix(walk.address) for url in walk.pages}
    written = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    aside = {"404.html", *REPORTS}
    assert written - reached <= aside
    assert len(reached) > 30
    assert {url: page["complaints"] for url, page in walk.pages.items() if page["complaints"]} == {}


def test_nothing_is_loaded_from_elsewhere(walk):
    assert [url for url in walk.requested if not url.startswith((walk.address, "data:", "blob:"))] == []


def test_no_link_leads_nowhere(walk, site):
    broken = []
    for url, page in walk.pages.items():
        for link in page["links"]:
            target, fragment = urldefrag(urljoin(url, link))
            if not target.startswith(walk.address):
                continue
            file = site / unquote(target.removeprefix(walk.address) or "index.html")
            known = walk.pages.get(target)
            if not file.is_file() or (fragment and known and unquote(fragment) not in known["ids"]):
                broken.append((url.removeprefix(walk.address), link))
    assert broken == []


def test_every_page_fits_a_phone_and_can_be_read_there(walk):
    assert {url: page["wide"] for url, page in walk.pages.items() if page["wide"] > PHONE["width"]} == {}
    assert {url: page["small"] for url, page in walk.pages.items() if page["small"] < 10.5} == {}


def test_every_page_has_one_heading_and_every_picture_loads_and_is_described(walk):
    assert [url for url, page in walk.pages.items() if page["headings"] != 1] == []
    pictures = [picture for page in walk.pages.values() for picture in page["pictures"]]
    assert len(pictures) > 8
    assert [source for source, described, width in pictures if not described or not width] == []


@pytest.mark.parametrize("way", ["served", "opened as a file"])
def test_the_search_finds_temperature(browser, site, address, way):
    context = browser.new_context()
    page = context.new_page()
    complaints = []
    listen(page, complaints)
    page.goto(address if way == "served" else (site / "index.html").as_uri())
    page.click(".md-search__input")
    page.keyboard.type("temperature")
    page.wait_for_selector(".md-search-result__item a", timeout=20_000)
    titles = " ".join(page.locator(".md-search-result__item h1, .md-search-result__item h2").all_inner_texts())
    assert "temperature" in titles.lower()
    assert complaints == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(browser, address, scheme):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(address + "methods/dac.html")
    ratios = page.evaluate(
        """() => {
          const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          const luminance = (colour, below) => {
            canvas.fillStyle = below; canvas.fillRect(0, 0, 1, 1);
            canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => {
              const s = v / 255; return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const page = getComputedStyle(document.body).backgroundColor;
          const names = ["article p", "article p a", "article h1", ".badge.keeps", ".badge.short", "td"];
          return names.filter((name) => document.querySelector(name)).map((name) => {
            const element = document.querySelector(name);
            const front = luminance(getComputedStyle(element).color, page), back = luminance(page, page);
            return [name, (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05)];
          });
        }"""
    )
    assert len(ratios) >= 4
    assert [pair for pair in ratios if pair[1] < 4.5] == []
    context.close()


def test_no_page_knows_the_machine_it_was_built_on(site):
    places = {str(ROOT), str(Path.home()), os.path.realpath(sys.prefix)} - {"/"}
    told = [
        (path.relative_to(site).as_posix(), place)
        for path in site.rglob("*")
        if path.suffix in (".html", ".json", ".js", ".svg")
        for place in places
        if re.search(rf"{re.escape(place)}(?![\w-])", path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert told == []


def test_every_public_name_has_a_place_in_the_reference(walk):
    ids = {name for page in walk.pages.values() for name in page["ids"]}
    for package in PACKAGES:
        module = importlib.import_module(package)
        names = [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
        # densecal.evaluate is on the page of densecal.metrics.
        missing = [name for name in names if not {f"{package}.{name}", f"densecal.metrics.{name}"} & ids]
        assert missing == [], package


def contributed(title: str) -> str:
    text = (ROOT / "docs" / "pages" / "contributing.md").read_text(encoding="utf-8")
    found = re.search(rf'^```python title="{re.escape(title)}"\n(.*?)^```$', text, re.M | re.S)
    assert found, f"the page has no example {title}"
    return found[1]


def test_the_method_that_the_contributing_page_adds_works_as_written(monkeypatch):
    import doctest

    name = "densecal.calibrators.prior_mixing"
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(contributed("src/densecal/calibrators/prior_mixing.py"), name, "exec"), vars(module))
    assert doctest.testmod(module) == doctest.TestResults(failed=0, attempted=2)
    test = {}
    exec(compile(contributed("tests/calibrators/test_prior_mixing.py"), "test", "exec"), test)
    test["test_the_weight_is_where_the_squared_error_is_smallest"]()
