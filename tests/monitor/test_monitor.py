from __future__ import annotations

import copy
import pickle
import threading
from datetime import UTC, date, datetime

import numpy as np
import pytest

import densecal
from densecal import ArtefactError, Monitor, Outputs


@pytest.fixture
def monitor(calibrator, limit):
    return Monitor(calibrator, window=400, alarm_below=limit)


def unlabelled(outputs):
    return Outputs(outputs.logits, None, outputs.features)


def accuracy_of(outputs):
    return float((outputs.logits.argmax(axis=1) == outputs.labels).mean())


def test_a_fall_of_the_accuracy_raises_an_alarm_that_says_since_when_and_why(monitor, stream, limit):
    for day in range(4):
        monitor.update(unlabelled(stream(400, 0.0, 200 + day)), at=f"day {day}")
    assert monitor.alarm is None
    fallen = stream(1200, 0.8, 300)
    assert accuracy_of(fallen) < limit - 0.1
    monitor.update(unlabelled(fallen), at="day 4")
    alarm = monitor.alarm
    assert (alarm.since, alarm.since_at, alarm.raised) == (1600, "day 4", 2000)
    assert "the distances grew most in deep" in alarm.why
    assert "below" in alarm.why
    monitor.update(unlabelled(stream(400, 0.0, 301)), at="day 5")
    assert monitor.alarm is None
    assert (monitor.alarms[0].until, monitor.alarms[0].until_at) == (2800, "day 5")


def test_the_windows_do_not_depend_on_the_batches(calibrator, stream, limit):
    data = stream(1500, 0.3, 7)
    whole, pieces = (Monitor(calibrator, window=400, alarm_below=limit) for _ in range(2))
    whole.update(data, at="now")
    for start in range(0, len(data), 70):
        pieces.update(data[start : start + 70], at="now")
    assert [window.estimate.n_samples for window in whole.windows] == [400] * 3
    for one, other in zip(whole.windows, pieces.windows, strict=True):
        assert one.estimate.accuracy == pytest.approx(other.estimate.accuracy, abs=1e-9)
        assert (one.start, one.end, one.n_labels, one.n_right) == (
            other.start,
            other.end,
            other.n_labels,
            other.n_right,
        )


def test_a_window_has_the_estimate_of_its_samples(calibrator, monitor, stream):
    data = stream(400, 0.3, 8)
    (window,) = monitor.update(data)
    direct = calibrator.estimate_accuracy(data)
    assert window.estimate.to_dict() == {
        name: pytest.approx(value, abs=1e-6)
        for name, value in direct.to_dict().items()
        if name in window.estimate.to_dict()
    }


def test_the_latest_samples_have_an_estimate_between_windows(calibrator, monitor, stream):
    with pytest.raises(ValueError, match="no samples yet"):
        monitor.estimate()
    data = stream(1000, 0.3, 9)
    monitor.update(data[:150])
    assert monitor.estimate().n_samples == 150
    monitor.update(data[150:])
    assert monitor.estimate().accuracy == pytest.approx(calibrator.estimate_accuracy(data[600:]).accuracy, abs=1e-6)


def test_logits_with_features_or_distances_are_accepted(calibrator, monitor, stream):
    data = stream(800, 0.2, 10)
    distances = calibrator.measure(data).distances.values
    monitor.update(data.logits[:400], features={name: values[:400] for name, values in data.features.items()})
    monitor.update(data.logits[400:], distances=distances[400:])
    expected = [calibrator.estimate_accuracy(part).accuracy for part in (data[:400], data[400:])]
    assert [window.estimate.accuracy for window in monitor.windows] == pytest.approx(expected, abs=1e-6)


def test_labels_in_the_outputs_do_not_change_the_estimate(calibrator, limit, stream):
    data = stream(400, 0.2, 12)
    windows = [Monitor(calibrator, window=400, alarm_below=limit).update(one)[0] for one in (data, unlabelled(data))]
    assert windows[0].n_labels == 400
    assert windows[0].estimate.to_dict() == windows[1].estimate.to_dict()


