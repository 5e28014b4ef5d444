"""The networks behind :mod:`reproduction.classifiers`, from torchvision and timm where they exist."""

from __future__ import annotations

from typing import cast

from torch import nn


def resnet18(*, num_classes: int) -> nn.Module:
    """Torchvision's ResNet18, unchanged: its 7x7 stem sees CIFAR's 32x32 images as they are."""
    from torchvision import models

    return cast(nn.Module, models.resnet18(num_classes=num_classes))


def vgg16(*, num_classes: int) -> nn.Module:
    """Torchvision's VGG16 without batch norm, unchanged."""
    from torchvision import models

    return cast(nn.Module, models.vgg16(num_classes=num_classes))


def densenet121(*, num_classes: int) -> nn.Module:
    """Torchvision's DenseNet121, unchanged."""
    from torchvision import models

    return cast(nn.Module, models.densenet121(num_classes=num_classes))


def cifar_stem_resnet18(*, num_classes: int) -> nn.Module:
    """ResNet18 with a 3x3 stem of stride 1 and no max-pool, as is usual for CIFAR-100.

    The max-pool's place stays, filled with the identity, so that the layers keep torchvision's names.
    """
    from torchvision import models

    network = models.resnet18(num_classes=num_classes)
    network.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.Identity()
    return cast(nn.Module, network)


def cifar_stem_densenet121(*, num_classes: int) -> nn.Module:
    """DenseNet121 with a 3x3 stem of stride 1 and no max-pool, as is usual for CIFAR-100."""
    from torchvision import models

    network = models.densenet121(num_classes=num_classes)
    network.features.conv0 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(network.features.conv0.weight)
    network.features.pool0 = nn.Identity()
    return cast(nn.Module, network)


def cifar_vgg16_bn(*, num_classes: int) -> nn.Module:
    """VGG16 with batch norm whose classifier takes the 512 features of a 32x32 image directly."""
    from torchvision import models

    network = models.vgg16_bn(num_classes=num_classes)
    network.avgpool = nn.Identity()
    first = nn.Linear(512, 4096)
    nn.init.normal_(first.weight, 0, 0.01)
    nn.init.zeros_(first.bias)
    network.classifier[0] = first
    return cast(nn.Module, network)


def resnet152(*, num_classes: int, pretrained: bool = False) -> nn.Module:
    """Torchvision's ResNet152."""
    from torchvision import models

    weights = models.ResNet152_Weights.IMAGENET1K_V1 if pretrained else None
    return cast(nn.Module, models.resnet152(weights=weights, num_classes=num_classes))


def densenet169(*, num_classes: int, pretrained: bool = False) -> nn.Module:
    """Torchvision's DenseNet169."""
    from torchvision import models

    weights = models.DenseNet169_Weights.IMAGENET1K_V1 if pretrained else None
    return cast(nn.Module, models.densenet169(weights=weights, num_classes=num_classes))


def xception(*, num_classes: int, pretrained: bool = False) -> nn.Module:
    """Timm's Xception with the weights ported from TensorFlow."""
    return _timm("legacy_xception.tf_in1k", num_classes, pretrained)


def bit_m(*, num_classes: int, pretrained: bool = False) -> nn.Module:
    """Timm's BiT-M ResNetV2-101x1, trained on ImageNet-21k and fine-tuned on ImageNet-1k."""
    return _timm("resnetv2_101x1_bit.goog_in21k_ft_in1k", num_classes, pretrained)


def resnext_wsl(*, num_classes: int, pretrained: bool = False) -> nn.Module:
    """ResNeXt101 32x8d; its weights, weakly supervised on Instagram images, come from torch.hub."""
    import torch
    from torchvision import models

    if pretrained:
        return cast(nn.Module, torch.hub.load("facebookresearch/WSL-Images", "resnext101_32x8d_wsl"))  # type: ignore[no-untyped-call]
    return cast(nn.Module, models.resnext101_32x8d(num_classes=num_classes))


def vit_b(*, num_classes: int, pretrained: bool = False) -> nn.Module:
    """Timm's ViT-B/16 at 224 pixels, trained on ImageNet-21k and fine-tuned on ImageNet-1k."""
    return _timm("vit_base_patch16_224.augreg_in21k_ft_in1k", num_classes, pretrained)


def cifar_resnet20(*, num_classes: int) -> nn.Module:
    """He et al.'s CIFAR ResNet-20."""
    return _cifar_resnet(20, num_classes)


def cifar_resnet32(*, num_classes: int) -> nn.Module:
    """He et al.'s CIFAR ResNet-32."""
    return _cifar_resnet(32, num_classes)


def cifar_resnet44(*, num_classes: int) -> nn.Module:
    """He et al.'s CIFAR ResNet-44."""
    return _cifar_resnet(44, num_classes)


def cifar_resnet56(*, num_classes: int) -> nn.Module:
    """He et al.'s CIFAR ResNet-56."""
    return _cifar_resnet(56, num_classes)


def _cifar_resnet(depth: int, num_classes: int) -> nn.Module:
    from reproduction.cifar_resnet import CifarResNet

    return CifarResNet(depth, classes=num_classes)


def _timm(name: str, num_classes: int, pretrained: bool) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=pretrained, num_classes=num_classes)
