"""Make the demo's data: outputs of the ResNet18 that `run_on_gpu.py train` trained, small enough for the package.

    python -m reproduction.make_demo_data.py --weights c10-resnet18.safetensors --cifar10 DIR --fashion-mnist DIR

writes ``src/densecal/demo/data/*.safetensors`` and the metadata of how they were made into ``PROVENANCE.md`` beside them.
A CPU is enough (a few minutes). Everything is drawn with fixed seeds, so a second run gives the same files.

- train: 4,000 of the 45,000 training images, the bank
- val: 4,000 of the 5,000 validation images; perturbed: 2,000 of the same images under densecal.shift.perturb
- clean: 4,500 test images; shifted-1 ... shifted-5: the same images, image i under corruption i modulo 18
- ood-fashion: 500 Fashion-MNIST test images, framed to 32x32, grey as RGB

A layer wider than 32 is projected on the 32 leading right singular vectors of the bank's normalised features: the demo
must fit into 15 MB, and many samples with narrow features say more than few with wide ones. What that changes is
measured and written down.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from densecal.arrays import softmax
from densecal.calibrators.registry import make_calibrator
from densecal.density.bank import FeatureBank, normalise
from densecal.metrics import accuracy, expected_calibration_error
from densecal.outputs import Outputs
from densecal.shift import CORRUPTIONS, ImageArrays, Perturbed, Shifted, open_dataset
from densecal.torch import extract
from reproduction.classifiers import find_classifier
from reproduction.device_data import read_fashion_mnist
from reproduction.packing import unpack_weights

CLASSIFIER = "c10-resnet18"
BANK, VAL, PERTURBED, TEST, OUTSIDE = 4000, 4000, 2000, 4500, 500
WIDTH = 32
K = 10
SEED = 0


def say(text: str) -> None:
    """Write one line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def read_network(weights: list[Path]) -> nn.Module:
    """Build the classifier with its trained weights, whole or in the pieces that came back from the GPU machine."""
    network = find_classifier(CLASSIFIER).build()
    network.load_state_dict(load_file(weights[0]) if len(weights) == 1 else unpack_weights(weights))
    return network.eval()


def draw(available: int, count: int) -> Any:
    """Draw rows without replacement, in their order."""
    return np.sort(np.random.default_rng(SEED).choice(available, count, replace=False))


def mixed(test: Any, rows: Any, severity: int) -> ImageArrays:
    """Give the test images at these rows, the i-th of them under corruption i modulo 18."""
    images = np.empty((len(rows), 32, 32, 3), np.uint8)
    for place, corruption in enumerate(CORRUPTIONS):
        mine = np.arange(place, len(rows), len(CORRUPTIONS))
        images[mine] = Shifted(test, corruption, severity, SEED).batch(rows[mine])[0]
    return ImageArrays(images, test.labels[rows], classes=test.classes)


def outside(folder: Path) -> ImageArrays:
    """Give Fashion-MNIST images as CIFAR-10's network takes them."""
    grey = read_fashion_mnist(folder)
    framed = np.pad(grey[draw(len(grey), OUTSIDE)], ((0, 0), (2, 2), (2, 2), (0, 0)))
    return ImageArrays(np.repeat(framed, 3, axis=3), np.zeros(OUTSIDE, int), classes=open_dataset_classes())


def open_dataset_classes() -> tuple[str, ...]:
    """Return CIFAR-10's classes, which the labels of other data only stand in for."""
    from densecal.shift.datasets.cifar import CIFAR10_CLASSES

    return CIFAR10_CLASSES


def run(network: nn.Module, dataset: Any) -> Outputs:
    """Read logits and features of one data set."""
    classifier = find_classifier(CLASSIFIER)
    mean, std = classifier.pixels
    loader = torch.utils.data.DataLoader(dataset.as_torch(mean=mean, std=std), batch_size=250)
    return extract(network, loader, [*classifier.layers, "logits"], progress=False)


def directions(bank: Outputs) -> dict[str, Any]:
    """Return each wide layer's leading directions, of the normalised features as they are, so that lengths stay."""
    found = {}
    for layer, features in bank.features.items():
        if features.shape[1] > WIDTH:
            unit = normalise(features, layer)
            found[layer] = np.linalg.eigh(unit.T.astype(np.float64) @ unit)[1][:, ::-1][:, :WIDTH].astype(np.float32)
            kept = float(((unit @ found[layer]) ** 2).sum() / (unit**2).sum())
            say(f"{layer}: {features.shape[1]} -> {WIDTH} directions keep {100 * kept:.2f} % of the squared length")
    return found


def narrow(outputs: Outputs, projection: dict[str, Any]) -> dict[str, Any]:
    """Return normalised features, wide layers projected, in half precision."""
    features = {}
    for layer, values in outputs.features.items():
        unit = normalise(values, layer)
        features[layer] = (unit @ projection[layer] if layer in projection else unit).astype(np.float16)
    return features


