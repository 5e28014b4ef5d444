from __future__ import annotations

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecal.paper.measurements import Measurements  # noqa: E402
from densecal.paper.measuring import measure  # noqa: E402
from densecal.paper.reproduction import reproduce  # noqa: E402
from densecal.paper.training_run import recipe_of, train  # noqa: E402
from densecal.shift.datasets import CIFAR100, ImageArrays  # noqa: E402

TRAIN, TEST = 40, 8


@pytest.fixture
def cifar100(tmp_path, monkeypatch):
    """CIFAR-100 in its official layout, but small."""
    monkeypatch.setattr(CIFAR100, "train_size", TRAIN)
    monkeypatch.setattr(CIFAR100, "test_size", TEST)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", TRAIN), ("test", TEST)):
        batch = {
            b"batch_label": name.encode(),
            b"data": rng.integers(256, size=(count, 3072), dtype=np.uint8),
            b"fine_labels": [int(label) for label in rng.integers(100, size=count)],
            b"coarse_labels": [0] * count,
            b"filenames": [b"%05d.png" % i for i in range(count)],
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return tmp_path


def thin_resnet(num_classes: int, **_options: object) -> torch.nn.Module:
    """A network with ResNet's layers and few of its weights."""
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=num_classes)


@pytest.mark.slow
def test_cifar100_goes_from_official_files_to_a_table(cifar100, tmp_path, monkeypatch):
    monkeypatch.setattr("densecal.paper.networks.cifar_stem_resnet18", thin_resnet)
    out = tmp_path / "results"
    weights = train("c100-resnet18", cifar100, out=out, epochs=1, device="cpu")
    foreign = ImageArrays(np.zeros((6, 32, 32, 3), np.uint8), np.zeros(6, int))
    folder = measure(
        "c100-resnet18", cifar100, weights=weights, out=out, device="cpu", limit=2, ks=(1, 2, 200),
        out_of_domain={"black": foreign},
    )  # fmt: skip
    measured = Measurements.load(folder)
    assert len(measured.sets) == 1 + 91 + 1
    assert measured.sets["fog-3"].logits.shape == (2, 100)
    assert measured.ks == (1, 2)
    assert not (out / "measuring" / "c100-resnet18").exists()
    assert measured.layers == ("maxpool", "layer1", "layer2", "layer3", "layer4", "logits")


def test_the_cifar100_recipe_decays_by_a_fifth():
    assert [rate for _, rate in recipe_of("c100-vgg16").schedule] == pytest.approx([0.01, 0.002, 0.0004, 0.00008])


def test_imagenet_classifiers_are_not_trained():
    with pytest.raises(ValueError, match="not trained but published"):
        recipe_of("img-vit-b")


def test_reproduce_says_that_nothing_was_measured(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no measurements"):
        reproduce("table1", results=tmp_path)
