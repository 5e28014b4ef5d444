from __future__ import annotations

import pytest

from densecal import Monitor

prometheus_client = pytest.importorskip("prometheus_client")

from densecal.monitor.prometheus import MonitorCollector, prometheus_text  # noqa: E402


def read(text):
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_the_text_has_the_estimate_the_drift_and_the_alarm(calibrator, limit, stream):
    monitor = Monitor(calibrator, window=400, alarm_below=limit)
    empty = read(prometheus_text(monitor))
    assert empty['densecal_samples_total{model="classifier"}'] == "0.0"
    assert 'densecal_accuracy{model="classifier"}' not in empty
    monitor.update(stream(800, 0.8, 30))
    found = read(prometheus_text(monitor, name="digits"))
    assert found['densecal_alarm{model="digits"}'] == "1.0"
    assert float(found['densecal_accuracy{model="digits"}']) == monitor.estimate().accuracy
    assert float(found['densecal_drift{layer="deep",model="digits"}']) > 1
    assert 0 < float(found['densecal_labelled_accuracy{model="digits"}']) < limit
    assert float(found['densecal_labelled_age_samples{model="digits"}']) == monitor.n_samples - monitor.windows[-1].end


def test_a_registry_scrapes_the_current_state(calibrator, limit, stream):
    monitor = Monitor(calibrator, window=400, alarm_below=limit)
    registry = prometheus_client.CollectorRegistry()
    registry.register(MonitorCollector(monitor))
    monitor.update(stream(100, 0.0, 31))
    assert registry.get_sample_value("densecal_samples_total", {"model": "classifier"}) == 100
