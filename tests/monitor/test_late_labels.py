from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPClassifier

import densecal
from densecal import Monitor, Outputs
from densecal.monitor.batches import observe


@pytest.fixture
def monitor(calibrator, limit):
    return Monitor(calibrator, window=400, alarm_below=limit)


def unlabelled(outputs):
    return Outputs(outputs.logits, None, outputs.features)


def test_late_labels_are_shown_beside_the_estimate(monitor, stream):
    data = stream(1000, 0.2, 11)
    ids = [f"request-{number}" for number in range(1000)]
    monitor.update(unlabelled(data), ids=ids)
    before = [window.estimate for window in monitor.windows]
    assert monitor.windows[0].labelled_accuracy is None
    assert monitor.add_labels(data.labels[100:900], ids[100:900]) == 800
    assert monitor.add_labels(data.labels[100:110], ids[100:110]) == 0  # they have arrived already
    with pytest.warns(densecal.CalibrationWarning, match="None of the 1 ids, such as 'another', is known"):
        assert monitor.add_labels([0], ["another"]) == 0
    first, second = monitor.windows
    right = data.logits.argmax(axis=1) == data.labels
    assert (first.n_labels, first.n_right) == (300, right[100:400].sum())
    found = second.labelled_accuracy
    assert found.low < found.estimate == right[400:800].mean() < found.high
    assert [window.estimate for window in monitor.windows] == before
    third = monitor.close_window()
    assert (third.estimate.n_samples, third.n_labels, third.n_right) == (200, 100, right[800:900].sum())
    assert monitor.close_window() is None


@pytest.mark.parametrize("late", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
@pytest.mark.parametrize("first", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
def test_an_array_or_tensor_of_ids_stands_for_its_values(monitor, stream, first, late):
    data = stream(50, 0.0, 9)
    monitor.update(unlabelled(data), ids=first(range(50)))
    assert monitor.add_labels(data.labels, late(range(50))) == 50


def test_ids_in_arrays_of_strings_and_lists_of_scalars_match(monitor, stream):
    data = stream(4, 0.0, 9)
    monitor.update(unlabelled(data), ids=np.array(["a", "b", "2", "3"]))
    assert monitor.add_labels(data.labels, [np.str_("a"), "b", torch.tensor(2), np.int64(3)]) == 4


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([0.0, 1.0], "float"),
        (np.arange(2.0), "float"),
        (torch.arange(2.0), "float"),
        ([True, False], "bool"),
        (["a", None], "NoneType"),
        (np.zeros((2, 1), int), "list"),
    ],
)
def test_ids_that_are_neither_integers_nor_strings_are_rejected_by_type(monitor, stream, ids, kind):
    data = stream(2, 0.0, 9)
    with pytest.raises(TypeError, match=f"ids must be integers or strings, got .* of type {kind}"):
        monitor.update(unlabelled(data), ids=ids)
    assert monitor.n_samples == 0
    monitor.update(unlabelled(data), ids=[0, 1])
    with pytest.raises(TypeError, match=f"of type {kind}"):
        monitor.add_labels(data.labels, ids)


def test_unknown_ids_are_pointed_out_only_if_none_is_known(monitor, stream, recwarn):
    data = stream(10, 0.0, 9)
    monitor.update(unlabelled(data), ids=range(10))
    assert monitor.add_labels(data.labels[:2], [0, "other"]) == 1
    assert monitor.add_labels(data.labels[:1], [0]) == 0  # its label has arrived already
    assert monitor.add_labels([], []) == 0
    assert not recwarn.list
    with pytest.warns(densecal.CalibrationWarning, match="None of the 10 ids, such as 'x0', is known"):
        monitor.add_labels(data.labels, [f"x{number}" for number in range(10)])


def test_samples_that_are_read_twice_are_pointed_out(monitor, stream):
    data = unlabelled(stream(50, 0.0, 9))
    monitor.update(data, ids=range(50))
    with pytest.warns(densecal.CalibrationWarning, match="50 of 50 ids were read before"):
        monitor.update(data, ids=[str(number) for number in range(50)])


def test_labels_of_windows_that_are_forgotten_do_not_count_as_found(calibrator, stream, limit):
    monitor = Monitor(calibrator, window=50, alarm_below=limit, history=1)
    data = stream(100, 0.0, 9)
    monitor.update(unlabelled(data), ids=range(100))
    assert monitor.add_labels(data.labels, range(100)) == 50


