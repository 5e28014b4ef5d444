from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecal.errors import CalibrationWarning  # noqa: E402
from densecal.torch import calibrate  # noqa: E402
from densecal.torch.batches import split_batches  # noqa: E402
from densecal.torch.perturbed import PerturbedLoader, PixelRange  # noqa: E402

MEAN, STD = torch.tensor([0.5, 0.4, 0.3])[:, None, None], torch.tensor([0.2, 0.25, 0.3])[:, None, None]


@pytest.fixture
def loader():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (48, 3, 16, 16), generator=generator, dtype=torch.uint8)
    pixels[0], pixels[1] = 0, 255
    images = (pixels / 255 - MEAN) / STD
    labels = torch.arange(48) % 4
    return [(images[i : i + 16], labels[i : i + 16]) for i in range(0, 48, 16)]


class SmallNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, images):
        return self.fc(self.conv(images).relu().mean(dim=(2, 3)))


def perturbed_copy(loader, seed, batch_fn=None):
    split = partial(split_batches, model=SmallNet(), batch_fn=batch_fn)
    return PerturbedLoader(loader, split, PixelRange.of(split(loader)), seed)


def test_normalised_images_are_perturbed_as_their_bytes_would_be(loader):
    from densecal.shift import perturb

    images = torch.cat([images for images, _ in loader])
    pixels = ((images * STD + MEAN) * 255).round().to(torch.uint8)
    expected = (perturb(pixels, seed=5) / 255 - MEAN) / STD
    perturbed = torch.cat([batch.args[0] for batch in perturbed_copy(loader, seed=5)])
    assert (perturbed - expected).abs().max() < 1e-4
    assert (perturbed - images).abs().mean() > 0.1


def test_labels_stay_and_every_pass_gives_the_same(loader):
    copy = perturbed_copy(loader, seed=1)
    for first, second, (_, labels) in zip(list(copy), list(copy), loader, strict=True):
        assert torch.equal(first.args[0], second.args[0])
        assert torch.equal(first.labels, labels)


def test_images_in_any_batch_are_perturbed_through_batch_fn(loader):
    named = [{"image": images, "target": labels} for images, labels in loader]
    got = list(perturbed_copy(named, 2, lambda batch: ((), {"images": batch["image"]}, batch["target"])))
    for batch, expected in zip(got, perturbed_copy(loader, seed=2), strict=True):
        assert torch.equal(batch.kwargs["images"], expected.args[0])
        assert torch.equal(batch.labels, expected.labels)


def test_calibrate_with_perturb_gives_a_shift_fitted_model_that_saves_and_loads(loader, tmp_path):
    net = SmallNet().eval()
    model = calibrate(net, list(loader), loader, perturb=True, k=3)
    assert model.calibrator.shift_fitted
    assert "144 shifted and 48 clean samples" in model.choices["shift fit"]
    images = loader[0][0]
    with torch.inference_mode():
        probabilities = model(images)
        assert torch.equal(probabilities.argmax(1), net(images).argmax(1))
        model.save(tmp_path / "model.densecal")
        again = type(model).load(tmp_path / "model.densecal", net)(images)
    np.testing.assert_allclose(again.numpy(), probabilities.numpy(), atol=1e-6)


def test_loaders_of_shifted_data_serve_models_that_take_no_images():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x = torch.randn(90, 4)
    y = net(x).argmax(1)
    y[::5] = (y[::5] + 1) % 3
    model = calibrate(net, [(x, y)], [(x, y)], shifted=[[(x * 3, y)]], k=5)
    assert model.calibrator.shift_fitted
    with pytest.raises(ValueError, match="perturb=True needs images.*shifted="):
        calibrate(net, [(x, y)], [(x, y)], perturb=True, k=5)
    with pytest.raises(ValueError, match="yields no labels"):
        calibrate(net, [(x, y)], [(x, y)], shifted=[[x]], k=5)
    with pytest.raises(ValueError, match="perturb and shifted require a dac stage"):
        calibrate(net, None, [(x, y)], method="ts", shifted=[[(x, y)]])


def test_images_are_perturbed_by_default_unless_a_method_is_named(loader):
    net = SmallNet().eval()
    assert calibrate(net, list(loader), loader, k=3).calibrator.shift_fitted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for options in ({"method": "dac"}, {"perturb": False}):
            plain = calibrate(net, list(loader), loader, k=3, **options).calibrator
            dac = plain.stages[0] if hasattr(plain, "stages") else plain
            assert not dac.shift_fitted


def test_batches_without_samples_do_not_change_a_calibration(loader):
    none = (loader[0][0][:0], loader[0][1][:0])
    with_gaps = [none, loader[0], none, *loader[1:]]
    net, images = SmallNet().eval(), loader[0][0]
    expected = calibrate(net, list(loader), loader, k=3)(images)
    assert torch.equal(calibrate(net, list(with_gaps), with_gaps, k=3)(images), expected)


def test_an_outlier_that_leaves_the_other_images_without_contrast_is_pointed_out(loader):
    images = torch.cat([images for images, _ in loader])
    split = partial(split_batches, model=SmallNet())
    dark = torch.tensor([0, 1, 0, 1, 0, 255], dtype=torch.uint8).reshape(3, 1, 1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PixelRange.of(split([images, images.half()]))
        PixelRange.of(split([dark]))  # Bytes need no range.
    images[20, 1, 3, 3] = -1000
    with pytest.warns(CalibrationWarning, match=r"Image 20 of val_loader has values far outside.*clip"):
        found = PixelRange.of(split(images.split(16)))
    assert found.lowest.flatten().tolist() == images.amin(dim=(0, 2, 3)).tolist()
    assert found.highest.flatten().tolist() == images.amax(dim=(0, 2, 3)).tolist()


def test_a_list_names_the_kinds_of_perturbations(loader, monkeypatch):
    from densecal.shift import perturb
    from densecal.torch import perturbed

    used = []
    monkeypatch.setattr(
        perturbed, "perturb", lambda *a, kinds, **k: used.append(kinds) or perturb(*a, kinds=kinds, **k)
    )
    model = calibrate(SmallNet().eval(), list(loader), loader, perturb=["translate", "gamma"], k=3)
    assert model.calibrator.shift_fitted
    assert set(used) == {("translate", "gamma")}
    assert model.choices["perturbations"] == "translate, gamma"
    with pytest.raises(ValueError, match=r"a list of kinds, .*, got 'gamma'"):
        calibrate(SmallNet().eval(), list(loader), loader, perturb="gamma")
    with pytest.raises(ValueError, match=r"a list of kinds, .*, got \[\]"):
        calibrate(SmallNet().eval(), list(loader), loader, perturb=[])
    with pytest.raises(ValueError, match="mirrored"):
        calibrate(SmallNet().eval(), list(loader), loader, perturb=["mirrored"])


def test_an_iterator_cannot_be_read_again(loader):
    with pytest.raises(ValueError, match="reads val_loader several times"):
        calibrate(SmallNet().eval(), loader, iter(loader), perturb=True, k=3)
