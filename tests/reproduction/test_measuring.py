from __future__ import annotations

import pickle
from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecal.shift import CIFAR100, ImageArrays, shifted_sets  # noqa: E402
from densecal.shift.datasets.imagenet import IMAGENET_WNIDS  # noqa: E402
from reproduction.experiments import protocol_for, reproduce  # noqa: E402
from reproduction.measuring.measurements import Measurements  # noqa: E402
from reproduction.measuring.run import measure  # noqa: E402
from reproduction.protocol import Protocol  # noqa: E402
from reproduction.training.recipes import recipe_of  # noqa: E402
from reproduction.training.run import train  # noqa: E402

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


@pytest.fixture
def few_conditions(monkeypatch):
    """The clean set and every tenth of the 90 corrupted ones."""
    few = lambda *given, **named: islice(shifted_sets(*given, **named), 9, None, 10)  # noqa: E731
    monkeypatch.setattr("reproduction.measuring.run.shifted_sets", few)


@pytest.mark.slow
@pytest.mark.usefixtures("few_conditions")
def test_cifar100_goes_from_official_files_to_measurements(cifar100, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.networks.cifar_stem_resnet18", thin_resnet)
    out = tmp_path / "results"
    weights = train("c100-resnet18", cifar100, out=out, epochs=1, device="cpu")
    foreign = ImageArrays(np.zeros((6, 32, 32, 3), np.uint8), np.zeros(6, int))
    folder = measure(
        "c100-resnet18", cifar100, weights=weights, out=out, device="cpu", limit=2, ks=(1, 2, 200),
        out_of_domain={"black": foreign},
    )  # fmt: skip
    measured = Measurements.load(folder)
    assert len(measured.sets) == 1 + 10 + 1
    assert measured.sets["shot_noise-5"].logits.shape == (2, 100)
    assert measured.ks == (1, 2)
    assert not (out / "measuring" / "c100-resnet18").exists()
    assert measured.layers == ("maxpool", "layer1", "layer2", "layer3", "layer4", "logits")


@pytest.fixture
def imagenet(tmp_path):
    """ImageNet as class folders, with few and tiny images."""
    from PIL import Image

    rng = np.random.default_rng(0)
    root = tmp_path / "imagenet"
    names = [f"train/{IMAGENET_WNIDS[i % 5]}/{IMAGENET_WNIDS[i % 5]}_{i}.JPEG" for i in range(1000)]
    names += [f"val/{IMAGENET_WNIDS[i % 5]}/ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 16)]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(12, 10, 3), dtype=np.uint8)).save(root / name)
    return root


@pytest.mark.slow
@pytest.mark.usefixtures("few_conditions")
def test_imagenet_goes_from_official_files_to_a_judged_method(imagenet, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.networks.resnet152", thin_resnet)
    out = tmp_path / "results"
    torch.manual_seed(0)
    state = tmp_path / "resnet152.pth"
    torch.save(thin_resnet(1000).state_dict(), state)
    measure("img-resnet152", imagenet, weights=state, out=out, device="cpu", limit=3, complete=False, ks=(1,))
    protocol = Protocol(out, n_resamples=0)
    measured = protocol.measurements("img-resnet152")
    assert measured.sets["shot_noise-5"].logits.shape == (3, 1000)
    assert measured.sets["val"].distances.shape == (3, 6, 1)
    assert (measured.labels("val") < 5).all()
    assert len(protocol.table("img-resnet152", ["dac+ts"], k=1).conditions) == 10


def test_a_stopped_measuring_goes_on_with_what_it_has(cifar100, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.networks.cifar_stem_resnet18", thin_resnet)
    state = tmp_path / "weights.pth"
    torch.save(thin_resnet(100).state_dict(), state)

    def stopping(*given, **named):
        yield from islice(shifted_sets(*given, **named), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr("reproduction.measuring.run.shifted_sets", stopping)
    options = {"weights": state, "out": tmp_path / "results", "device": "cpu", "limit": 2, "ks": (1,)}
    with pytest.raises(KeyboardInterrupt):
        measure("c100-resnet18", cifar100, **options)
    kept = sorted(path.stem for path in (tmp_path / "results" / "measuring" / "c100-resnet18").iterdir())
    assert kept == ["clean", "gaussian_noise-1", "gaussian_noise-2", "val"]


def test_the_cifar100_recipe_decays_by_a_fifth():
    assert [rate for _, rate in recipe_of("c100-vgg16").schedule] == pytest.approx([0.01, 0.002, 0.0004, 0.00008])


def test_imagenet_classifiers_are_not_trained():
    with pytest.raises(ValueError, match="not trained but published"):
        recipe_of("img-vit-b")


def test_reproduce_says_that_nothing_was_measured(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no measurements"):
        reproduce("table1", protocol=protocol_for(["table1"], tmp_path))
