"""ImageNet networks: compact logits, Keras's weights, and the way from image files to the page."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import batch_norm, conv2d, linear, max_pool2d

from densecal.metrics import brier_score, expected_calibration_error, negative_log_likelihood
from densecal.shift.datasets.imagenet import IMAGENET_WNIDS
from reproduction.imagenet import judge as judging
from reproduction.imagenet import measure as measuring
from reproduction.imagenet.compact_logits import N_CLASSES, compact, expand
from reproduction.imagenet.images import crop_all, read_parts
from reproduction.imagenet.networks import ImageNetNetwork, keras_arrays, keras_resnet50
from reproduction.imagenet.page import summary
from reproduction.measuring.measurements import MeasuredSet, Measurements


def test_compact_logits_keep_prediction_label_and_metrics():
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(N_CLASSES, (200,), generator=draw)
    logits = torch.randn(200, N_CLASSES, generator=draw)
    logits[torch.arange(200), labels] += 4 * torch.rand(200, generator=draw) * (torch.arange(200) % 2)
    logits[0] = 1.0  # all are tied
    found = expand(MeasuredSet(*_with_distances(*compact(logits, labels))))
    assert np.array_equal(found.labels, labels)
    assert np.array_equal(found.logits.argmax(axis=1), logits.argmax(dim=1))
    for temperature in (0.5, 1.0, 3.0):
        whole, back = ((torch.as_tensor(z) / temperature).softmax(dim=1) for z in (logits, found.logits))
        for metric in (expected_calibration_error, brier_score, negative_log_likelihood):
            assert metric(back, labels) == pytest.approx(metric(whole, labels), abs=5e-3)


def _with_distances(below, about):
    return below, np.zeros((len(below), 1, 1)), about


def _keras_forward(arrays, x):
    """Return the logits of Keras's ResNet-50 (its first version) for BGR input, from its definition."""

    def unit(x, name, norm, stride=1, padding=0):
        kernel = torch.tensor(arrays[f"{name}/kernel"]).permute(3, 2, 0, 1)
        x = conv2d(x, kernel, torch.tensor(arrays[f"{name}/bias"]), stride, padding)
        mean, variance, gamma, beta = (
            torch.tensor(arrays[f"{norm}/{part}"]) for part in ("moving_mean", "moving_variance", "gamma", "beta")
        )
        return batch_norm(x, mean, variance, gamma, beta, eps=1e-3)

    x = max_pool2d(unit(x, "conv1", "bn_conv1", 2, 3).relu(), 3, 2, padding=1)
    for stage, letters in ((2, "abc"), (3, "abcd"), (4, "abcdef"), (5, "abc")):
        for letter in letters:
            name, stride = f"{stage}{letter}_branch", 2 if letter == "a" and stage > 2 else 1
            shortcut = unit(x, f"res{name}1", f"bn{name}1", stride) if letter == "a" else x
            x = unit(x, f"res{name}2a", f"bn{name}2a", stride).relu()
            x = unit(x, f"res{name}2b", f"bn{name}2b", 1, 1).relu()
            x = (unit(x, f"res{name}2c", f"bn{name}2c") + shortcut).relu()
    return linear(x.mean((2, 3)), torch.tensor(arrays["fc1000/kernel"]).T, torch.tensor(arrays["fc1000/bias"]))


def _keras_shapes():
    def unit(name, norm, *shape):
        yield f"{name}/kernel", shape
        yield from ((part, shape[-1:]) for part in (f"{name}/bias", f"{norm}/gamma", f"{norm}/beta"))
        yield from ((f"{norm}/{part}", shape[-1:]) for part in ("moving_mean", "moving_variance"))

    yield from unit("conv1", "bn_conv1", 7, 7, 3, 64)
    inputs = 64
    for stage, letters in ((2, "abc"), (3, "abcd"), (4, "abcdef"), (5, "abc")):
        width = 16 * 2**stage
        for letter in letters:
            name = f"{stage}{letter}_branch"
            if letter == "a":
                yield from unit(f"res{name}1", f"bn{name}1", 1, 1, inputs, 4 * width)
            yield from unit(f"res{name}2a", f"bn{name}2a", 1, 1, inputs, width)
            yield from unit(f"res{name}2b", f"bn{name}2b", 3, 3, width, width)
            yield from unit(f"res{name}2c", f"bn{name}2c", 1, 1, width, 4 * width)
            inputs = 4 * width
    yield from (("fc1000/kernel", (2048, 1000)), ("fc1000/bias", (1000,)))


