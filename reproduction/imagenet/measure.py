"""Measure a network: compact logits and distances on the clean, corrupted and perturbed images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from densecal.shift import CORRUPTIONS, corrupt, perturb
from densecal.torch import extract
from reproduction.imagenet.compact_logits import N_CLASSES, compact
from reproduction.imagenet.images import read_parts
from reproduction.imagenet.networks import NETWORKS, ImageNetNetwork
from reproduction.measuring.measurements import CLEAN, COPY, VAL, MeasuredSet, Measurements
from reproduction.measuring.reading import LOGITS, Banks, disable_tf32
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
        sets[f"{COPY}{copy}"] = (torch.cat(changed), val_labels)
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            changed = [corrupt(test[rows], name, severity, index=_index(rows)) for rows in _batches(len(test))]
            sets[f"{name}-{severity}"] = (torch.cat(changed), labels)
    return sets


def _batches(count: int) -> list[slice]:
    return [slice(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]


def _index(rows: slice) -> Labels:
    return np.arange(rows.start, rows.stop)


def measure(name: str, parts: Mapping[str, Images], sets: Mapping[str, Images], weights: Path) -> Measurements:
    """Return the measurements of a network; the layers are those of one bank after the other, as in ``train/stage1``.

    Logits and labels are those of `compact`.
    """
    device = parts["test"][0].device
    disable_tf32()
    about = NETWORKS[name]
    network = about.build(weights).eval().to(device)
    banks = [Banks(_read(network, about, parts[part][0])[1], min(K, len(parts[part][0]))) for part in BANKS]
    layers = tuple(f"{part}/{layer}" for part, bank in zip(BANKS, banks, strict=True) for layer in bank.rows.layers)
    measured = {}
    for key, (images, labels) in sets.items():
        logits, features = _read(network, about, images)
        distances = np.concatenate([bank.distances(features, [K, NEAREST]) for bank in banks], axis=1)
        below, classes = compact(logits, labels)
        measured[key] = MeasuredSet(below, distances, classes)
    return Measurements(name, layers, (K, NEAREST, None), measured)


def _read(network: nn.Module, about: ImageNetNetwork, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    names = {**about.layers, LOGITS: LOGITS}
    outputs = extract(network, map(about.prepare, torch.split(images, BATCH)), list(names), progress=False)
    features = {names[name]: torch.as_tensor(values, device=images.device) for name, values in outputs.features.items()}
    return torch.as_tensor(outputs.logits, device=images.device), features
