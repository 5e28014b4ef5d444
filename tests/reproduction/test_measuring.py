from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402

from densecal.shift import ImageArrays, shifted_sets  # noqa: E402
from densecal.shift.datasets.imagenet import IMAGENET_WNIDS  # noqa: E402
from reproduction.classifiers import find_classifier  # noqa: E402
from reproduction.experiments import protocol_for, reproduce  # noqa: E402
from reproduction.measuring.measurements import Measurements  # noqa: E402
from reproduction.measuring.run import measure  # noqa: E402
from reproduction.protocol import Protocol  # noqa: E402
from reproduction.training.recipes import recipe_of  # noqa: E402
from reproduction.training.run import Training, train, train_together  # noqa: E402


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
    assert measured.ks == (1, 2, None)
    assert not (out / "measuring" / "c100-resnet18").exists()
    assert measured.layers == ("maxpool", "layer1", "layer2", "layer3", "layer4", "logits")


@pytest.mark.slow
@pytest.mark.usefixtures("few_conditions")
def test_every_layer_is_measured_at_one_k_and_perturbed_sets_on_request(cifar100, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.networks.cifar_stem_resnet18", thin_resnet)
    state = tmp_path / "weights.pth"
    torch.save(thin_resnet(100).state_dict(), state)
    options = {"weights": state, "out": tmp_path / "results", "device": "cpu", "limit": 4}
    monkeypatch.setattr("reproduction.measuring.run.find_classifier", lambda name: replace(find_classifier(name), k=3))
    measured = Measurements.load(measure("c100-resnet18", cifar100, all_layers=2, **options))
    assert measured.ks == (3, None)
    assert {"conv1", "layer1.0.relu", "layer1.0.relu:2", "fc"} <= set(measured.layers)
    assert (len(measured.sets["val"]), len(measured.sets["shot_noise-5"])) == (4, 2)
    measured = Measurements.load(measure("c100-resnet18", cifar100, perturbed=True, ks=(1,), **options))
    assert {"perturbed-perturbed-2", "perturbed-mild-0", "perturbed-occlusion-0"} <= set(measured.sets)


@pytest.mark.slow
def test_a_training_continues_from_its_checkpoint(cifar100, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.networks.cifar_stem_resnet18", thin_resnet)
    options = {"epochs": 2, "device": "cpu"}
    stopped = Training("c100-resnet18", cifar100, tmp_path / "stopped", **options)
    assert not stopped.run(deadline=0.0)
    assert stopped.checkpoint.exists()
    assert Training("c100-resnet18", cifar100, tmp_path / "stopped", **options).run()
    assert not stopped.checkpoint.exists()
    train_together([Training("c100-resnet18", cifar100, tmp_path / "whole", **options)], float("inf"))
    first, second = (
        load_file(tmp_path / name / "weights" / "c100-resnet18.safetensors") for name in ("stopped", "whole")
    )
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)
    assert (tmp_path / "whole" / "training" / "c100-resnet18.json").exists()


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
    assert measured.sets["val"].distances.shape == (3, 6, 2)
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
    with pytest.raises(ValueError, match="has no recipe; its weights are published"):
        recipe_of("img-vit-b")


def test_reproduce_says_that_nothing_was_measured(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no measurements"):
        reproduce("table1", protocol=protocol_for(["table1"], tmp_path))