def test_memory_does_not_grow_with_the_stream(calibrator, limit, stream):
    monitor = Monitor(calibrator, window=50, alarm_below=limit, history=3, label_memory=20)
    data = stream(500, 0.0, 13)
    for turn in range(4):
        monitor.update(unlabelled(data), ids=range(500 * turn, 500 * (turn + 1)))
    assert [window.number for window in monitor.windows] == [37, 38, 39]
    assert monitor.n_samples == 2000
    assert monitor.add_labels(data.labels, list(range(1500, 2000))) == 20
    assert [window.n_labels for window in monitor.windows] == [0, 0, 20]


def test_a_saved_monitor_goes_on_as_if_it_had_not_been_interrupted(calibrator, monitor, stream, tmp_path):
    first, second = unlabelled(stream(950, 0.7, 14)), stream(950, 0.0, 15)
    monitor.update(first, ids=range(950), at="first")
    monitor.save(tmp_path / "monitor.state")
    calibrator.save(tmp_path / "cal.densecal")
    loaded = Monitor.load(tmp_path / "monitor.state", densecal.load(tmp_path / "cal.densecal"))
    for one in (monitor, loaded):
        one.add_labels(stream(950, 0.7, 14).labels, list(range(950)))
        one.update(unlabelled(second), at="second")
    assert [window.n_labels for window in loaded.windows] == [400, 400, 150, 0]
    assert [alarm.since_at for alarm in loaded.alarms] == ["first"]
    accuracies = [[window.estimate.accuracy for window in one.windows] for one in (loaded, monitor)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=1e-3)


@pytest.mark.parametrize("copied_by", [lambda monitor: pickle.loads(pickle.dumps(monitor)), copy.copy])
def test_a_copied_monitor_goes_on_by_itself(monitor, stream, copied_by):
    monitor.update(unlabelled(stream(150, 0.7, 14)), ids=range(150))
    copied = copied_by(monitor)
    for one in (monitor, copied):
        one.update(unlabelled(stream(400, 0.7, 15)))
    (theirs,), (ours,) = copied.windows, monitor.windows
    assert theirs.estimate.accuracy == pytest.approx(ours.estimate.accuracy, abs=1e-6)
    copied.add_labels(stream(150, 0.7, 14).labels, range(150))
    assert copied.windows[0].n_labels == 150 and monitor.windows[0].n_labels == 0


def test_names_and_settings_from_numpy_are_saved(calibrator, limit, stream, tmp_path):
    monitor = Monitor(calibrator, window=np.int64(100), alarm_below=np.float32(limit))
    seen = stream(150, 0.0, 5)
    monitor.update(Outputs(seen.logits, None, seen.features), ids=np.arange(150))
    monitor.save(tmp_path / "monitor.densecal")
    assert Monitor.load(tmp_path / "monitor.densecal", calibrator).add_labels(seen.labels, np.arange(150)) == 150


def test_a_batch_without_samples_changes_nothing(monitor, stream):
    monitor.update(stream(10, 0.0, 5), at="noon")
    before = monitor.to_dict()
    assert monitor.update(stream(10, 0.0, 5)[:0], at="midnight") == []
    assert monitor.to_dict() == before
    assert monitor.close_window().end_at == "noon"


def test_a_state_belongs_to_its_calibrator(calibrator, monitor, stream, tmp_path):
    monitor.update(stream(450, 0.0, 16))
    monitor.save(tmp_path / "monitor.state")
    bank = calibrator.bank
    other = densecal.DAC(bank).fit(stream(3000, 0.0, 17), shifted={"fog": stream(900, 0.6, 18)})
    with pytest.raises(ArtefactError, match="another calibrator"):
        Monitor.load(tmp_path / "monitor.state", other)
    content = bytearray((tmp_path / "monitor.state").read_bytes())
    content[-9] ^= 1
    (tmp_path / "monitor.state").write_bytes(content)
    with pytest.raises(ArtefactError, match="damaged"):
        Monitor.load(tmp_path / "monitor.state", calibrator)


def test_threads_lose_no_sample_and_no_label(monitor, stream):
    data = stream(400, 0.1, 19)

    def work(number):
        ids = [f"{number}-{place}" for place in range(400)]
        for start in range(0, 400, 40):
            monitor.update(unlabelled(data[start : start + 40]), ids=ids[start : start + 40])
        assert monitor.add_labels(data.labels, ids) == 400

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.n_samples == 2400
    assert [window.end - window.start for window in monitor.windows] == [400] * 6
    assert sum(window.n_labels for window in monitor.windows) == 2400


