from __future__ import annotations

import numpy as np

from densecal import Monitor, Outputs


def unlabelled(outputs):
    return Outputs(outputs.logits, None, outputs.features)


def confident_and_far(stream, samples: int) -> Outputs:
    """Inputs beyond all shifted data, of which the classifier is surer than of clean ones, and mostly wrong."""
    data = stream(samples, 0.0, 77)
    wrong = np.roll(data.logits, 1, axis=1)
    beyond = data.features["plain"] + np.array([0.0, 0.15], np.float32)
    return Outputs(4 * wrong, data.labels, {**data.features, "plain": beyond})


def test_confident_inputs_beyond_all_shifted_data_raise_an_alarm(calibrator, limit, stream):
    monitor, data = Monitor(calibrator, window=400, alarm_below=limit), confident_and_far(stream, 400)
    found = calibrator.estimate_accuracy(data)
    assert found.is_extrapolated and found.low < limit < found.accuracy
    monitor.update(unlabelled(data), at="unscaled")
    assert monitor.alarm is not None and monitor.alarm.since_at == "unscaled"
    assert "farther from the training data than all shifted data" in monitor.alarm.why
    monitor.update(unlabelled(stream(400, 0.0, 78)), at="mended")
    assert monitor.alarm is None and monitor.alarms[0].until_at == "mended"


def test_an_alarm_without_support_does_not_say_that_the_accuracy_fell_by_more_than_chance(calibrator, limit, stream):
    monitor = Monitor(calibrator, window=400, alarm_below=limit)
    monitor.update(unlabelled(stream(2800, 0.0, 79)))
    (window,) = monitor.update(unlabelled(confident_and_far(stream, 400)))
    assert window.bound > limit and window.n_tested > 400
    assert "extrapolation" in monitor.alarm.why and "more than chance" not in monitor.alarm.why


def test_inputs_beyond_all_shifted_data_raise_no_alarm_if_the_interval_lies_above_the_limit(calibrator, stream):
    data = stream(400, 0.0, 77)
    data.features["plain"] += np.array([0.0, 0.08], np.float32)
    found = calibrator.estimate_accuracy(data)
    assert found.is_extrapolated and found.low > 0.1
    for limit, is_alarm in ((found.low - 0.01, False), (found.low + 0.01, True)):
        monitor = Monitor(calibrator, window=400, alarm_below=limit)
        monitor.update(unlabelled(data))
        assert bool(monitor.alarm) is is_alarm


def test_a_few_inputs_beyond_all_shifted_data_raise_no_alarm(calibrator, limit, stream):
    monitor = Monitor(calibrator, window=25, alarm_below=limit)
    monitor.update(unlabelled(confident_and_far(stream, 25)))
    assert monitor.windows[0].estimate.is_extrapolated and not monitor.alarms


def test_small_windows_beyond_all_shifted_data_count_together(calibrator, limit, stream):
    monitor = Monitor(calibrator, window=25, alarm_below=limit)
    monitor.update(unlabelled(confident_and_far(stream, 50)))
    assert monitor.alarm is not None and monitor.alarm.since == 25


def test_a_short_window_beyond_all_shifted_data_ends_no_alarm(calibrator, limit, stream):
    monitor, data = Monitor(calibrator, window=400, alarm_below=limit), unlabelled(confident_and_far(stream, 420))
    monitor.update(data[:400])
    monitor.update(data[400:])
    monitor.close_window()
    assert monitor.windows[-1].estimate.is_extrapolated and monitor.alarm is not None
