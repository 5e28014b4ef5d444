"""Measure the banks of the centres study: features of one network on every set, and their distances to many banks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from densecal.arrays.checks import unit_rows
from densecal.density.bank import FeatureBank
from densecal.density.centres import nearest_distances, spherical_kmeans
from densecal.outputs import Distances, Outputs
from densecal.shift import CORRUPTIONS, SEVERITIES, corrupt, open_dataset, perturb
from densecal.torch import extract
from reproduction.classifiers import Classifier
from reproduction.measuring.measurements import CLEAN, COPY, VAL
from reproduction.measuring.reading import LOGITS, disable_tf32

COPIES = 3
BATCH = 1000
LIBRARY = "FeatureBank"
MEMORY = 4 << 30


@dataclass(frozen=True)
class BankSpec:
    """One bank: ``centres`` of spherical k-means, or (None) ``rows`` of the training set at the ``k``-th neighbour.

    k-means starts from ``init`` ("random" rows, or "k-means++") and runs for ``iterations`` on at most
    ``rows_per_centre`` rows per centre; None is all of them. With the ``init`` "FeatureBank" the library chooses all
    of them. All draws depend on ``seed``.
    """

    centres: int | None = None
    init: str = "random"
    iterations: int = 12
    rows_per_centre: int | None = None
    rows: int | None = None
    k: int = 1
    seed: int = 0

    def __str__(self) -> str:
        if self.centres is None:
            return f"{'all' if self.rows is None else self.rows} rows, k={self.k}"
        if self.init == LIBRARY:
            return f"{self.centres} centres, {self.init}"
        share = "all" if self.rows_per_centre is None else self.rows_per_centre
        return f"{self.centres} centres, {self.init}, {self.iterations} iterations, {share} rows per centre"


@dataclass
class ImageSet:
    """uint8 images of shape (n_samples, 32, 32, 3) on a device, and their labels."""

    images: Tensor
    labels: NDArray[np.int64]


@dataclass
class Sets:
    """The images that the studies need, by name; the sets common to all networks are made once.

    ``limit`` uses only the first images of every set, for a trial run, ``test_size`` those of the test sets.
    """

    data: str | Path
    device: torch.device
    limit: int | None = None
    test_size: int | None = None
    shared: dict[str, ImageSet] = field(default_factory=dict)

    def test(self) -> dict[str, ImageSet]:
        """Return half of the test set, clean and under every corruption; the other half validates some networks."""
        if not self.shared:
            kept = np.setdiff1d(np.arange(10_000), validation_half())[: self.test_size][: self.limit]
            clean = self._read("test", kept)
            self.shared[CLEAN] = clean
            for name in CORRUPTIONS:
                for severity in SEVERITIES:
                    changed = corrupt(clean.images, name, severity, index=kept)
                    self.shared[f"{name}-{severity}"] = ImageSet(changed, clean.labels)
        return self.shared

    def train(self, about: Classifier) -> Tensor:
        """Return the training images; networks outside the paper were trained on all 50,000."""
        return self._read("train" if about.in_paper else "train+val").images

    def validation(self, about: Classifier) -> dict[str, ImageSet]:
        """Return the validation set and its perturbed copies, as `densecal.torch.calibrate` makes them."""
        clean = self._read(VAL) if about.in_paper else self._read("test", validation_half()[: self.limit])
        copies = {f"{COPY}{seed}": ImageSet(perturb(clean.images, seed), clean.labels) for seed in range(COPIES)}
        return {VAL: clean, **copies}

    def _read(self, split: str, positions: NDArray[np.int64] | None = None) -> ImageSet:
        dataset = open_dataset("cifar10", self.data, split)
        chosen = np.arange(len(dataset))[: self.limit] if positions is None else positions
        images, labels = dataset.batch(chosen)
        return ImageSet(torch.from_numpy(images).to(self.device), np.asarray(labels, np.int64))


def validation_half() -> NDArray[np.int64]:
    """Return the test images that validate the networks without a validation set, as in the shift-fit study."""
    return np.sort(np.random.RandomState(0).permutation(10_000)[:5000])


@dataclass
class Measured:
    """One network's logits, labels and normalised features on all sets, one after the other."""

    train: dict[str, Tensor]
    features: dict[str, Tensor]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    parts: dict[str, slice]

    def distances(self, spec: BankSpec) -> NDArray[np.float32]:
        """Return the distances of all samples to a bank, of shape (n_samples, n_layers)."""
        if spec.centres is None:
            found = FeatureBank(self.train, k=spec.k, bank_size=spec.rows, seed=spec.seed).distances(self.features)
        elif spec.init == LIBRARY:
            found = FeatureBank(self.train, centres=spec.centres, seed=spec.seed).distances(self.features)
        else:
            centres = {layer: find_centres(rows, spec) for layer, rows in self.train.items()}
            columns = [nearest_distances(self.features[layer], each, MEMORY) for layer, each in centres.items()]
            found = torch.stack(columns, dim=1)
        return np.asarray(torch.as_tensor(found).cpu(), np.float32)

    def outputs(self, spec: BankSpec | None) -> dict[str, Outputs]:
        """Return the outputs of every set, with the distances to a bank or without."""
        whole = Outputs(self.logits, self.labels)
        if spec is not None:
            whole = whole.with_distances(Distances(self.distances(spec), tuple(self.train), spec.k))
        return {name: whole[rows] for name, rows in self.parts.items()}


