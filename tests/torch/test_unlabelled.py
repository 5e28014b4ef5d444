"""A calibrated model on unlabelled loaders: its accuracy, and a copy adapted to them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import densecal  # noqa: E402
from densecal.torch import CalibratedModel, calibrate  # noqa: E402


def noisier(images, amount, seed):
    return images + amount * torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))


def batches(images, labels=None):
    return list(images.split(200)) if labels is None else list(zip(images.split(200), labels.split(200), strict=True))


@pytest.fixture(scope="module")
def model(trained):
    classifier, train, (images, labels) = trained
    val, val_labels = images[:500], labels[:500]
    shifted = {
        f"{kind}/{amount}": batches(noisier(val, amount, seed) + offset, val_labels)
        for seed, (kind, offset) in enumerate({"noise": 0.0, "bright": 0.5, "dark": -0.5}.items())
        for amount in (1.0, 3.0)
    }
    options = {"layers": ["3", "6", "9"], "progress": False}
    return calibrate(classifier, batches(*train), batches(val, val_labels), shifted=shifted, **options)


@pytest.fixture(scope="module")
def new(trained):
    images, labels = (part[500:] for part in trained[2])
    return noisier(images, 2.0, 9), labels


def test_the_accuracy_on_a_loader_is_estimated_without_its_labels(trained, model, new):
    images, labels = new
    found = model.estimate_accuracy(batches(images))
    truth = (trained[0](images).argmax(dim=1) == labels).float().mean().item()
    assert found.low <= truth <= found.high
    assert found.n_samples == 300
    assert set(found.drift) == set(model.layers)
    assert model.estimate_accuracy(batches(images, labels)).accuracy == found.accuracy


def test_what_stands_in_the_place_of_labels_is_ignored(model, new):
    images, expected = new[0], model.estimate_accuracy(batches(new[0])).accuracy
    names = [f"day-1/{place}.jpg" for place in range(len(images))]
    for batch in ((images, names), (images, [7]), (images, torch.full((300,), -100))):
        assert model.estimate_accuracy([batch]).accuracy == pytest.approx(expected, abs=1e-6)
    with pytest.raises(TypeError, match=r"without labels: batch_fn=lambda batch: \(\(batch\[0\],\), \{\}, None\)"):
        densecal.Monitor(model, window=300, alarm_below=0.2).update((images, names))


def test_a_shift_fit_without_weights_still_measures_the_drift(trained):
    classifier, train, (images, labels) = trained
    val = images[:500], labels[:500]
    # Copies without a shift: the distances say nothing.
    with pytest.warns(densecal.CalibrationWarning, match="all layer weights are zero"):
        model = calibrate(
            classifier, batches(*train), batches(*val), shifted={"same": batches(*val)}, layers=["3"], progress=False
        )
    assert not model.calibrator.density_stage.weights_.any()
    assert model.layers == ("3",)
    found = model.estimate_accuracy(batches(images[500:] + 5))
    assert found.is_extrapolated and set(found.drift) == {"3"}
    assert not model.estimate_accuracy(batches(images[500:])).is_extrapolated


def test_an_adapted_model_agrees_with_its_calibrator_and_saves_and_loads(trained, model, new, tmp_path):
    images = new[0]
    with torch.inference_mode():
        before = model(images)
        adapted = model.adapted_to(batches(images))
        probabilities = adapted(images)
        assert torch.equal(model(images), before)
        assert (probabilities - before).abs().max() > 1e-3
        assert torch.equal(probabilities.argmax(dim=1), before.argmax(dim=1))
        details = adapted.details(images)
    distances = torch.stack(list(details.distances.values()), dim=1)
    expected = adapted.calibrator.predict_proba(details.logits.numpy(), distances=distances.numpy())
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    adapted.save(tmp_path / "adapted.densecal")
    loaded = CalibratedModel.load(tmp_path / "adapted.densecal", trained[0])
    with torch.inference_mode():
        torch.testing.assert_close(loaded(images), probabilities)
    assert densecal.load(tmp_path / "adapted.densecal").adaptation_ is not None
    assert "adapted: to 300 unlabelled samples" in repr(adapted)


def test_the_state_dict_of_an_adapted_model_carries_its_temperatures(model, new):
    one, other = model.adapted_to(batches(new[0])), model.adapted_to(batches(new[0] * 0.5))
    one.load_state_dict(other.state_dict())
    with torch.inference_mode():
        torch.testing.assert_close(one(new[0]), other(new[0]))


def test_an_adapted_model_runs_in_onnxruntime(model, new, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    adapted = model.adapted_to(batches(new[0]))
    densecal.torch.export_onnx(adapted, new[0][:3], tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    got = session.run(["probabilities"], {session.get_inputs()[0].name: new[0].numpy()})[0]
    with torch.inference_mode():
        np.testing.assert_allclose(got, adapted(new[0]), atol=1e-4)


def test_perturbed_copies_are_grouped_by_kind_and_strength(trained):
    classifier, train, (images, labels) = trained
    model = calibrate(classifier, batches(*train), batches(images, labels), perturb=True, layers=["3"], progress=False)
    learned = model.calibrator.density_stage.accuracy_model_
    assert learned is None or learned["regression"]["n_kinds"] > 5


def test_an_empty_loader_is_named(model):
    with pytest.raises(ValueError, match="loader yielded no batches"):
        model.estimate_accuracy([])


def test_a_monitor_reads_inputs_batches_with_labels_and_details(model, new):
    images, labels = new
    monitors = [densecal.Monitor(model, window=300, alarm_below=0.2) for _ in range(3)]
    with torch.inference_mode():
        windows = [
            monitors[0].update(images),
            monitors[1].update((images, labels)),
            monitors[2].update(model.details(images)),
        ]
    expected = model.estimate_accuracy(batches(images))
    for (window,) in windows:
        assert window.estimate.accuracy == pytest.approx(expected.accuracy, abs=1e-5)
        assert window.estimate.drift == pytest.approx(dict(expected.drift), abs=1e-3)
    assert [window.n_labels for (window,) in windows] == [0, 300, 0]
    right = (model.classifier(images).argmax(dim=1) == labels).float().mean().item()
    assert windows[1][0].labelled_accuracy.estimate == pytest.approx(right)


def test_a_monitor_takes_details_that_were_computed_with_gradients_and_batches_without_samples(model, new):
    images, labels = new
    monitor = densecal.Monitor(model, window=300, alarm_below=0.2)
    for empty in (images[:0], (images[:0], labels[:0]), model.details(images)._replace(logits=torch.zeros(0, 4))):
        assert monitor.update(empty) == []
    assert monitor.n_samples == 0
    (window,) = monitor.update(model.details(images))
    assert window.estimate.accuracy == pytest.approx(model.estimate_accuracy([images]).accuracy, abs=1e-5)


def test_a_monitor_says_that_an_array_without_features_is_taken_for_inputs(model, new):
    monitor = densecal.Monitor(model, window=300, alarm_below=0.2)
    with torch.inference_mode():
        details = model.details(new[0])
    logits, distances = details.logits.numpy(), torch.stack(list(details.distances.values()), dim=1).numpy()
    with pytest.raises(TypeError, match=r"holds its inputs.*array of shape \(300, 4\).*logits with their features="):
        monitor.update(logits)
    (window,) = monitor.update(logits, distances=distances)
    assert window.estimate.accuracy == pytest.approx(model.estimate_accuracy([new[0]]).accuracy, abs=1e-5)


def test_batches_without_samples_are_skipped(model, new):
    images, labels = new
    none = (images[:0], labels[:0])
    with_gaps = [none, (images[:100], labels[:100]), none, (images[100:], labels[100:])]
    assert model.estimate_accuracy(with_gaps).accuracy == model.estimate_accuracy([images]).accuracy
    assert model.evaluate(with_gaps).values == model.evaluate([(images, labels)]).values
