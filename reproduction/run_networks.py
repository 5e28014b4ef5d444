"""The networks of the GPU run: which there are, where their weights lie, and how they are loaded."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file

from reproduction.classifiers import find_classifier

TRAINED = ("c10-resnet18", "c10-vgg16", "c10-densenet121")
PRETRAINED = ("c10-resnet20", "c10-resnet32", "c10-resnet44", "c10-resnet56")


def networks(arguments: argparse.Namespace, default: tuple[str, ...]) -> tuple[str, ...]:
    """Give the networks the command line names."""
    if arguments.networks == "all":
        return default
    return tuple(arguments.networks.split(","))


def weights_path(name: str, arguments: argparse.Namespace) -> Path:
    """Where a trained network's weights lie."""
    return arguments.work / f"{name}{arguments.tag}.safetensors"


def load_network(name: str, arguments: argparse.Namespace) -> torch.nn.Module:
    """Load a network trained here or by others."""
    if name in PRETRAINED:
        from reproduction.cifar_resnet import load_cifar_resnet

        depth = name.removeprefix("c10-resnet")
        return load_cifar_resnet(next(arguments.work.glob(f"resnet{depth}-*.th")))
    network = find_classifier(name).build()
    network.load_state_dict(load_file(weights_path(name, arguments)))
    return network
