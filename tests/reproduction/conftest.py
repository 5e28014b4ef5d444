from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest

from densecal.shift.corruptions.constants import CORRUPTIONS
from reproduction.measuring.measurements import MeasuredSet, Measurements

LAYERS = ("maxpool", "layer1", "layer2", "layer3", "layer4", "logits")
KS = (1, 10, 50, 100, 200)


def make_set(rng: np.random.Generator, count: int, shift: float, labels: np.ndarray | None) -> MeasuredSet:
    """Make a classifier whose right temperature is 0.5 + 8 times its inputs' distance from the training data."""
    far = rng.gamma(3.0, 0.05 * (1 + shift), count) + 0.02
    logits = rng.normal(0, 5, (count, 10))
    tempered = np.exp((logits - logits.max(1, keepdims=True)) / (0.5 + 8 * far)[:, None])
    drawn = (tempered.cumsum(1) < rng.random((count, 1)) * tempered.sum(1, keepdims=True)).sum(1)
    truth = rng.integers(10, size=count) if labels is None else labels
    # Exchange two classes, so that what was drawn is what the label says.
    rows = np.arange(count)
    logits[rows, drawn], logits[rows, truth] = logits[rows, truth], logits[rows, drawn].copy()
    spread, scale = np.linspace(0.6, 1.0, len(KS)), np.linspace(0.8, 1.2, len(LAYERS))
    noise = 0.01 * rng.random((count, len(LAYERS), 1))
    distances = far[:, None, None] * scale[None, :, None] * spread + noise
    return MeasuredSet(logits.astype(np.float32), np.minimum(distances, 1.9).astype(np.float32), labels)


def make_measurements(classifier: str = "c10-resnet18", *, count: int = 300, corruptions: int = 18) -> Measurements:
    rng = np.random.default_rng(0)
    val, test = rng.integers(10, size=800), rng.integers(10, size=count)
    sets = {"val": make_set(rng, 800, 0.0, val), "clean": make_set(rng, count, 0.0, test)}
    for name in list(CORRUPTIONS)[:corruptions]:
        for severity in range(1, 6):
            made = make_set(rng, count, 0.2 * severity, test)
            sets[f"{name}-{severity}"] = MeasuredSet(made.logits, made.distances)
    sets["ood-fashion"] = make_set(rng, count, 1.5, None)
    return Measurements(classifier, LAYERS, KS, sets)


@pytest.fixture(scope="session")
def measured() -> Measurements:
    return make_measurements(corruptions=2)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, measured: Measurements):
    folder = tmp_path_factory.mktemp("results")
    measured.save(folder / "measurements" / "c10-resnet18")
    return folder


@pytest.fixture
def command(run_main):
    """Run ``python -m reproduction`` in an empty folder."""
    from reproduction.__main__ import main

    return partial(run_main, main)


@pytest.fixture
def cifar100(tmp_path, monkeypatch):
    """CIFAR-100 in its official layout, but small."""
    from densecal.shift import CIFAR100

    monkeypatch.setattr(CIFAR100, "train_size", 40)
    monkeypatch.setattr(CIFAR100, "test_size", 8)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", 40), ("test", 8)):
        batch = {
            b"batch_label": name.encode(),
            b"data": rng.integers(256, size=(count, 3072), dtype=np.uint8),
            b"fine_labels": [int(label) for label in rng.integers(100, size=count)],
            b"coarse_labels": [0] * count,
            b"filenames": [b"%05d.png" % i for i in range(count)],
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return tmp_path
