"""A plain network on vectors, trained on one domain, and its measurements on others."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from densecal import Outputs
from densecal.arrays import ArrayLike
from reproduction.measuring.measurements import OOD, MeasuredSet, Measurements
from reproduction.measuring.reading import Banks

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Features = dict[str, Floats]
HIDDEN = (256, 128)
K = 10
"""The neighbour of the paper's DAC: the sources have about as many samples as its 1 % of ImageNet, where k is 10."""


class Vectors(NamedTuple):
    """Inputs of shape (n_samples, width) and labels; the labels of an out-of-domain set are not used."""

    inputs: Floats
    labels: Labels


class Network(nn.Module):
    """Linear layers with ReLU between them, on inputs standardised as the training data."""

    mean: Tensor
    std: Tensor

    def __init__(self, train: Floats, n_classes: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        widths = (train.shape[1], *hidden)
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.last = nn.Linear(widths[-1], n_classes)
        mean, std = train.mean(axis=0), train.std(axis=0)
        self.register_buffer("mean", torch.from_numpy(mean))
        # A column that hardly varies in the source must not dominate where it does vary.
        self.register_buffer("std", torch.from_numpy(np.maximum(std, 0.1 * std.mean())))

    def forward(self, inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return logits, and the input, the hidden layers and the logits as features."""
        values = (inputs - self.mean) / self.std
        features = {"input": values}
        for number, layer in enumerate(self.hidden, start=1):
            values = features[f"hidden{number}"] = torch.relu(layer(values))
        logits = self.last(values)
        return logits, {**features, "logits": logits}

    @torch.inference_mode()
    def read(self, data: Vectors) -> Outputs:
        """Return the outputs of the network on a set."""
        logits, features = self(torch.from_numpy(data.inputs))
        return Outputs(logits.numpy(), data.labels, {name: values.numpy() for name, values in features.items()})


def train_network(
    data: Vectors, n_classes: int, seed: int, *, hidden: tuple[int, ...] = HIDDEN, epochs: int = 30
) -> Network:
    """Train with Adam until the training data are learned, without regard to calibration."""
    torch.manual_seed(seed)
    network = Network(data.inputs, n_classes, hidden)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    inputs, labels = torch.from_numpy(data.inputs), torch.from_numpy(data.labels)
    for _ in range(epochs):
        for chosen in torch.split(torch.randperm(len(labels)), 64):
            optimizer.zero_grad()
            logits, _ = network(inputs[chosen])
            cross_entropy(logits, labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return network.eval()


def measure(name: str, train: Mapping[str, ArrayLike], sets: Mapping[str, Outputs]) -> Measurements:
    """Return logits and distances of each set, to the k-th training sample and to the nearest centre."""
    banks = Banks(train, K)
    measured = {}
    for key, outputs in sets.items():
        # Relative to the largest, with a floor: files hold values up to 128, and exp(-127) is zero.
        logits = np.maximum(outputs.logits - outputs.logits.max(axis=1, keepdims=True), -127)
        distances = banks.distances(outputs.features, [K])
        measured[key] = MeasuredSet(logits, distances, None if key.startswith(OOD) else outputs.labels)
    return Measurements(name, tuple(train), (K, None), measured)


def measure_vectors(name: str, network: Network, train: Vectors, sets: Mapping[str, Vectors]) -> Measurements:
    return measure(name, network.read(train).features, {key: network.read(data) for key, data in sets.items()})


def split_rows(count: int, seed: int, *parts: float) -> list[NDArray[np.int64]]:
    """Return random rows of these fractions, and the rest."""
    order = np.random.default_rng(seed).permutation(count)
    return np.split(order, np.cumsum([round(part * count) for part in parts]))
