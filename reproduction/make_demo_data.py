"""Make the demo data: outputs of the trained CIFAR-10 ResNet18, small enough for the package.

    python -m reproduction.make_demo_data --weights FILE --cifar10 DIR --fashion-mnist DIR

writes ``src/densecal/demo/data/*.safetensors`` and PROVENANCE.md, which documents their origin. It takes a few minutes
on a CPU. All seeds are fixed, so a second run writes the same files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from torch import nn
from torch.utils.data import DataLoader

from densecal import FeatureBank, Outputs, make_calibrator
from densecal.arrays import softmax, to_numpy
from densecal.arrays.checks import unit_rows
from densecal.metrics import accuracy, expected_calibration_error
from densecal.shift import CORRUPTIONS, Dataset, ImageArrays, Perturbed, Shifted, open_dataset, plan_perturbations
from densecal.torch import extract
from reproduction.classifiers import find_classifier
from reproduction.measuring.out_of_domain import read_fashion_mnist
from reproduction.networks import load_network

CLASSIFIER = find_classifier("c10-resnet18")
# Samples drawn and samples written; the projection and the comparison in PROVENANCE.md use all drawn samples.
BANK, VAL, TEST = (4000, 2500), (4000, 4000), (4500, 2430)
PERTURBED, OUTSIDE = 2000, 500
WIDTH = 16
K = 10
SEED = 0

PROVENANCE = """# Provenance of the demo data

Outputs (logits, labels, layer features) of torchvision's ResNet18, trained by this project on the 45,000 training
images of CIFAR-10 (`python -m reproduction`, classifier `c10-resnet18`). The files are written by
`reproduction/make_demo_data.py` and contain no images.

| set | samples | accuracy | mean confidence | size |
|---|---|---|---|---|
{rows}

`shifted-N` has the images of the clean set, image i under corruption i modulo 18 of `densecal.shift` at severity N.
`perturbed` has the first 2,000 images of `val` under `densecal.shift.perturb`, sorted by the kind and strength of the
perturbation; the metadata contains the number of samples of each. `ood-fashion` has Fashion-MNIST test images (MIT
licence), zero-padded to 32x32.

Two steps keep the package small:

- **Samples.** 4,000 training, 4,000 validation and 4,500 test images are drawn without replacement (seed 0, sorted by
  index); the files contain the first 2,500, 4,000 and 2,430 of them (2,430 is a multiple of the 18 corruptions).
- **Features.** They are divided by their Euclidean norm, and layers wider than {width} are projected on the {width}
  leading right singular vectors of the 4,000 training samples. ECE x100 of dac+ets on all 4,500 test images,
  {comparison}.
