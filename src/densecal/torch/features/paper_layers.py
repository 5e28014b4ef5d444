"""The layers that the paper uses in each of its twelve classifiers, by their names in torchvision and timm.

This module does not import torch. The logits, which always come last, are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping

RESNET_LAYERS = ("maxpool", "layer1", "layer2", "layer3", "layer4")
VGG_LAYERS = ("features.4", "features.9", "features.16", "features.23", "features.30")
VGG_BN_LAYERS = ("features.6", "features.13", "features.23", "features.33", "features.43")
DENSENET_LAYERS = (
    "features.pool0",
    "features.transition1",
    "features.transition2",
    "features.transition3",
    "features.norm5",
)
XCEPTION_LAYERS = ("act2", *(f"block{i}" for i in range(1, 13)), "global_pool")
BIT_BLOCKS = (3, 4, 23, 3)
BIT_LAYERS = ("stem", *(f"stages.{i}.blocks.{j}" for i, n in enumerate(BIT_BLOCKS) for j in range(n)), "norm")
VIT_LAYERS = (*(f"blocks.{i}" for i in range(12)), "fc_norm")

PAPER_LAYERS: Mapping[str, tuple[str, ...]] = {
    "c10-resnet18": RESNET_LAYERS,
    "c10-vgg16": VGG_LAYERS,
    "c10-densenet121": DENSENET_LAYERS,
    "c100-resnet18": RESNET_LAYERS,
    "c100-vgg16": VGG_BN_LAYERS,
    "c100-densenet121": DENSENET_LAYERS,
    "img-resnet152": RESNET_LAYERS,
    "img-densenet169": DENSENET_LAYERS,
    "img-xception": XCEPTION_LAYERS,
    "img-bit-m": BIT_LAYERS,
    "img-resnext-wsl": RESNET_LAYERS,
    "img-vit-b": VIT_LAYERS,
}
"""The paper's name of a classifier -> its layers."""