def error_with(bank: dict[str, Any], val: tuple[Any, Any, Any], test: tuple[Any, Any, Any]) -> float:
    """Return the ECE of dac+ets with this bank, for comparing features."""
    calibrator = make_calibrator("dac+ets", bank=FeatureBank(bank, k=K))
    calibrator.fit(val[0], val[1], features=val[2])
    return expected_calibration_error(calibrator.predict_proba(test[0], features=test[2]), test[1])


def write(
    path: Path, outputs: Outputs, features: dict[str, Any], metadata: dict[str, str], *, labelled: bool = True
) -> str:
    """Write one set and return its row of the provenance table."""
    labels = outputs.labels if labelled else None
    about = {"classifier": "ResNet18 trained on CIFAR-10", "data": "CIFAR-10", **metadata}
    Outputs(outputs.logits.astype(np.float16), labels, features, metadata=about).save(path)
    probabilities = softmax(outputs.logits.copy())
    right = f"{100 * accuracy(probabilities, outputs.labels):.1f} %" if labelled else "-"
    row = f"| {path.stem} | {len(outputs):,} | {right} | {100 * probabilities.max(1).mean():.1f} % | "
    row += f"{path.stat().st_size / 1e6:.2f} MB |"
    say(row)
    return row


def main() -> None:
    """Make every set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--weights", type=Path, nargs="+", required=True, help="one file, or the pieces of pack-weights"
    )
    parser.add_argument("--cifar10", type=Path, required=True)
    parser.add_argument("--fashion-mnist", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "src/densecal/demo/data")
    arguments = parser.parse_args()
    network = read_network(arguments.weights)
    train, val, test = (open_dataset("cifar10", root=arguments.cifar10, split=s) for s in ("train", "val", "test"))
    val_rows, test_rows = draw(len(val), VAL), draw(len(test), TEST)
    bank = run(network, train.subset(draw(len(train), BANK)))
    projection = directions(bank)
    sets: dict[str, tuple[Any, dict[str, str]]] = {
        "val": (val.subset(val_rows), {"split": "val"}),
        "perturbed": (Perturbed(val, SEED).subset(val_rows[:PERTURBED]), {"split": "val", "condition": "perturbed"}),
        "clean": (test.subset(test_rows), {"split": "test", "condition": "clean", "severity": "0"}),
    }
    for severity in range(1, 6):
        metadata = {"split": "test", "condition": "18 corruptions, mixed", "severity": str(severity)}
        sets[f"shifted-{severity}"] = (mixed(test, test_rows, severity), metadata)
    sets["ood-fashion"] = (outside(arguments.fashion_mnist), {"condition": "Fashion-MNIST", "role": "ood"})
    arguments.out.mkdir(parents=True, exist_ok=True)
    narrow_bank = narrow(bank, projection)
    rows = [write(arguments.out / "train.safetensors", bank, narrow_bank, {"split": "train", "k": str(K)})]
    found: dict[str, tuple[Any, Any, Any, Any]] = {}
    for name, (dataset, metadata) in sets.items():
        outputs = run(network, dataset)
        features = narrow(outputs, projection)
        rows.append(
            write(
                arguments.out / f"{name}.safetensors", outputs, features, metadata, labelled=not name.startswith("ood")
            )
        )
        found[name] = (outputs.logits, outputs.labels, outputs.features, features)
    comparison = []
    for name in ("clean", "shifted-5"):
        full = error_with(bank.features, found["val"][:3], found[name][:3])
        small = error_with(narrow_bank, (*found["val"][:2], found["val"][3]), (*found[name][:2], found[name][3]))
        comparison.append(f"{name}: {100 * full:.2f} with all features, {100 * small:.2f} with the projected ones")
    text = PROVENANCE.format(rows="\n".join(rows), width=WIDTH, comparison="; ".join(comparison))
    (arguments.out / "PROVENANCE.md").write_text(text)
    say("ECE x100 of dac+ets: " + "; ".join(comparison))


PROVENANCE = """# Where the demo's data come from

Outputs (logits, labels, layer features) of torchvision's ResNet18, trained by this project on the 45,000 training
images of CIFAR-10 (`reproduction`'s recipe, `reproduction/run_on_gpu.py train`), made by
`reproduction/make_demo_data.py`. No image is in these files.

| set | samples | accuracy | mean confidence | size |
|---|---|---|---|---|
{rows}

`shifted-N` are the clean set's images, image i under corruption i modulo 18 of `densecal.shift` at severity N.
`perturbed` are validation images under `densecal.shift.perturb`. `ood-fashion` are Fashion-MNIST test images (MIT
licence), framed to 32x32.

Features are divided by their Euclidean norm, and layers wider than {width} are projected on the {width} leading right
singular vectors of the bank's, to keep the package small. ECE x100 of dac+ets, {comparison}.
"""

if __name__ == "__main__":
    main()
