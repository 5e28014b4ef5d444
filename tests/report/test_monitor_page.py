from __future__ import annotations

import pytest

from densecal import DAC, FeatureBank, Monitor
from densecal.demo import load_demo, load_domains
from densecal.report import write_monitor_report


@pytest.fixture(scope="module")
def monitor():
    calibrator = DAC(FeatureBank(load_demo("train").features)).fit(load_demo("val"), shifted=load_domains())
    monitor = Monitor(calibrator, window=500, alarm_below=0.8)
    for name in ("clean", "shifted-5"):
        monitor.update(load_demo(name), at=f"<{name}>")
    return monitor


def test_the_page_opens_without_a_complaint_in_both_widths(browser, monitor, tmp_path):
    write_monitor_report(tmp_path / "monitor.html", monitor)
    for width in (1100, 360):
        page = browser.new_page(viewport={"width": width, "height": 900})
        complaints = []
        page.on("console", lambda message, found=complaints: found.append(message.text))
        page.on("pageerror", lambda error, found=complaints: found.append(str(error)))
        page.goto((tmp_path / "monitor.html").as_uri())
        assert complaints == []
        assert page.locator("svg.timeline:visible").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert "Alarm since <shifted-5>" in page.inner_text("#status .headline")
        page.close()


def test_the_page_needs_a_window(monitor, tmp_path):
    with pytest.raises(ValueError, match="no complete window"):
        write_monitor_report(tmp_path / "monitor.html", Monitor(monitor.calibrator, alarm_below=0.8))
