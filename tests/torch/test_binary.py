"""Binary classifiers with one logit: read, calibrated and served as two classes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from densecal.torch import calibrate, extract, select_layers  # noqa: E402


class OneLogit(nn.Module):
    def __init__(self, squeezed: bool) -> None:
        super().__init__()
        self.hidden, self.out, self.squeezed = nn.Linear(4, 8), nn.Linear(8, 1), squeezed

    def forward(self, x):
        logit = self.out(torch.relu(self.hidden(x)))
        return logit.squeeze(-1) if self.squeezed else logit


@pytest.mark.parametrize("squeezed", [True, False])
def test_one_logit_z_is_the_two_logits_0_and_z(squeezed):
    torch.manual_seed(0)
    model, x = OneLogit(squeezed).eval(), torch.randn(200, 4)
    labels = (model(x).flatten() + torch.randn(200) > 0).float()
    batch = (x, labels if squeezed else labels[:, None])
    assert select_layers(model, batch) == ("hidden", "logits")
    outputs = extract(model, [batch], progress=False)
    expected = model(x).detach().flatten()
    np.testing.assert_allclose(outputs.logits, torch.stack([torch.zeros(200), expected], dim=1), atol=1e-6)
    calibrated = calibrate(model, None, [batch], method="ts", progress=False)
    with torch.inference_mode():
        probabilities = calibrated(x)
    temperature = calibrated.calibrator.temperature_
    np.testing.assert_allclose(probabilities[:, 1], torch.sigmoid(expected / temperature), atol=1e-5)


def test_an_output_without_a_class_axis_is_rejected():
    with pytest.raises(ValueError, match="one logit of a binary classifier, got \\(2, 3, 4\\)"):
        extract(nn.Identity(), [torch.zeros(2, 3, 4)], "logits", progress=False)


def test_the_output_of_a_sigmoid_is_no_logit():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    sharp = nn.Sequential(OneLogit(squeezed=False), nn.Sigmoid()).eval()
    with pytest.raises(ValueError, match="as after a sigmoid.*BCEWithLogitsLoss"):
        calibrate(sharp, None, [(x, x[:, 0] > 0)], method="ts", progress=False)


@pytest.mark.parametrize("keepdim", [True, False])
def test_class_indices_are_no_logits(keepdim):
    class Predicts(nn.Linear):
        def forward(self, x):
            return super().forward(x).argmax(dim=1, keepdim=keepdim)

    x = torch.randn(64, 4)
    with pytest.raises(TypeError, match=r"integers of shape \(\d,( 1)?\), which look like class indices"):
        calibrate(Predicts(4, 10).eval(), None, [(x, torch.arange(64) % 10)], method="ts", progress=False)


def test_labels_of_more_classes_than_one_logit_has_say_how_the_output_was_read():
    x = torch.randn(64, 4)
    with pytest.raises(ValueError, match=r"from 0 to 9.*read as the logit of a binary classifier, so there are two"):
        calibrate(OneLogit(squeezed=True).eval(), None, [(x, torch.arange(64) % 10)], method="ts", progress=False)
