"""Images: PACS and Office-Caltech10 with features of an ImageNet network, and digits with a network from scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from densecal import Outputs
from densecal.shift import Dataset, ImageFolder, Perturbed, ResizeCrop, plan_perturbations
from reproduction.measuring.measurements import CLEAN, PERTURBED, VAL, Measurements
from reproduction.measuring.reading import read_dataset
from reproduction.natural.digits import read_digits
from reproduction.natural.efficientnet import POOL, build_network, read_features
from reproduction.natural.vector_network import (
    Features,
    Labels,
    Network,
    Vectors,
    measure,
    split_rows,
    train_network,
)
from reproduction.networks import CifarResNet

SIZE = 128
COPIES = 3
SMALLEST_SOURCE = 900
EPOCHS = 8
DIGIT_LAYERS = ("bn1", "layer1", "layer2", "layer3", "logits")


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def domains_of_folders(study: str, data: Path, seed: int) -> Iterator[Measurements]:
    """Train a linear classifier on EfficientNet's features of each domain, a folder of class folders in ``data``."""
    network = build_network(_device())
    folders = sorted(path for path in data.iterdir() if path.is_dir())
    sets = {path.name: ImageFolder(path, transform=ResizeCrop(SIZE, SIZE, "bicubic")) for path in folders}
    every = {name: read_features(network, dataset) for name, dataset in sets.items()}
    for source, dataset in sets.items():
        if len(dataset) < SMALLEST_SOURCE:
            continue
        val, test, train = split_rows(len(dataset), seed, 0.2, 0.2)
        own = every[source]
        head = train_network(Vectors(own[POOL][train], dataset.labels[train]), dataset.n_classes, seed, hidden=())
        whole = _read_head(head, own, dataset.labels)
        measured = {
            VAL: whole[val],
            CLEAN: whole[test],
            **{name: _read_head(head, every[name], other.labels) for name, other in sets.items() if name != source},
        }
        measured |= perturbed_images(dataset.subset(val), seed, partial(_read_images, network, head))
        yield measure(f"{study}-{source}-{seed}", whole[train].features, measured)


def perturbed_images(dataset: Dataset, seed: int, read: Callable[[Dataset], Outputs]) -> dict[str, Outputs]:
    """Return perturbed copies of a set, divided into domains by the kind and strength of the perturbation."""
    copies = range(COPIES * seed, COPIES * (seed + 1))
    outputs = [read(Perturbed(dataset, copy, device=_device())) for copy in copies]
    names = np.concatenate([plan_perturbations(np.arange(len(dataset)), copy).domains() for copy in copies])
    return {f"{PERTURBED}{name}": part for name, part in Outputs.concatenate(outputs).split(names).items()}


def _read_images(network: nn.Module, head: Network, dataset: Dataset) -> Outputs:
    return _read_head(head, read_features(network, dataset), dataset.labels)


def _read_head(head: Network, features: Features, labels: Labels) -> Outputs:
    logits = head.read(Vectors(features[POOL], labels)).logits
    return Outputs(logits, labels, {**features, "logits": logits})


def pacs(data: Path, seed: int) -> Iterator[Measurements]:
    """Photographs, art paintings, cartoons and sketches of seven classes."""
    return domains_of_folders("pacs", data, seed)


def office(data: Path, seed: int) -> Iterator[Measurements]:
    """Office-Caltech10: objects of ten classes, from a shop, a benchmark and two cameras."""
    return domains_of_folders("office", data, seed)


def digits(data: Path, seed: int) -> Iterator[Measurements]:
    """Train a ResNet-20 on MNIST, USPS or SVHN and evaluate it on the others, as 32x32 colour images."""
    domains = read_digits(data)
    for source, dataset in domains.items():
        val, test, train = split_rows(len(dataset), seed, 0.15, 0.15)
        network = _train_digits(dataset.subset(train), seed)
        sets: dict[str, Dataset] = {VAL: dataset.subset(val), CLEAN: dataset.subset(test)}
        sets |= {name: other for name, other in domains.items() if name != source}
        read = partial(read_dataset, network, layers=DIGIT_LAYERS, prepare=_prepare)
        measured = {key: read(each) for key, each in sets.items()}
        measured |= perturbed_images(dataset.subset(val), seed, read)
        yield measure(f"digits-{source}-{seed}", read(dataset.subset(train)).features, measured)


def _train_digits(dataset: Dataset, seed: int) -> CifarResNet:
    torch.manual_seed(seed)
    device = _device()
    network = CifarResNet(20).to(device)
    pixels, labels = (torch.from_numpy(array).to(device) for array in dataset.batch(range(len(dataset))))
    images = _prepare(pixels)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    steps = EPOCHS * (len(labels) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for chosen in torch.split(torch.randperm(len(labels), device=device), 128)[: len(labels) // 128]:
            optimizer.zero_grad()
            cross_entropy(network(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return network.eval()


def _prepare(pixels: Tensor) -> Tensor:
    return pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
