"""The report in headless Chromium, as a reader meets it."""

from __future__ import annotations

import pytest

from densecal.evaluation import Condition
from densecal.report import write_report


@pytest.fixture(scope="module")
def address(table, fitted, conditions, drifting, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, fitted, conditions, table=table, validation=drifting["val"])
    return path.as_uri()


@pytest.fixture
def open_page(browser, address):
    contexts = []

    def open_page(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("requestfailed", lambda request: page.complaints.append(request.url))
        page.requested = []
        page.on("request", lambda request: page.requested.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_a_complaint_and_without_another_request(open_page, address, scheme):
    page = open_page(color_scheme=scheme)
    assert page.complaints == []
    assert [url for url in page.requested if not url.startswith("data:")] == [address]


def shown_levels(page):
    return page.eval_on_selector_all(
        "#levels > .level", "all => all.filter(e => e.offsetParent).map(e => e.dataset.name)"
    )


def test_the_slider_moves_the_diagram_by_keyboard(open_page):
    page = open_page()
    assert shown_levels(page) == ["severity 3"]
    drawing = page.locator("#levels > .level:not([hidden]) svg.reliability").last.get_attribute("aria-label")
    page.focus("#severity")
    page.keyboard.press("Home")
    assert shown_levels(page) == ["clean data"]
    assert page.inner_text("#severity-name") == "clean data"
    assert page.get_attribute("#severity", "aria-valuetext") == "clean data"
    assert page.locator("#levels > .level:not([hidden]) svg.reliability").last.get_attribute("aria-label") != drawing
    page.keyboard.press("ArrowRight")
    assert shown_levels(page) == ["severity 1"]
    assert page.complaints == []


def test_without_javascript_every_severity_is_on_the_page(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator("#severity").is_hidden()
    visible = [page.locator("#levels > .level").nth(n).is_visible() for n in range(4)]
    assert visible == [True] * 4


def column(page, number):
    cells = f"table[data-name=ece-by-severity] tbody tr td:nth-child({number})"
    return page.eval_on_selector_all(cells, "all => all.map(e => Number(e.dataset.value))")


def test_the_table_sorts_up_and_down(open_page):
    page = open_page()
    before = column(page, 2)
    head = page.locator("table[data-name=ece-by-severity] thead th:nth-child(2)")
    head.locator("button").click()
    assert column(page, 2) == sorted(before)
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").press("Enter")
    assert column(page, 2) == sorted(before, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"


def test_names_sort_as_text(open_page):
    page = open_page()
    page.locator("table[data-name=ece-by-severity] thead th:first-child button").click()
    names = page.locator("table[data-name=ece-by-severity] tbody th").all_inner_texts()
    assert names[0].startswith("DAC + ETS")
    assert names[-1] == "Uncalibrated"


def test_the_table_is_copied_as_csv_with_intervals(open_page, table):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#numbers .copy").first.click()
    page.wait_for_function("document.querySelector('#numbers .copy').textContent === 'Copied'")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].split(",")[:4] == ["Method", "Clean data", "Clean data low", "Clean data high"]
    assert len(lines) == 1 + len(table.methods)
    assert float(lines[1].split(",")[1]) == pytest.approx(100 * table.estimate("uncalibrated", severity=0).estimate)


def test_nothing_is_wider_than_a_phone(open_page):
    page = open_page(viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    sizes = page.eval_on_selector_all(
        "main p, main li, main dt",
        "all => all.filter(e => e.offsetParent).map(e => parseFloat(getComputedStyle(e).fontSize))",
    )
    assert min(sizes) >= 13


def test_long_names_stay_within_the_page_and_its_drawings(browser, fitted, drifting, tmp_path):
    name = "a-long-name-of-a-calibrator-or-test-set" * 4
    sets = [Condition(name, drifting["test-0"]), Condition(name, drifting["test-3"], severity=3)]
    sets += [Condition(name, drifting["test-3"], natural=True), Condition(name, drifting["ood"], out_of_domain=True)]
    write_report(tmp_path / "report.html", {"ts": fitted["ts"], name: fitted["dac+ts"]}, sets)
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto((tmp_path / "report.html").as_uri())
    outside = page.eval_on_selector_all(
        "svg text",
        """all => all.filter(e => {
            const [text, chart] = [e, e.ownerSVGElement].map(one => one.getBoundingClientRect());
            return text.width && (text.left < chart.left - 12 || text.right > chart.right + 12);
        }).map(e => e.textContent)""",
    )
    assert outside == []
    for width in (1200, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(open_page, scheme):
    page = open_page(color_scheme=scheme)
    # WCAG's contrast of the body's, the muted and the methods' colours against the page.
    ratios = page.evaluate(
        """() => {
          const probe = document.createElement("i"); document.body.append(probe);
          const luminance = (colour) => {
            probe.style.color = colour;
            const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((v) => {
              const s = Number(v) / 255; return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const back = luminance("var(--bg)");
          return ["--ink", "--muted", "--accent", "--m-uncalibrated", "--m-ts", "--m-ets"].map((name) => {
            const front = luminance(`var(${name})`);
            return [name, (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05)];
          });
        }"""
    )
    assert all(ratio >= 4.5 for _, ratio in ratios), ratios


def test_the_button_switches_between_light_and_dark(open_page):
    page = open_page(color_scheme="light")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("button.theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_on_paper_the_controls_are_gone_and_the_ends_of_the_shift_are_shown(open_page):
    page = open_page(viewport={"width": 700, "height": 1000})
    page.emulate_media(media="print")
    assert not page.locator(".slider").is_visible()
    assert not page.locator(".copy").first.is_visible()
    assert shown_levels(page) == ["clean data", "severity 3"]
    assert page.pdf(format="A4").startswith(b"%PDF")
