"""The networks of `reproduction.classifiers`, from torchvision and timm where available, and their weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torchvision import models

from densecal.cli.extraction import load_weights
from reproduction.classifiers import Classifier

# Torchvision's networks, unchanged: CIFAR-10's 32x32 images are not resized for their large stems.
resnet18, vgg16, densenet121 = models.resnet18, models.vgg16, models.densenet121


def cifar_stem_resnet18(*, num_classes: int) -> nn.Module:
    """Return ResNet18 with a 3x3 stem of stride 1 and no max-pool, as is usual for CIFAR-100.

    The identity replaces the max-pool, so the layers have torchvision's names.
    """
    network = models.resnet18(num_classes=num_classes)
    network.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.Identity()
    return cast(nn.Module, network)


def cifar_stem_densenet121(*, num_classes: int) -> nn.Module:
    """Return DenseNet121 with a 3x3 stem of stride 1 and no max-pool, as is usual for CIFAR-100."""
    network = models.densenet121(num_classes=num_classes)
    network.features.conv0 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(network.features.conv0.weight)
    network.features.pool0 = nn.Identity()
    return cast(nn.Module, network)


def cifar_vgg16_bn(*, num_classes: int) -> nn.Module:
    """Return VGG16 with batch norm, whose classifier takes the 512 features of a 32x32 image directly."""
    network = models.vgg16_bn(num_classes=num_classes)
    network.avgpool = nn.Identity()
    first = nn.Linear(512, 4096)
    nn.init.normal_(first.weight, 0, 0.01)
    nn.init.zeros_(first.bias)
    network.classifier[0] = first
    return cast(nn.Module, network)


def _torchvision(name: str, *, num_classes: int, pretrained: bool = False) -> nn.Module:
    weights = "IMAGENET1K_V1" if pretrained else None
    return cast(nn.Module, models.get_model(name, weights=weights, num_classes=num_classes))


def resnext_wsl(*, num_classes: int, pretrained: bool = False) -> nn.Module:
    """Return ResNeXt101 32x8d; its weakly supervised weights (Instagram images) are from torch.hub."""
    if pretrained:
        return cast(nn.Module, torch.hub.load("facebookresearch/WSL-Images", "resnext101_32x8d_wsl"))  # type: ignore[no-untyped-call]
    return cast(nn.Module, models.resnext101_32x8d(num_classes=num_classes))


def _timm(name: str, *, num_classes: int, pretrained: bool = False) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=pretrained, num_classes=num_classes)


resnet152 = partial(_torchvision, "resnet152")
densenet169 = partial(_torchvision, "densenet169")
xception = partial(_timm, "legacy_xception.tf_in1k")
bit_m = partial(_timm, "resnetv2_101x1_bit.goog_in21k_ft_in1k")
vit_b = partial(_timm, "vit_base_patch16_224.augreg_in21k_ft_in1k")


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
        # Subsample the pixels and pad the channels with zeros on both sides: "option A" of He et al.
        half = self.new_channels // 2
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.new_channels - half))


class CifarResNet(nn.Module):
    """Residual network of He et al. for 32x32 images: a 3x3 stem and three stages of 16, 32 and 64 channels.

    ``depth`` is the number of layers with weights: 6 n + 2, such as 20, 32, 44 or 56.
    """

    def __init__(self, depth: int, num_classes: int = 10) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"depth must be 6 n + 2, such as 20, 32, 44 or 56, got {depth}.")
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
        self.linear = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape (n_samples, num_classes) for normalised images of shape (n_samples, 3, 32, 32)."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
    first = _Block(inputs, outputs, stride=1 if inputs == outputs else 2)
    return nn.Sequential(first, *(_Block(outputs, outputs, stride=1) for _ in range(blocks - 1)))


cifar_resnet20, cifar_resnet32, cifar_resnet44, cifar_resnet56 = (
    partial(CifarResNet, depth) for depth in (20, 32, 44, 56)
)


def load_network(classifier: Classifier, weights: str | Path | None = None) -> nn.Module:
    """Return a classifier's network in evaluation mode, with the weights in a file or with the published ones."""
    if weights is None:
        return classifier.build(pretrained=True).eval()
    network = classifier.build()
    load_weights(network, Path(weights))
    return network.eval()
