"""The paper's classifiers as data: the network, the layers DAC uses, k, and the source of the weights.

This module does not import torch; only methods of `Classifier` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from densecal.torch.features.paper_layers import PAPER_LAYERS

if TYPE_CHECKING:
    from torch import Tensor, nn

Pixels = tuple[tuple[float, float, float], tuple[float, float, float]]
CIFAR10_PIXELS: Pixels = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100_PIXELS: Pixels = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
IMAGENET_PIXELS: Pixels = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SYMMETRIC_PIXELS: Pixels = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

# The stem's ReLU is not a module, so its batch norm is the layer before the first block.
CIFAR_RESNET_LAYERS = ("bn1", "layer1", "layer2", "layer3")


@dataclass(frozen=True)
class Classifier:
    """One row of the paper's tables.

    ``name`` is used on the command line (``"c10-resnet18"``), ``label`` in the paper (``"C10 ResNet18"``), and
    ``network`` is the function of `reproduction.networks` that builds it. DAC uses the modules ``layers``, input to
    output, and the logits returned by the module ``head``. It measures the distance to the ``k``-th neighbour in a bank
    of ``bank_fraction`` of the training set. ``pixels`` are the mean and standard deviation of pixels in [0, 1].
    ``weights`` describes the source of the weights. ``in_paper`` is False for the additional networks.
    """

    name: str
    label: str
    dataset: str
    network: str
    layers: tuple[str, ...]
    head: str
    pixels: Pixels
    k: int
    weights: str
    bank_fraction: float = 1.0
    image_size: int = 32
    in_paper: bool = True

    @property
    def n_classes(self) -> int:
        return {"cifar10": 10, "cifar100": 100, "imagenet": 1000}[self.dataset]

    def build(self, *, pretrained: bool = False) -> nn.Module:
        """Return the network with random weights, or with published weights if a library provides them."""
        from reproduction import networks

        builder: Callable[..., nn.Module] = getattr(networks, self.network)
        if not pretrained:
            return builder(num_classes=self.n_classes)
        if self.dataset != "imagenet":
            raise ValueError(f"{self.name} has no published weights to load: {self.weights}")
        return builder(num_classes=self.n_classes, pretrained=True)

    def normalise(self, images: Tensor) -> Tensor:
        """Return uint8 images of shape (n_samples, height, width, 3) as input of the network."""
        import torch

        mean, std = (torch.tensor(values, device=images.device).view(3, 1, 1) for values in self.pixels)
        return (images.permute(0, 3, 1, 2) / 255 - mean) / std


def _cifar(dataset: str, name: str, network: str, head: str) -> Classifier:
    short, k, pixels = {"cifar10": ("c10", 50, CIFAR10_PIXELS), "cifar100": ("c100", 200, CIFAR100_PIXELS)}[dataset]
    key = f"{short}-{name.lower()}"
    weights = "trained from scratch with the paper's recipe (reproduction.training)"
    return Classifier(key, f"{short.upper()} {name}", dataset, network, PAPER_LAYERS[key], head, pixels, k, weights)


def _imagenet(
    name: str, network: str, head: str, weights: str, image_size: int = 224, pixels: Pixels = IMAGENET_PIXELS
) -> Classifier:
    key = f"img-{name.lower()}"
    layers = PAPER_LAYERS[key]
    return Classifier(key, f"IMG {name}", "imagenet", network, layers, head, pixels, 10, weights, 0.01, image_size)


def _cifar_resnet(depth: int) -> Classifier:
    key, label, network = f"c10-resnet{depth}", f"C10 ResNet{depth}", f"cifar_resnet{depth}"
    weights = "a published .th file"
    layers = CIFAR_RESNET_LAYERS
    return Classifier(key, label, "cifar10", network, layers, "linear", IMAGENET_PIXELS, 50, weights, in_paper=False)


_ALL = (
    _cifar("cifar10", "ResNet18", "resnet18", "fc"),
    _cifar("cifar10", "VGG16", "vgg16", "classifier"),
    _cifar("cifar10", "DenseNet121", "densenet121", "classifier"),
    _cifar("cifar100", "ResNet18", "cifar_stem_resnet18", "fc"),
    _cifar("cifar100", "VGG16", "cifar_vgg16_bn", "classifier"),
    _cifar("cifar100", "DenseNet121", "cifar_stem_densenet121", "classifier"),
    _imagenet("ResNet152", "resnet152", "fc", "torchvision: ResNet152_Weights.IMAGENET1K_V1"),
    _imagenet("DenseNet169", "densenet169", "classifier", "torchvision: DenseNet169_Weights.IMAGENET1K_V1"),
    _imagenet("Xception", "xception", "fc", "timm: legacy_xception.tf_in1k", 299, SYMMETRIC_PIXELS),
    _imagenet("BiT-M", "bit_m", "head", "timm: resnetv2_101x1_bit.goog_in21k_ft_in1k", 448, SYMMETRIC_PIXELS),
    _imagenet("ResNeXt-WSL", "resnext_wsl", "fc", "torch.hub: facebookresearch/WSL-Images, resnext101_32x8d_wsl"),
    _imagenet("ViT-B", "vit_b", "head", "timm: vit_base_patch16_224.augreg_in21k_ft_in1k", 224, SYMMETRIC_PIXELS),
    *(_cifar_resnet(depth) for depth in (20, 32, 44, 56)),
)

CLASSIFIERS: Mapping[str, Classifier] = {classifier.name: classifier for classifier in _ALL}


def find_classifier(name: str) -> Classifier:
    """Return the classifier with this name; the error for an unknown name lists the known names."""
    if name not in CLASSIFIERS:
        raise ValueError(f"classifier must be one of {', '.join(CLASSIFIERS)}; got {name!r}")
    return CLASSIFIERS[name]
