from __future__ import annotations

import warnings

import pytest

import densecal
from densecal import Monitor


@pytest.fixture(scope="module")
def unsure(calibrator, stream):
    """A calibrator fitted on few validation samples."""
    shifted = {f"fog/{shift}": stream(600, shift, 30 + number) for number, shift in enumerate((0.2, 0.5, 0.9))}
    return densecal.DAC(calibrator.bank).fit(stream(100, 0.0, 99), shifted=shifted)


def test_a_monitor_whose_alarm_can_hardly_ring_says_so_once(unsure, stream, tmp_path):
    with pytest.warns(densecal.CalibrationWarning, match="An alarm is unlikely") as caught:
        monitor = Monitor(unsure, alarm_below=0.65)
    assert monitor.lasting_limit < 0.55
    message = str(caught[0].message)
    assert "alarm_below is 65.0%" in message and f"below about {monitor.lasting_limit:.1%}" in message
    assert "on more than 100 clean validation samples" in message
    monitor.update(stream(10, 0.0, 1))
    monitor.save(tmp_path / "monitor.state")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Monitor.load(tmp_path / "monitor.state", unsure)


def test_a_monitor_with_enough_validation_samples_does_not_warn(calibrator, limit):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor = Monitor(calibrator, alarm_below=limit)
    assert limit - monitor.lasting_limit < 0.1
