"""One ONNX graph for classifier and calibration, with the same probabilities in onnxruntime."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402

import densecal  # noqa: E402
from densecal.calibrators.registry import METHODS, Chain  # noqa: E402
from densecal.torch import CalibratedModel, export_onnx  # noqa: E402
from densecal.torch.features.layout import Layout  # noqa: E402
from densecal.torch.fingerprint import weights_hash  # noqa: E402

PRESERVING = [name for name, method in METHODS.items() if method.accuracy_preserving and name != "dac"]


def run(path, *inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    outputs = session.run(["probabilities"], dict(zip(names, (value.numpy() for value in inputs), strict=True)))
    return outputs[0]


@pytest.fixture(scope="module")
def rescaled(measured):
    chain, _, (_, val) = measured
    return chain.stages[0].transform(val.logits, features=val.features), val.labels


@pytest.mark.parametrize("name", PRESERVING)
def test_dac_and_every_accuracy_preserving_method_run_in_onnxruntime(name, trained, measured, rescaled, tmp_path):
    chain = Chain(measured[0].stages[0], METHODS[name]().fit(*rescaled))
    model = CalibratedModel(trained[0], chain, measured[1])
    images = trained[2][0]
    export_onnx(model, (images[:3], trained[2][1][:3]), tmp_path / "model.onnx")
    with torch.inference_mode():
        expected = model(images)
    got = run(tmp_path / "model.onnx", images)
    # The steep pieces of an isotonic map or a spline amplify rounding errors of the logits.
    np.testing.assert_allclose(got, expected, atol=5e-4 if name in {"irm", "spl"} else 1e-4)
    assert np.mean(np.abs(got - expected.numpy()) > 1e-4) < 1e-3
    np.testing.assert_array_equal(got.argmax(axis=1), expected.argmax(dim=1), "the predicted class stays")
    np.testing.assert_allclose(run(tmp_path / "model.onnx", images[:1]), expected[:1], atol=1e-4)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_a_classifier_that_returns_a_tuple_is_exported_with_any_number_of_samples(trained, measured, tmp_path):
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = trained[0]

        def forward(self, images):
            logits = self.body(images)
            return logits, logits.detach().repeat(1, 2)

    model = CalibratedModel(TwoHeads().eval(), measured[0].stages[1], {})
    export_onnx(model, trained[2][0][:3], tmp_path / "model.onnx")
    with torch.inference_mode():
        expected = model(trained[2][0][:7])
    np.testing.assert_allclose(run(tmp_path / "model.onnx", trained[2][0][:7]), expected, atol=1e-4)


def test_the_metadata_say_what_the_graph_is(trained, measured, tmp_path):
    model = CalibratedModel(trained[0], measured[0], measured[1])
    with pytest.raises(TypeError, match="The example comes before the path"):
        export_onnx(model, tmp_path / "model.onnx", trained[2][0][:3])
    export_onnx(model, trained[2][0][:3], tmp_path / "model.onnx", check=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    found = {
        name.removeprefix("densecal."): value for name, value in session.get_modelmeta().custom_metadata_map.items()
    }
    assert (found["method"], found["version"], found["classifier"]) == ("dac+ets", densecal.__version__, "Sequential")
    assert json.loads(found["layers"]) == list(model.layers)
    assert datetime.now(UTC) - datetime.fromisoformat(found["created"]) < timedelta(minutes=10)
    assert found["classifier_sha256"] == weights_hash(copy.deepcopy(trained[0]))
    changed = copy.deepcopy(trained[0])
    changed[0].bias.data[0] += 1e-3
    assert found["classifier_sha256"] != weights_hash(changed)


@pytest.mark.parametrize("name", ["irm", "spl"])
def test_the_same_logits_have_the_same_probabilities_and_the_same_class_in_onnxruntime(name, tmp_path):
    generator = torch.Generator().manual_seed(0)
    few = 3 * torch.randn(60, 4, generator=generator)
    fitted = METHODS[name]().fit(few.numpy(), few.argmax(dim=1).numpy())
    logits = 3 * torch.randn(2000, 4, generator=generator)
    model = CalibratedModel(nn.Identity(), fitted, {})
    export_onnx(model, logits[:5], tmp_path / "model.onnx")
    got = run(tmp_path / "model.onnx", logits)
    np.testing.assert_allclose(got, model(logits), atol=2e-6)
    np.testing.assert_array_equal(got.argmax(axis=1), logits.argmax(dim=1), "the plateaus of a map tie classes")


class ReadsTokenByToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.cell, self.out = nn.Embedding(50, 8), nn.GRUCell(8, 8), nn.Linear(8, 3)

    def forward(self, ids):
        state = torch.zeros(ids.shape[0], 8)
        for token in self.embedding(ids).unbind(dim=1):
            state = self.cell(token, state)
        return self.out(state)


class ReadsAllAtOnce(ReadsTokenByToken):
    def forward(self, ids):
        return self.out(self.embedding(ids).mean(dim=1))


def test_texts_of_other_lengths_are_answered_as_the_model_does_or_refused(tmp_path):
    torch.manual_seed(0)
    fitted = METHODS["ts"]().fit([[4.0, 0.0, 0.0]] * 4, [0, 0, 0, 1])
    ids, longer = torch.randint(50, (4, 6)), torch.randint(50, (5, 9))
    export_onnx(CalibratedModel(ReadsTokenByToken(), fitted, {}), ids, tmp_path / "fixed.onnx")
    with pytest.raises(Exception, match="Got: 9 Expected: 6"):
        run(tmp_path / "fixed.onnx", longer)
    model = CalibratedModel(ReadsAllAtOnce(), fitted, {})
    export_onnx(model, ids, tmp_path / "free.onnx")
    np.testing.assert_allclose(run(tmp_path / "free.onnx", longer), model(longer).detach(), atol=1e-6)


def test_images_of_other_sizes_are_rejected_by_the_graph_but_not_by_a_program_with_free_sizes(tmp_path):
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    dac = densecal.DAC(densecal.FeatureBank({"1": torch.rand(30, 8)}, k=3))
    dac.fit(torch.randn(40, 3), torch.arange(40) % 3, distances=torch.rand(40, 1))
    dac.weights_, dac.bias_ = np.array([1.0]), 0.5
    model = CalibratedModel(classifier, dac, {"1": Layout("first")})
    images, larger = torch.randn(4, 3, 8, 8), torch.randn(5, 3, 12, 9)
    export_onnx(model, images, tmp_path / "fixed.onnx")
    with pytest.raises(Exception, match="Got: 12 Expected: 8"):
        run(tmp_path / "fixed.onnx", larger)
    free = {0: torch.export.Dim("batch"), 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    with torch.no_grad():
        program = torch.export.export(model, (images,), dynamic_shapes=(free,))
        torch.testing.assert_close(program.module()(larger), model(larger))


def test_a_shift_fitted_dac_runs_in_onnxruntime(trained, measured, shift_fitted, tmp_path):
    model = CalibratedModel(trained[0], shift_fitted, measured[1])
    export_onnx(model, trained[2][0][:3], tmp_path / "model.onnx")
    with torch.inference_mode():
        expected = model(trained[2][0])
    np.testing.assert_allclose(run(tmp_path / "model.onnx", trained[2][0]), expected, atol=1e-4)


def test_centres_take_their_float16_size_in_the_file(tmp_path):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = nn.Linear(8, 600), nn.Linear(600, 4)

        def forward(self, x):
            return self.out(self.body(x).relu())

    torch.manual_seed(0)
    network = Wide().eval()
    train = {"body": torch.randn(4000, 600)}
    logits, labels = torch.randn(80, 4), torch.arange(80) % 4
    dac = densecal.DAC(densecal.FeatureBank(train)).fit(logits, labels, features={"body": torch.randn(80, 600)})
    dac.weights_ = np.array([0.3])
    plain = CalibratedModel(network, METHODS["ts"]().fit(logits, labels), {})
    sizes = []
    for number, model in enumerate((plain, CalibratedModel(network, dac, {"body": Layout("last")}))):
        export_onnx(model, torch.randn(3, 8), tmp_path / f"{number}.onnx")
        sizes.append((tmp_path / f"{number}.onnx").stat().st_size)
    assert sizes[1] - sizes[0] < 1.1 * 2 * 400 * 600


def test_a_large_bank_and_a_batch_of_one_as_the_example_export_too(trained, measured, tmp_path):
    model = CalibratedModel(trained[0], measured[0], measured[1])
    model.head.half()
    export_onnx(model, trained[2][0][:1], tmp_path / "model.onnx")
    with torch.inference_mode():
        expected = model(trained[2][0])
    np.testing.assert_allclose(run(tmp_path / "model.onnx", trained[2][0]), expected, atol=1e-4)
    assert model.head.search.bank.dtype == torch.float16, "the model itself is unchanged"


def test_a_model_in_half_precision_exports_in_full(trained, measured, tmp_path):
    model = CalibratedModel(copy.deepcopy(trained[0]), measured[0], measured[1]).half()
    export_onnx(model, trained[2][0][:3].half(), tmp_path / "model.onnx")
    assert run(tmp_path / "model.onnx", trained[2][0]).shape == (len(trained[2][0]), 4)


def test_a_model_with_named_inputs_exports(measured, tmp_path):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.out = nn.Embedding(20, 6), nn.Linear(6, 4)

        def forward(self, words, attention_mask):
            mask = attention_mask[:, :, None].float()
            return {"logits": self.out((self.embedding(words) * mask).sum(dim=1) / mask.sum(dim=1))}

    scaling = METHODS["ts"]().fit(measured[2][1].logits, measured[2][1].labels)
    model = CalibratedModel(Named(), scaling, {})
    batch = {"words": torch.randint(20, (3, 5)), "attention_mask": torch.ones(3, 5, dtype=torch.long)}
    export_onnx(model, batch, tmp_path / "text.onnx")
    got = run(tmp_path / "text.onnx", *batch.values())
    np.testing.assert_allclose(got, model(**batch).detach(), atol=1e-5)


def test_a_classifier_whose_forward_takes_a_dict_exports_with_batch_fn(measured, tmp_path):
    class TakesOneDict(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(6, 4)

        def forward(self, inputs):
            return self.out(inputs["x"] * inputs["scale"])

    scaling = METHODS["ts"]().fit(measured[2][1].logits, measured[2][1].labels)
    model = CalibratedModel(TakesOneDict(), scaling, {})
    inputs = {"x": torch.randn(3, 6), "scale": torch.rand(3, 1)}
    batch = {"inputs": inputs, "labels": torch.tensor([0, 1, 2])}
    path = tmp_path / "dict.onnx"
    export_onnx(model, batch, path, batch_fn=lambda batch: ((batch["inputs"],), {}, batch["labels"]))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [(entry.name, entry.shape) for entry in session.get_inputs()] == [
        ("x", ["batch", 6]),
        ("scale", ["batch", 1]),
    ]
    np.testing.assert_allclose(run(path, *inputs.values()), model(inputs).detach(), atol=1e-5)


@pytest.mark.parametrize("name", [name for name in METHODS if not METHODS[name].accuracy_preserving])
def test_a_method_that_cannot_be_exported_says_so(name, trained, measured, tmp_path):
    val = measured[2][1]
    model = CalibratedModel(trained[0], METHODS[name]().fit(val.logits, val.labels), {})
    with pytest.raises(ValueError, match=rf"'{name}'\) cannot be exported to ONNX: it may change the predicted class"):
        export_onnx(model, trained[2][0][:2], tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_graph_that_disagrees_is_not_left_behind(trained, measured, tmp_path, monkeypatch):
    model = CalibratedModel(trained[0], copy.deepcopy(measured[0]), measured[1])
    monkeypatch.setattr("densecal.torch.export.TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="differ from the model's by up to"):
        export_onnx(model, trained[2][0][:2], tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_classifier_that_bins_its_inputs_is_exported(tmp_path):
    class Binned(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("edges", torch.linspace(-2, 2, 7))
            self.scores = nn.Embedding(8, 3)

        def forward(self, x):
            return self.scores(torch.searchsorted(self.edges, x, side="right", out_int32=True)).mean(dim=1)

    torch.manual_seed(0)
    classifier, inputs = Binned().eval(), torch.randn(300, 5)
    inputs[:7, 0] = classifier.edges
    with torch.inference_mode():
        logits = classifier(inputs)
    calibrator = densecal.TemperatureScaling().fit(logits.numpy(), torch.randint(3, (300,)).numpy())
    model = CalibratedModel(classifier, calibrator, {})
    export_onnx(model, inputs[:7], tmp_path / "model.onnx")
    with torch.inference_mode():
        np.testing.assert_allclose(run(tmp_path / "model.onnx", inputs), model(inputs), atol=1e-5)
