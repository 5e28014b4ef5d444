"""A classifier that is trained further after its calibration is noticed, and not saved as if it were calibrated."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from densecal import Monitor, TemperatureScaling  # noqa: E402
from densecal.errors import ArtefactError, CalibrationWarning  # noqa: E402
from densecal.torch import CalibratedModel, calibrate, export_onnx  # noqa: E402

CHANGED = "The classifier has changed since it was calibrated"


@pytest.fixture
def model(trained, measured):
    return CalibratedModel(copy.deepcopy(trained[0]), measured[0], measured[1])


def train_further(model, batch):
    optimiser = torch.optim.SGD(model.classifier.parameters(), lr=1e-2)
    nn.functional.cross_entropy(model.classifier(batch[0]), batch[1]).backward()
    optimiser.step()


def test_a_classifier_trained_further_is_not_saved(model, trained, tmp_path):
    train_further(model, trained[1])
    for one in (model, copy.deepcopy(model)):
        with pytest.raises(ArtefactError, match=rf"{CHANGED}.*weights of '0.weight' differ.*check_classifier=False"):
            one.save(tmp_path / "model.densecal")
    assert not list(tmp_path.iterdir())
    model.save(tmp_path / "model.densecal", check_classifier=False)
    CalibratedModel.load(tmp_path / "model.densecal", model.classifier).save(tmp_path / "again.densecal")


def test_a_classifier_trained_further_is_not_exported(model, trained, tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    train_further(model, trained[1])
    example = trained[1][0][:4]
    with pytest.raises(ArtefactError, match=CHANGED):
        export_onnx(model, example, tmp_path / "model.onnx")
    export_onnx(model, example, tmp_path / "model.onnx", check_classifier=False)


def test_a_model_from_calibrate_or_a_file_knows_its_classifier(trained, tmp_path):
    classifier, _, val = copy.deepcopy(trained)
    model = calibrate(classifier, None, [val], method="ts", progress=False)
    model.save(tmp_path / "model.densecal")
    loaded = CalibratedModel.load(tmp_path / "model.densecal", classifier)
    train_further(model, trained[1])
    for one in (model, loaded):
        with pytest.raises(ArtefactError, match=CHANGED):
            one.save(tmp_path / "again.densecal")


def test_an_evaluation_of_a_classifier_trained_further_warns(model, trained):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.evaluate([trained[1]])
    train_further(model, trained[1])
    for _ in range(2):
        with pytest.warns(CalibrationWarning, match=f"{CHANGED}.*Calibrate it again"):
            model.evaluate([trained[1]])


def test_an_adapted_model_remembers_the_calibrated_classifier(trained, measured, shift_fitted, tmp_path):
    model = CalibratedModel(copy.deepcopy(trained[0]), shift_fitted, measured[1])
    train_further(model, trained[1])
    with pytest.warns(CalibrationWarning, match=CHANGED):
        model.estimate_accuracy([trained[2][0]])
    with pytest.warns(CalibrationWarning, match=CHANGED):
        Monitor(model, window=100, alarm_below=0.05).update(trained[2][0][:10])
    with pytest.warns(CalibrationWarning, match=CHANGED):
        adapted = model.adapted_to([trained[2][0]])
    with pytest.raises(ArtefactError, match=CHANGED):
        adapted.save(tmp_path / "adapted.densecal")


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.bfloat16, nn.Module.double])
def test_another_precision_is_no_change(model, trained, tmp_path, change):
    change(model.classifier)
    model.save(tmp_path / "model.densecal")
    # The file describes the weights as they were calibrated, so it belongs to them in full precision as well.
    assert CalibratedModel.load(tmp_path / "model.densecal", trained[0]).layers == model.layers


def test_a_state_dict_brings_the_record_of_its_classifier(model, trained, measured, tmp_path):
    other = copy.deepcopy(trained[0])
    for layer in other:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    other = CalibratedModel(other, measured[0], measured[1])
    other.load_state_dict(model.state_dict())
    other.save(tmp_path / "model.densecal")
    other.evaluate([trained[2]])
    train_further(other, trained[1])
    with pytest.raises(ArtefactError, match=CHANGED):
        other.save(tmp_path / "again.densecal")


@pytest.mark.parametrize(
    "buffer", [torch.eye(3).to_sparse(), torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)]
)
def test_a_classifier_with_a_sparse_or_quantised_buffer_is_calibrated(buffer, tmp_path):
    classifier = nn.Linear(4, 3)
    classifier.register_buffer("table", buffer)
    batch = torch.randn(60, 4), torch.arange(60) % 3
    model = calibrate(classifier, None, [batch], method="ts", progress=False)
    model.evaluate([batch])
    model.save(tmp_path / "model.densecal")
    CalibratedModel.load(tmp_path / "model.densecal", classifier)


def test_a_model_on_the_meta_device_is_filled_by_a_state_dict(tmp_path):
    scaling = TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    filled = CalibratedModel(nn.Linear(3, 2), scaling, {})
    with torch.device("meta"):
        empty = nn.Linear(3, 2)
    model = CalibratedModel(empty, scaling, {})
    model.load_state_dict(filled.state_dict(), assign=True)
    inputs = torch.randn(2, 3)
    assert torch.equal(model(inputs), filled(inputs))
    model.save(tmp_path / "model.densecal")


def test_a_model_saved_in_half_precision_is_loaded_with_the_saved_weights(model, trained, tmp_path):
    half = copy.deepcopy(model).half()
    half.save(tmp_path / "half.densecal")
    again = copy.deepcopy(trained[0])
    again.load_state_dict(half.classifier.state_dict())
    loaded = CalibratedModel.load(tmp_path / "half.densecal", again.float())
    assert loaded.head.n_classes == model.head.n_classes