def test_undisturbed_streams_raise_fewer_alarms_than_the_rate(calibrator, stream):
    pool = calibrator.measure(stream(4000, 0.0, 20))
    rng = np.random.default_rng(0)
    monitor = Monitor(calibrator, window=100, alarm_below=Monitor(calibrator, alarm_below=0.01).clean_accuracy - 0.01)
    for _ in range(20):
        monitor.update(pool[rng.integers(len(pool), size=2000)])
    assert len(monitor.windows) == 400
    assert monitor.alarms == ()


@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_undisturbed_windows_of_a_few_samples_raise_no_alarm(calibrator, stream, limit, window):
    monitor = Monitor(calibrator, window=window, alarm_below=limit)
    monitor.update(stream(400 * window, 0.0, 23))
    assert len(monitor.windows) == 400
    assert monitor.alarms == ()


@pytest.mark.parametrize(("n_windows", "name"), [(1, "effective_limit"), (8, "lasting_limit")])
def test_the_limits_are_about_where_alarms_begin(calibrator, limit, stream, n_windows, name):
    ringing, silent = [], []
    for number, shift in enumerate(np.linspace(0, 0.6, 25)):
        monitor = Monitor(calibrator, window=400, alarm_below=limit)
        monitor.update(unlabelled(stream(400 * n_windows, shift, 400 + number)))
        found = np.mean([one.estimate.accuracy for one in monitor.windows])
        (silent if monitor.windows[-1].bound >= limit else ringing).append(found)
    assert max(ringing) - 0.02 < getattr(monitor, name) < min(silent) + 0.02
    assert monitor.to_dict()[name] == getattr(monitor, name)
    larger = Monitor(calibrator, window=4000, alarm_below=limit)
    assert monitor.effective_limit < monitor.lasting_limit < limit
    assert getattr(monitor, name) < getattr(larger, name) < limit


def find_slight_shift(calibrator, limit, stream):
    """Return a shift under which one window of 50 raises no alarm and several do."""
    monitor = Monitor(calibrator, window=50, alarm_below=limit)
    between = (monitor.lasting_limit + monitor.effective_limit) / 2
    shifts = np.linspace(0, 0.6, 61)
    found = [calibrator.estimate_accuracy(stream(4000, shift, 3)).accuracy for shift in shifts]
    return float(shifts[np.argmin(np.abs(np.array(found) - between))])


def test_a_slight_fall_that_lasts_raises_an_alarm_which_says_on_how_many_samples(calibrator, limit, stream):
    monitor = Monitor(calibrator, window=50, alarm_below=limit)
    monitor.update(unlabelled(stream(500, 0.0, 5)))
    shift = find_slight_shift(calibrator, limit, stream)
    first, *others = monitor.update(unlabelled(stream(50 * 16, shift, 6)))
    assert first.bound >= limit
    assert any(one.bound < limit and one.n_tested > 50 for one in others)
    assert "together, the latest " in monitor.alarms[0].why


def test_the_windows_of_an_ended_alarm_are_no_evidence_for_another_one(calibrator, limit, stream):
    monitor = Monitor(calibrator, window=50, alarm_below=limit)
    monitor.update(unlabelled(stream(250, 0.9, 7)))
    assert monitor.alarm is not None
    monitor.update(unlabelled(stream(50, 0.0, 8)))
    assert monitor.alarm is None
    slight = find_slight_shift(calibrator, limit, stream)
    (window,) = monitor.update(unlabelled(stream(50, slight, 9)))
    assert window.n_tested <= 100
    assert monitor.alarm is None


