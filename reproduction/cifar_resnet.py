"""The small residual networks of He et al. for CIFAR-10, and how to read their public checkpoints."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

CIFAR_RESNET_MEAN = (0.485, 0.456, 0.406)
"""Mean the public checkpoints were trained with (ImageNet's, on inputs in 0 to 1)."""
CIFAR_RESNET_STD = (0.229, 0.224, 0.225)
"""Standard deviation the public checkpoints were trained with."""


class _Block(nn.Module):
    """Two 3x3 convolutions around a shortcut without parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.new_channels = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + self._shortcut(x))

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.new_channels == 0:
            return x
        # Every second pixel, with channels of zeros on both sides: the "option A" of the paper.
        half = self.new_channels // 2
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.new_channels - half))


class CifarResNet(nn.Module):
    """He et al.'s residual network for 32x32 images: a 3x3 stem and three stages of 16, 32 and 64 channels.

    Parameters
    ----------
    depth
        Number of layers with weights: 6 n + 2, so 20, 32, 44, 56, ...
    classes
        Number of classes.

    Examples
    --------
    >>> import torch
    >>> from reproduction.cifar_resnet import CifarResNet
    >>> CifarResNet(20).eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, depth: int, classes: int = 10) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"depth={depth}: it must be 6 n + 2, for example 20, 32, 44 or 56.")
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, classes) of normalised images (N, 3, 32, 32)."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
    first = _Block(inputs, outputs, stride=1 if inputs == outputs else 2)
    return nn.Sequential(first, *(_Block(outputs, outputs, stride=1) for _ in range(blocks - 1)))


def load_cifar_resnet(path: str | os.PathLike[str]) -> CifarResNet:
    """Read a public checkpoint (`resnet20-12fca82f.th` and its like) as a network in evaluation mode.

    The depth follows from the file's blocks. Nothing is unpickled but tensors.

    Parameters
    ----------
    path
        A file whose `state_dict` has the names of `CifarResNet`, with or without the prefix `module.`.

    Examples
    --------
    >>> import tempfile, torch
    >>> from pathlib import Path
    >>> from reproduction.cifar_resnet import CifarResNet, load_cifar_resnet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "resnet20.th"
    ...     torch.save({"state_dict": CifarResNet(20).state_dict()}, file)
    ...     len(load_cifar_resnet(file).layer1)
    3
    """
    stored = torch.load(Path(path), map_location="cpu", weights_only=True)
    if not isinstance(stored, dict) or "state_dict" not in stored:
        raise ValueError(f"path={str(path)!r} holds no 'state_dict'; it must be a CIFAR ResNet checkpoint.")
    weights = OrderedDict((name.removeprefix("module."), value) for name, value in stored["state_dict"].items())
    if "linear.weight" not in weights or "layer1.0.conv1.weight" not in weights:
        raise ValueError(f"path={str(path)!r} is not a CIFAR ResNet: it holds no 'linear' or no 'layer1'.")
    blocks = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layer1."))
    network = CifarResNet(6 * blocks + 2, classes=len(weights["linear.weight"]))
    network.load_state_dict(weights)
    return network.eval()
