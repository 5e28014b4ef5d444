"""Evaluation and report of a calibrated model, straight from loaders."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from densecal.calibrators.dac import DAC  # noqa: E402
from densecal.calibrators.temperature import TemperatureScaling  # noqa: E402
from densecal.errors import CalibrationWarning  # noqa: E402
from densecal.metrics import expected_calibration_error  # noqa: E402
from densecal.torch import CalibratedModel  # noqa: E402


def test_an_evaluation_has_the_errors_of_the_models_own_probabilities(trained, measured):
    model = CalibratedModel(trained[0], measured[0], measured[1])
    images, labels = trained[2]
    table = model.evaluate({"clean": [(images, labels)], "fog-3": [(2 * images[:400], labels[:400])]})
    assert [str(condition) for condition in table.conditions] == ["clean", "fog, severity 3"]
    with torch.inference_mode():
        found = [model(images), model(2 * images[:400])]
    expected = [expected_calibration_error(one, labels[: len(one)]) for one in found]
    assert table.values["dac+ets", "ece"] == pytest.approx(expected, abs=1e-5)
    unnamed = model.evaluate({"fog-3": [(images, labels)]}, severity_from_names=False)
    assert str(unnamed.conditions[0]) == "fog-3"


def test_sets_of_unknown_severity_are_not_averaged_with_clean_data_in_silence(trained, measured):
    model = CalibratedModel(trained[0], measured[0], measured[1])
    sets = {"clean": [trained[2]], "abroad": [trained[2]]}
    with pytest.warns(CalibrationWarning, match=r"clean, abroad have no severity, .* natural=\['abroad'\]"):
        model.evaluate(sets)
    table = model.evaluate(sets, natural=["abroad"])
    assert [str(condition) for condition in table.conditions] == ["clean", "abroad, natural shift"]
    with pytest.raises(ValueError, match="natural must name loaders, clean, abroad, got abrod"):
        model.evaluate(sets, natural=["abrod"])


def test_a_report_is_written_from_a_loader(trained, measured, tmp_path):
    model = CalibratedModel(trained[0], measured[0], measured[1])
    table = model.report([trained[2]], tmp_path / "report.html", title="Ours")
    assert str(table.conditions[0]) == "test"
    assert "<h1>Ours</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_shift_fit_is_judged_against_temperature_scaling(trained, measured, shift_fitted, tmp_path):
    model = CalibratedModel(trained[0], shift_fitted, measured[1])
    table = model.report([trained[2]], tmp_path / "report.html")
    assert table.methods == ("uncalibrated", "dac-shift", "ts")
    val = measured[2][1]
    expected = TemperatureScaling().fit(val.logits, val.labels).predict_proba(val.logits)
    found = table.values["ts", "ece"][0]
    assert found == pytest.approx(expected_calibration_error(expected, val.labels), abs=1e-4)
    assert "temperature scaling" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_dac_that_measures_no_layer_is_evaluated_too(trained, measured):
    _, _, (train, val) = measured
    from densecal.density.bank import FeatureBank

    dac = DAC(FeatureBank(train.features, k=10)).fit(val.logits, val.labels, features=val.features)
    dac.weights_ = 0 * dac.weights_
    table = CalibratedModel(trained[0], dac, measured[1]).evaluate([trained[2]])
    assert table.methods == ("uncalibrated", "dac")


def test_a_stream_of_unknown_length_is_read_with_progress(trained, measured):
    class Stream(IterableDataset):
        def __iter__(self):
            yield from zip(*trained[2], strict=True)

    model = CalibratedModel(trained[0], measured[0], measured[1])
    table = model.evaluate(DataLoader(Stream(), batch_size=100), progress=True)
    assert table.values["dac+ets", "ece"] == model.evaluate([trained[2]]).values["dac+ets", "ece"]


def test_loaders_without_labels_are_rejected_with_arguments_that_exist(trained, measured, tmp_path):
    model, images = CalibratedModel(trained[0], measured[0], measured[1]), trained[2][0]
    message = r"The loader 'test' yields no labels.*call estimate_accuracy.*or pass batch_fn"
    with pytest.raises(ValueError, match=message):
        model.evaluate([images])
    with pytest.raises(ValueError, match=message):
        model.report([images], tmp_path / "report.html")


def test_loaders_without_names_or_after_the_path_are_rejected(trained, measured, tmp_path):
    model = CalibratedModel(trained[0], measured[0], measured[1])
    loader = DataLoader(list(zip(*trained[2], strict=True)), batch_size=100)
    with pytest.raises(TypeError, match="Several loaders need names"):
        model.evaluate([loader, loader])
    with pytest.raises(TypeError, match=r"The loaders come before the path: report\(loaders, "):
        model.report(str(tmp_path / "report.html"), loader)