def test_a_loaded_monitor_goes_on_with_the_windows_it_has_seen(calibrator, limit, stream, tmp_path):
    shift = find_slight_shift(calibrator, limit, stream)
    monitor = Monitor(calibrator, window=50, alarm_below=limit)
    for number in range(8):
        monitor.save(tmp_path / "state")
        again = Monitor.load(tmp_path / "state", calibrator)
        batch = unlabelled(stream(50, shift, 10 + number))
        assert [one.bound for one in again.update(batch, at="")] == [one.bound for one in monitor.update(batch, at="")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alarm_below": 0.99}, "lower than the estimated accuracy on clean"),
        ({"alarm_below": 1.5}, "between 0 and 1"),
        ({"alarm_below": 0}, "between 0 and 1"),
        ({"false_alarm_rate": 0.0}, "between 1e-09 and 1"),
        ({"window": 0}, "whole number"),
        ({"window": 2.5}, "whole number"),
    ],
)
def test_settings_are_checked(calibrator, limit, settings, message):
    with pytest.raises(ValueError, match=message):
        Monitor(calibrator, **{"alarm_below": limit, **settings})


def test_the_lowest_false_alarm_rate_is_allowed(calibrator, limit):
    assert Monitor(calibrator, alarm_below=limit, false_alarm_rate=1e-9).settings.level < 1


def test_models_that_cannot_be_monitored_say_why(stream):
    with pytest.raises(ValueError, match="does not measure distances"):
        Monitor(densecal.TemperatureScaling().fit(stream(500, 0.0, 21)))
    with pytest.raises(TypeError, match="must be a fitted Calibrator"):
        Monitor(object())


def test_ids_must_name_every_sample(monitor, stream):
    with pytest.raises(ValueError, match="got 3 ids for 10 samples"):
        monitor.update(stream(10, 0.0, 22), ids=[1, 2, 3])
    assert monitor.n_samples == 0


def test_a_calibrated_classifier_is_monitored_on_its_inputs(stream):
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    network = MLPClassifier(max_iter=60, random_state=0).fit(X[:800], y[:800])
    noisy = X[800:1300] + rng.normal(0, 6.0, X[800:1300].shape)
    calibrated = densecal.CalibratedClassifier(network, method="dac").fit(
        X[800:1300], y[800:1300], X_train=X[:800], X_shifted=noisy, y_shifted=y[800:1300]
    )
    monitor = Monitor(calibrated, window=100, alarm_below=0.5)
    monitor.update(X[1300:1500])
    assert len(monitor.windows) == 2
    assert [monitor.update(empty) for empty in (X[:0], [])] == [[], []]


def test_a_time_may_be_a_datetime(monitor, stream, tmp_path):
    noon = datetime(2026, 11, 18, 12, tzinfo=UTC)
    (window,) = monitor.update(stream(400, 0.0, 9), at=noon)
    monitor.save(tmp_path / "monitor.state")
    assert window.end_at == "2026-11-18T12:00:00+00:00"


def test_a_window_says_that_it_has_no_estimates_per_class(monitor, stream):
    (window,) = monitor.update(stream(400, 0.0, 9))
    with pytest.raises(ValueError, match="Windows of a Monitor never have them. Call estimate_accuracy"):
        _ = window.estimate.macro_f1


def test_logits_in_bfloat16_are_observed(calibrator, stream, limit):
    torch = pytest.importorskip("torch")
    data = stream(400, 0.3, 8)
    logits = torch.from_numpy(data.logits).bfloat16()
    monitors = [Monitor(calibrator, window=400, alarm_below=limit) for _ in range(2)]
    for monitor, given in zip(monitors, (logits, logits.float()), strict=True):
        monitor.update(given, features=data.features, ids=range(400))
        monitor.add_labels(data.labels, range(400))
    found, expected = (monitor.windows[0] for monitor in monitors)
    assert found.n_right == expected.n_right > 200
    assert found.estimate.accuracy == pytest.approx(expected.estimate.accuracy)


def test_batches_are_named_by_text_or_date(calibrator, limit, stream):
    monitor, data = Monitor(calibrator, window=200, alarm_below=limit), stream(200, 0.0, 1)
    for at, name in (
        ("monday", "monday"),
        (date(2024, 1, 5), "2024-01-05"),
        (datetime(2024, 1, 6, 7), "2024-01-06T07:00:00"),
    ):
        assert monitor.update(data, at=at)[0].end_at == name
    assert repr(monitor) == "Monitor(600 samples, 3 windows; no alarm)"
    with pytest.raises(TypeError, match="at must be a str, a date or a datetime, got 5 of type int"):
        monitor.update(data, at=5)
    assert monitor.n_samples == 600
