from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from densecal import DAC, FeatureBank, Monitor, Outputs
from densecal.cli.tables import print_windows
from densecal.demo import load_demo, load_domains
from densecal.report import write_monitor_report
from densecal.report.monitor_page import describe_status


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


def test_the_accuracy_on_clean_data_is_called_an_estimate(monitor, tmp_path):
    write_monitor_report(tmp_path / "monitor.html", monitor)
    page = (tmp_path / "monitor.html").read_text(encoding="utf-8")
    assert f"Estimated accuracy on clean data: <b>{100 * monitor.clean_accuracy:.1f}" in page


def test_the_page_needs_a_window(monitor, tmp_path):
    with pytest.raises(ValueError, match="no complete window"):
        write_monitor_report(tmp_path / "monitor.html", Monitor(monitor.calibrator, alarm_below=0.8))


def test_the_newest_windows_come_first_and_no_line_starts_with_a_percent_sign(browser, monitor, tmp_path):
    write_monitor_report(tmp_path / "monitor.html", monitor)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((tmp_path / "monitor.html").as_uri())
    rows = page.locator("#windows tbody tr")
    assert rows.count() == len(monitor.windows)
    assert "<shifted-5>" in rows.first.inner_text()
    assert "<clean>" in rows.last.inner_text()
    status = page.locator("#status").evaluate("element => element.textContent")
    assert "\u00a0%" in status
    assert " %" not in status
    assert page.locator("#windows .scroll").evaluate("box => box.scrollWidth <= box.clientWidth")
    assert page.locator(".key.claim i").evaluate("line => getComputedStyle(line).borderTopStyle") == "dashed"
    page.close()


def test_of_many_alarms_the_latest_are_told_and_the_older_ones_are_folded(monitor, tmp_path, monkeypatch, capsys):
    alarm = monitor.alarms[0]
    alarms = tuple(replace(alarm, since_at=f"day-{number}") for number in range(8))
    monkeypatch.setattr(Monitor, "alarms", alarms)
    write_monitor_report(tmp_path / "monitor.html", monitor)
    page = (tmp_path / "monitor.html").read_text(encoding="utf-8")
    told, older = page.split('id="timeline"')[0].split("<summary>3 older alarms</summary>")
    assert [f"since day-{number} " in told for number in range(8)] == [False] * 3 + [True] * 5
    assert told.index("since day-7 (") < told.index("since day-3 (")
    assert [f"since day-{number} " in older for number in range(8)] == [True] * 3 + [False] * 5
    print_windows(monitor, None)
    printed = capsys.readouterr().out
    assert "3 older alarms" in printed and [f"since day-{number} (" in printed for number in (2, 3)] == [False, True]


def test_windows_beyond_all_shifted_data_are_no_good_news(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 3000)
    predicted = np.where(rng.random(3000) < 0.9, labels, (labels + 1) % 3)
    logits = 4.0 * np.eye(3)[predicted] + rng.normal(0, 0.3, (3000, 3))
    near = rng.normal(1.0, 0.1, (3000, 1))
    worse = 4.0 * np.eye(3)[(labels + (rng.random(3000) < 0.3)) % 3]
    shifted = {f"{kind}/weak": (worse, labels, near + 0.2) for kind in "ab"}
    calibrator = DAC().fit(logits, labels, distances=near, shifted=shifted)
    monitor = Monitor(calibrator, window=500, alarm_below=0.2)
    monitor.update(logits[:500], distances=near[:500], at="near")
    write_monitor_report(tmp_path / "near.html", monitor)
    monitor.update(logits[:500], distances=near[:500] + 0.3, at="far")
    write_monitor_report(tmp_path / "far.html", monitor)
    near_page, far_page = ((tmp_path / name).read_text(encoding="utf-8") for name in ("near.html", "far.html"))
    assert 'class="verdict good"' in near_page and "extrapolation" not in near_page
    assert 'class="verdict even"' in far_page and "The estimate is an extrapolation" in far_page


def test_labels_below_the_limit_are_told_although_the_latest_are_not(monitor):
    watched = Monitor(monitor.calibrator, window=500, alarm_below=0.8)
    outputs = load_demo("clean")[:1500]
    wrong = (outputs.logits.argmax(axis=1) + 1) % 10
    labels = np.where(np.arange(1500) < 1000, wrong, outputs.labels)
    watched.update(Outputs(outputs.logits, labels, outputs.features), at="today")
    told = describe_status(watched)
    expected = "In 2 of 3 windows with labels, the accuracy on them lies below 80.0 % by more than chance: today."
    assert expected in " ".join(told.notes)
    assert watched.alarm is None and told.tone == "even"


def test_a_calibrator_without_layers_has_no_drift(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 2000)
    logits = 4.0 * np.eye(3)[np.where(rng.random(2000) < 0.9, labels, 0)]
    none = np.zeros((2000, 0))
    shifted = {f"{kind}/weak": (4.0 * np.eye(3)[rng.permutation(labels)], labels, none) for kind in "ab"}
    monitor = Monitor(DAC(max_clean_cost=None).fit(logits, labels, distances=none, shifted=shifted), window=500)
    monitor.update(logits[:500], distances=none[:500])
    write_monitor_report(tmp_path / "monitor.html", monitor)
    assert "<td>–</td>" in (tmp_path / "monitor.html").read_text(encoding="utf-8")
