"""A model calibrated with a token mask says so when it is called without one."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import densecal  # noqa: E402
from densecal.errors import CalibrationWarning  # noqa: E402
from densecal.torch import CalibratedModel, calibrate  # noqa: E402
from densecal.torch.extraction import Extraction  # noqa: E402

MESSAGE = "calibrated with a token mask, but this call has none, so the features of embedding include padding"


class Text(nn.Module):
    """Finds the padding itself if it is given no mask, so its logits do not depend on the mask."""

    def __init__(self):
        super().__init__()
        self.embedding, self.hidden, self.out = nn.Embedding(20, 6), nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, words, attention_mask=None):
        mask = (words != 0) if attention_mask is None else attention_mask
        weights = mask[:, :, None].float()
        mean = (self.embedding(words) * weights).sum(dim=1) / weights.sum(dim=1)
        return self.out(torch.relu(self.hidden(mean)))


def texts(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(7) < torch.randint(2, 8, (count, 1), generator=generator)
    words = torch.randint(1, 20, (count, 7), generator=generator) * mask
    return {"words": words, "attention_mask": mask.long(), "labels": torch.arange(count) % 3}


def without_mask(batch):
    return {name: value for name, value in batch.items() if name != "attention_mask"}


def layouts(batch, layers=("embedding", "hidden")):
    extraction = Extraction(Text().eval(), list(layers))
    extraction.outputs([batch], progress=False)
    return extraction.layouts


@pytest.fixture
def model():
    torch.manual_seed(0)
    dac = densecal.DAC(densecal.FeatureBank({"embedding": torch.randn(30, 6), "hidden": torch.randn(30, 5)}, k=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dac.fit(torch.randn(40, 3), torch.arange(40) % 3, distances=torch.rand(40, 2))
    dac.weights_, dac.bias_ = np.array([1.0, 1.0]), 0.5
    return CalibratedModel(Text(), dac, layouts(texts(8)))


@pytest.mark.filterwarnings("ignore::densecal.errors.CalibrationWarning")
def test_only_layers_with_tokens_are_marked_and_only_if_there_is_a_mask():
    assert [layout.masked for layout in layouts(texts(8)).values()] == [True, False]
    assert [layout.masked for layout in layouts(without_mask(texts(8))).values()] == [False, False]


def test_a_call_without_the_mask_warns_once(model):
    batch = without_mask(texts(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(batch["words"], texts(8)["attention_mask"])
    with pytest.warns(CalibrationWarning, match=MESSAGE) as caught:
        model(batch["words"])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(batch["words"])


def test_a_saved_model_and_a_loader_without_the_mask_warn_too(model, tmp_path):
    model.save(tmp_path / "text.densecal")
    loaded = CalibratedModel.load(tmp_path / "text.densecal", model.classifier)
    with pytest.warns(CalibrationWarning, match=MESSAGE):
        loaded.evaluate([without_mask(texts(30))])


def test_calibrate_remembers_the_mask():
    torch.manual_seed(0)
    train, val = texts(200), texts(100, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = calibrate(Text(), [train], [val], method="dac", layers=["embedding"], shifted=[[val]], progress=False)
    assert all(layout.masked for layout in model.layouts.values())


def test_a_compiled_or_exported_model_does_not_warn(model):
    words = texts(8)["words"]
    with pytest.warns(CalibrationWarning, match=MESSAGE):
        expected = copy.deepcopy(model)(words)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", CalibrationWarning)
        compiled = torch.compile(model, backend="eager", fullgraph=True)(words)
        exported = [torch.export.export(model, (words,), strict=strict).module()(words) for strict in (True, False)]
    for answer in (compiled, *exported):
        torch.testing.assert_close(answer, expected)