"""


class DemoSet(NamedTuple):
    """A data set of the demo, the number of samples to write, and the metadata of the file."""

    dataset: Dataset
    written: int
    metadata: dict[str, str]


def draw(available: int, count: int) -> Any:
    return np.sort(np.random.default_rng(SEED).choice(available, count, replace=False))


def corrupt_in_turn(test: Dataset, rows: Any, severity: int) -> ImageArrays:
    """Return the test images at these rows, the i-th under corruption i modulo 18."""
    images = np.empty((len(rows), 32, 32, 3), np.uint8)
    for place, corruption in enumerate(CORRUPTIONS):
        mine = np.arange(place, len(rows), len(CORRUPTIONS))
        images[mine] = Shifted(test, corruption, severity, SEED).batch(rows[mine])[0]
    return ImageArrays(images, test.labels[rows], classes=test.classes)


def extract_outputs(network: nn.Module, dataset: Dataset) -> Outputs:
    """Return logits, labels and normalised features of one data set."""
    mean, std = CLASSIFIER.pixels
    loader = DataLoader(dataset.as_torch(mean=mean, std=std), batch_size=250)
    raw = extract(network, loader, [*CLASSIFIER.layers, "logits"], progress=False)
    return Outputs(raw.logits, raw.labels, {name: unit_rows(values, name) for name, values in raw.features.items()})


def leading_directions(bank: Outputs) -> dict[str, Any]:
    """Return the leading directions of each wide layer, without centring, which preserves lengths."""
    wide = {layer: to_numpy(unit) for layer, unit in bank.features.items() if unit.shape[1] > WIDTH}
    return {
        layer: np.linalg.eigh(unit.T.astype(np.float64) @ unit)[1][:, ::-1][:, :WIDTH].astype(np.float32)
        for layer, unit in wide.items()
    }


def project_features(outputs: Outputs, projection: dict[str, Any]) -> Outputs:
    """Return the outputs with wide layers projected, in half precision."""
    features = {
        layer: np.float16(to_numpy(unit) @ projection[layer] if layer in projection else to_numpy(unit))
        for layer, unit in outputs.features.items()
    }
    return Outputs(to_numpy(outputs.logits).astype(np.float16), outputs.labels, features)


def ece_with(bank: Outputs, val: Outputs, test: Outputs) -> float:
    """Return the ECE x100 of dac+ets with these features."""
    calibrator = make_calibrator("dac+ets", bank=FeatureBank(bank.features, k=K)).fit(val)
    return 100 * expected_calibration_error(calibrator.predict_proba(test), test.labels)


def save(path: Path, outputs: Outputs, metadata: dict[str, str]) -> str:
    """Write one set and return its row of the provenance table."""
    outputs.metadata = {"classifier": "ResNet18 trained on CIFAR-10", "data": "CIFAR-10", **metadata}
    probabilities = softmax(to_numpy(outputs.logits).astype(np.float32))
    right = "-" if outputs.labels is None else f"{100 * accuracy(probabilities, outputs.labels):.1f} %"
    outputs.save(path)
    confidence = f"{100 * probabilities.max(1).mean():.1f} %"
    return f"| {path.stem} | {len(outputs):,} | {right} | {confidence} | {path.stat().st_size / 1e6:.2f} MB |"


def main(
    weights: Annotated[Path, typer.Option(help="The weights of the network.")],
    cifar10: Annotated[Path, typer.Option(help="The folder of CIFAR-10.")],
    fashion_mnist: Annotated[Path, typer.Option(help="The folder with t10k-images-idx3-ubyte.gz.")],
    out: Path = Path(__file__).parents[1] / "src/densecal/demo/data",
) -> None:
    """Write every set of the demo and PROVENANCE.md."""
    torch.manual_seed(SEED)
    network = load_network(CLASSIFIER, weights)
    train, val, test = (open_dataset("cifar10", root=cifar10, split=split) for split in ("train", "val", "test"))
    val_rows, test_rows = draw(len(val), VAL[0]), draw(len(test), TEST[0])
    fashion = read_fashion_mnist(fashion_mnist)
    outside = ImageArrays(fashion[draw(len(fashion), OUTSIDE)], np.zeros(OUTSIDE, int), classes=test.classes)
    domains = plan_perturbations(val_rows[:PERTURBED], SEED).domains()
    perturbed = Perturbed(val, SEED).subset(val_rows[np.argsort(domains, kind="stable")])
    counts = dict(zip(*(found.tolist() for found in np.unique(domains, return_counts=True)), strict=True))
    sets = {
        "train": DemoSet(train.subset(draw(len(train), BANK[0])), BANK[1], {"split": "train", "k": str(K)}),
        "val": DemoSet(val.subset(val_rows), VAL[1], {"split": "val"}),
        "perturbed": DemoSet(
            perturbed, PERTURBED, {"split": "val", "condition": "perturbed", "domains": json.dumps(counts)}
        ),
        "clean": DemoSet(test.subset(test_rows), TEST[1], {"split": "test", "condition": "clean", "severity": "0"}),
    }
    for severity in range(1, 6):
        metadata = {"split": "test", "condition": "18 corruptions, mixed", "severity": str(severity)}
        sets[f"shifted-{severity}"] = DemoSet(corrupt_in_turn(test, test_rows, severity), TEST[1], metadata)
    sets["ood-fashion"] = DemoSet(outside, OUTSIDE, {"condition": "Fashion-MNIST", "role": "ood"})
    full = {name: extract_outputs(network, each.dataset) for name, each in sets.items()}
    full["ood-fashion"].labels = None
    projection = leading_directions(full["train"])
    small = {name: project_features(outputs, projection) for name, outputs in full.items()}
    rows = [save(out / f"{name}.safetensors", small[name][: sets[name].written], sets[name].metadata) for name in sets]
    found = [
        f"{name}: {ece_with(full['train'], full['val'], full[name]):.2f} with all features, "
        f"{ece_with(small['train'], small['val'], small[name]):.2f} with the projected ones"
        for name in ("clean", "shifted-5")
    ]
    text = PROVENANCE.format(rows="\n".join(rows), width=WIDTH, comparison="; ".join(found))
    (out / "PROVENANCE.md").write_text(text)


if __name__ == "__main__":
    typer.run(main)
