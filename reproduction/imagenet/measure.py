"""Measure a network: compact logits and distances on the clean, corrupted and perturbed images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from densecal import FeatureBank
from densecal.shift import CORRUPTIONS, corrupt, perturb
from densecal.torch.extraction import Extraction
from reproduction.imagenet.compact_logits import N_CLASSES, compact
from reproduction.imagenet.images import read_parts
from reproduction.imagenet.networks import LOGITS, NETWORKS, ImageNetNetwork
from reproduction.measuring.measurements import CLEAN, PERTURBED, VAL, MeasuredSet, Measurements
from reproduction.measuring.run import disable_tf32
from reproduction.natural.vector_network import Labels

BANKS = ("train", "held-out")
SEVERITIES = (1, 3, 5)
COPIES = 3
K, NEAREST = 10, 1
"""The paper's neighbour for 1 % of the training images, and the one that this smaller bank corresponds to."""
BATCH = 250

Images = tuple[Tensor, Tensor]


def load_images(folder: Path, device: torch.device, n_classes: int = N_CLASSES) -> dict[str, Images]:
    """Return uint8 images (n_samples, height, width, 3) and labels of each part, only the first classes for a trial."""
    loaded = {}
    for name, part in read_parts(folder).items():
        pixels, labels = part.batch(np.flatnonzero(part.labels < n_classes))
        loaded[name] = (torch.from_numpy(pixels).to(device), torch.from_numpy(labels).to(device))
    return loaded


def make_sets(parts: Mapping[str, Images]) -> dict[str, Images]:
    """Return the sets to measure: for the fit (clean and perturbed; held-out images last) and for the evaluation."""
    (fit, fit_labels), (held_out, more_labels), (test, labels) = (parts[name] for name in ("fit", "held-out", "test"))
    val, val_labels = torch.cat([fit, held_out]), torch.cat([fit_labels, more_labels])
    sets = {VAL: (val, val_labels), CLEAN: (test, labels)}
    for copy in range(COPIES):
        changed = [perturb(val[rows], copy, index=_index(rows)) for rows in _batches(len(val))]
        sets[f"{PERTURBED}copy-{copy}"] = (torch.cat(changed), val_labels)
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            changed = [corrupt(test[rows], name, severity, index=_index(rows)) for rows in _batches(len(test))]
            sets[f"{name}-{severity}"] = (torch.cat(changed), labels)
    return sets


def _batches(count: int) -> list[slice]:
    return [slice(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]


def _index(rows: slice) -> Labels:
    return np.arange(rows.start, rows.stop)


class Reader:
    """Runs a network over images."""

    def __init__(self, network: ImageNetNetwork, weights: Path, device: torch.device) -> None:
        self.network, self.device = network, device
        self.extraction = Extraction(network.build(weights).eval().to(device), [*network.layers, LOGITS])

    def read(self, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return logits and features."""

        def batches() -> Iterator[Tensor]:
            for rows in _batches(len(images)):
                yield self.network.prepare(images[rows])

        outputs = self.extraction.outputs(batches(), progress=False)
        names = {**self.network.layers, LOGITS: LOGITS}
        features = {names[name]: torch.as_tensor(values).to(self.device) for name, values in outputs.features.items()}
        return torch.as_tensor(outputs.logits).to(self.device), features


def measure(name: str, parts: Mapping[str, Images], sets: Mapping[str, Images], weights: Path) -> Measurements:
    """Return the measurements of a network; the layers are those of one bank after the other, as in ``train/stage1``.

    Logits and labels are those of `compact`.
    """
    device = parts["test"][0].device
    disable_tf32()
    reader = Reader(NETWORKS[name], weights, device)
    banks = []
    for part in BANKS:
        _, features = reader.read(parts[part][0])
        banks.append((FeatureBank(features, k=min(K, len(parts[part][0]))), FeatureBank(features)))
    layers = tuple(f"{part}/{layer}" for part in BANKS for layer in banks[0][0].layers)
    measured = {}
    for key, (images, labels) in sets.items():
        logits, features = reader.read(images)
        columns = []
        for rows, centres in banks:
            kth = torch.as_tensor(rows.distances(features, k=[K, NEAREST]))
            nearest = torch.as_tensor(centres.distances(features))[:, :, None]
            columns.append(torch.cat([kth, nearest.to(kth)], dim=2))
        below, about = compact(logits, labels)
        measured[key] = MeasuredSet(below, torch.cat(columns, dim=1).cpu().numpy(), about)
    return Measurements(name, layers, (K, NEAREST, None), measured)