def test_keras_resnet50_computes_what_keras_computes():
    draw = np.random.default_rng(0)
    arrays = {}
    for name, shape in _keras_shapes():
        scale = np.sqrt(np.prod(shape[:-1]))
        values = draw.standard_normal(shape, np.float32) / np.float32(scale if len(shape) > 1 else 5)
        arrays[name] = np.abs(values) + np.float32(0.5) if name.endswith(("variance", "gamma")) else values
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(
            keras_resnet50(arrays)(images), _keras_forward(arrays, images.flip(1)), rtol=1e-3, atol=1e-3
        )


def test_keras_files_are_read_as_their_manifest_says(tmp_path):
    first, second = np.arange(6, dtype="<f4"), np.arange(2, dtype="<f2")
    weights = [{"name": "a", "shape": [2, 3], "dtype": "float32"}, {"name": "b", "shape": [2], "dtype": "float16"}]
    manifest = [{"paths": ["1.bin", "2.bin"], "weights": weights}]
    (tmp_path / "model.json").write_text(json.dumps({"weightsManifest": manifest}))
    stored = first.tobytes() + second.tobytes()
    (tmp_path / "1.bin").write_bytes(stored[:10])
    (tmp_path / "2.bin").write_bytes(stored[10:])
    found = keras_arrays(tmp_path)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["b"].tolist() == [0, 1]
    (tmp_path / "2.bin").write_bytes(stored[10:] + b"more")
    with pytest.raises(ValueError, match="must hold 28 bytes"):
        keras_arrays(tmp_path)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, stride=2)
        self.last = nn.Linear(8, N_CLASSES)

    def forward(self, images):
        return self.last(self.convolution(images).relu().mean((2, 3)))


@pytest.fixture
def crops(tmp_path):
    draw = np.random.default_rng(0)
    for label in range(12):
        folder = tmp_path / "val" / str(label)
        folder.mkdir(parents=True)
        (tmp_path / "train").mkdir(exist_ok=True)
        paths = [folder / f"ILSVRC2012_val_{10 * label + number:08d}.JPEG" for number in range(5)]
        for path in [*paths, tmp_path / "train" / f"{IMAGENET_WNIDS[label]}_thing.JPEG"]:
            colour = np.clip(draw.normal(20 * label, 30, 3), 0, 255).astype(int)
            Image.new("RGB", (32, 26), tuple(colour)).save(path)
    crop_all(tmp_path / "val", tmp_path / "train", tmp_path / "crops")
    return tmp_path / "crops"


def test_every_class_is_divided_among_the_parts(crops):
    parts = read_parts(crops)
    assert {name: len(part) for name, part in parts.items()} == {"train": 12, "held-out": 12, "fit": 24, "test": 24}
    assert all(set(part.labels) == set(range(12)) for part in parts.values())
    assert parts["test"].batch([0])[0].shape == (1, 224, 224, 3)


def test_images_go_through_measurements_to_the_page(crops, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.natural.judge.N_RESAMPLES", 20)
    monkeypatch.setattr(measuring, "CORRUPTIONS", ("contrast",))
    monkeypatch.setattr(judging, "SETTINGS", {"train": ("train", False), "held-out": ("held-out", False)})
    torch.manual_seed(0)
    tiny = ImageNetNetwork(64, (127.0,) * 3, 128.0, {"convolution": "first"}, lambda _: Tiny())
    monkeypatch.setattr(measuring, "NETWORKS", {"tiny": tiny})
    parts = measuring.load_images(crops, torch.device("cpu"))
    measured = measuring.measure("tiny", parts, measuring.make_sets(parts), crops)
    assert measured.layers == ("train/first", "train/logits", "held-out/first", "held-out/logits")
    measured.save(tmp_path / "tiny")
    stored = Measurements.load(tmp_path / "tiny")
    assert len(stored.sets["val"]) == 36 and len(stored.sets["contrast-5"]) == 24
    distances = stored.sets["clean"].distances
    assert (distances[..., 0] >= distances[..., 1]).all()  # to the tenth row and to the nearest
    single, means = judging.judge(stored)
    assert set(single["condition"]) == {"clean", "contrast-1", "contrast-3", "contrast-5"}
    assert set(single["method"]) == set(judging.METHODS)
    accuracies = single.groupby("condition")["accuracy"].nunique()
    assert accuracies.eq(1).all()
    page = summary(single, pd.DataFrame(means))
    assert "of 4 conditions" in page and "| tiny | held-out |" in page and "| tiny | all |" in page