def measure(about: Classifier, network: nn.Module, train: Tensor, sets: Mapping[str, ImageSet]) -> Measured:
    """Run a network over the training images and all sets."""
    disable_tf32()
    network = network.to(train.device)
    ends = np.cumsum([0, *(len(one.labels) for one in sets.values())]).tolist()
    parts = {name: slice(start, end) for name, start, end in zip(sets, ends, ends[1:], strict=False)}
    _, of_train = _read(about, network, [train])
    logits, features = _read(about, network, [one.images for one in sets.values()])
    return Measured(of_train, features, logits, np.concatenate([one.labels for one in sets.values()]), parts)


def _read(about: Classifier, network: nn.Module, images: list[Tensor]) -> tuple[Any, dict[str, Tensor]]:
    batches = (about.normalise(pixels) for each in images for pixels in torch.split(each, BATCH))
    outputs = extract(network, batches, [*about.layers, LOGITS], progress=False)
    device = images[0].device
    features = {
        name: unit_rows(torch.as_tensor(values, device=device), name) for name, values in outputs.features.items()
    }
    return np.asarray(outputs.logits, np.float32), features


def find_centres(rows: Tensor, spec: BankSpec) -> Tensor:
    generator = torch.Generator().manual_seed(spec.seed)
    rows = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
    count = min(spec.centres or 1, len(rows))
    if spec.rows_per_centre is not None:
        rows = rows[: spec.rows_per_centre * count]
    if spec.init == "k-means++":
        rows = torch.cat([_spread_rows(rows, count, generator), rows])
    centres: Tensor = spherical_kmeans(rows, count, n_iterations=spec.iterations, memory_budget=MEMORY)[0]
    return centres


def _spread_rows(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw rows as k-means++ does: each with a probability in proportion to its squared distance to those drawn."""
    lots = torch.rand(count, generator=generator).tolist()
    chosen = [int(lots[0] * len(rows))]
    gap = torch.full((len(rows),), 4.0, device=rows.device)
    for lot in lots[1:]:
        gap = torch.minimum(gap, (2 - 2 * (rows @ rows[chosen[-1]])).clamp_min(0))
        total = gap.double().cumsum(0)
        chosen.append(min(int(torch.searchsorted(total, lot * total[-1])), len(rows) - 1))
    return rows[chosen]