def test_ids_of_labelled_samples_and_those_twice_in_a_batch_are_pointed_out(calibrator, monitor, stream, tmp_path):
    data = stream(50, 0.0, 9)
    monitor.update(unlabelled(data), ids=range(50))
    monitor.add_labels(data.labels[:30], range(30))
    monitor.update(data[:10], ids=range(100, 110))
    monitor.save(tmp_path / "monitor.state")
    monitor = Monitor.load(tmp_path / "monitor.state", calibrator)
    with pytest.warns(densecal.CalibrationWarning, match="50 of 50 ids were read before"):
        monitor.update(unlabelled(data), ids=range(50))
    with pytest.warns(densecal.CalibrationWarning, match="10 of 10 ids were read before"):
        monitor.update(data[:10], ids=range(100, 110))
    with pytest.warns(densecal.CalibrationWarning, match="9 of 10 ids .* twice in the batch"):
        monitor.update(unlabelled(data[:10]), ids=["new"] * 10)


def test_waiting_samples_cost_nothing_per_batch(calibrator, limit, stream):
    part = calibrator.measure(unlabelled(stream(1, 0.0, 9)))
    times = []
    for n_waiting in (10, 200_000):
        monitor = Monitor(calibrator, window=400, alarm_below=limit, label_memory=n_waiting)
        monitor.update(calibrator.measure(unlabelled(stream(n_waiting, 0.0, 9))), ids=range(n_waiting))
        observed = observe(calibrator, part)
        rounds = []
        for turn in range(20):
            start = time.perf_counter()
            monitor.append(observed, ids=[f"later-{turn}"])
            rounds.append(time.perf_counter() - start)
        times.append(np.median(rounds))
    assert times[1] < 10 * times[0]


@pytest.fixture(scope="module", params=[[1, 2, 3], ["ant", "bee", "cat"]], ids=["numbers", "names"])
def classifier(request):
    """A calibrated classifier whose classes are not the positions 0, 1, 2, and a function that draws its data."""
    classes = np.array(request.param)

    def draw(samples, noise, seed):
        rng = np.random.default_rng(seed)
        places = rng.integers(3, size=samples)
        return rng.normal(size=(samples, 6)) * noise + 2.5 * np.eye(6)[places], classes[places]

    X, y = draw(1000, 1.2, 0)
    network = MLPClassifier((16,), max_iter=100, random_state=0).fit(X, y)
    shifted = {f"noise/{level}": draw(300, 1.2 + 0.3 * level, level) for level in (1, 2, 3)}
    X_shifted, y_shifted = ({name: pair[part] for name, pair in shifted.items()} for part in (0, 1))
    options = {"X_train": X, "X_shifted": X_shifted, "y_shifted": y_shifted}
    return densecal.CalibratedClassifier(network, "dac").fit(*draw(800, 1.2, 10), **options), draw


def test_late_labels_of_a_classifier_are_its_classes(classifier, tmp_path):
    calibrated, draw = classifier
    X, y = draw(400, 1.2, 11)
    monitor = Monitor(calibrated, window=400, alarm_below=0.3)
    monitor.update(X, ids=range(400))
    arrived = np.flatnonzero(y != calibrated.classes_[2])  # one class is missing from the labels that arrive
    right = calibrated.predict(X) == y
    monitor.save(tmp_path / "monitor.state")
    for each in (monitor, Monitor.load(tmp_path / "monitor.state", calibrated)):
        assert each.add_labels(y[arrived], arrived.tolist()) == len(arrived)
        assert (each.windows[0].n_labels, each.windows[0].n_right) == (len(arrived), right[arrived].sum())


def test_late_labels_that_are_no_classes_of_the_classifier_are_named(classifier):
    calibrated, draw = classifier
    monitor = Monitor(calibrated, window=400, alarm_below=0.3)
    monitor.update(draw(10, 1.2, 11)[0], ids=range(10))
    with pytest.raises(ValueError, match=r"labels holds the classes \['dog'\], but the estimator was fitted on"):
        monitor.add_labels(["dog"], [0])
    with pytest.raises(ValueError, match=r"labels must have shape \(3,\)"):
        monitor.add_labels(calibrated.classes_[:2], [0, 1, 2])
    assert monitor.add_labels([], []) == 0
