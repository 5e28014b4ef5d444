"""The classifiers of the paper as data: what each is, which layers DAC reads, where its weights come from.

Nothing here imports torch; :meth:`Classifier.build` does, when a network is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from densecal.torch.features.paper_layers import PAPER_LAYERS

if TYPE_CHECKING:
    from torch import nn

CIFAR10_PIXELS = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100_PIXELS = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
IMAGENET_PIXELS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SYMMETRIC_PIXELS = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

# The stem's ReLU is no module: its batch norm stands for the layer before the first block.
CIFAR_RESNET_LAYERS = ("bn1", "layer1", "layer2", "layer3")

_TRAIN_HERE = "trained from scratch: reproduction.training has the paper's recipe"


@dataclass(frozen=True)
class Classifier:
    """One row of the paper's tables.

    Attributes
    ----------
    name : str
        What the command line calls it, such as ``"c10-resnet18"``.
    label : str
        What the paper's tables call it, such as ``"C10 ResNet18"``.
    dataset : str
        ``"cifar10"``, ``"cifar100"`` or ``"imagenet"``.
    network : str
        The function of :mod:`reproduction.networks` that builds it.
    layers : tuple of str
        The modules DAC reads, from input to output; the logits come after them.
    head : str
        The module that gives the logits.
    k : int
        The neighbour whose distance DAC takes.
    bank_fraction : float
        The share of the training set in the feature bank.
    image_size : int
        Height and width of the input.
    pixels : pair of triples
        Mean and standard deviation of the input's normalisation, for pixels in [0, 1].
    weights : str
        Where the weights come from.
    in_paper : bool
        Whether the paper has it; the others are extra rows.

    Examples
    --------
    >>> CLASSIFIERS["c10-resnet18"].layers[0], CLASSIFIERS["c10-resnet18"].k
    ('maxpool', 50)
    >>> sum(c.in_paper for c in CLASSIFIERS.values())
    12
    """

    name: str
    label: str
    dataset: str
    network: str
    layers: tuple[str, ...]
    head: str
    k: int
    bank_fraction: float
    image_size: int
    pixels: tuple[tuple[float, float, float], tuple[float, float, float]]
    weights: str
    in_paper: bool = True

    @property
    def n_classes(self) -> int:
        """How many classes the data set has."""
        return {"cifar10": 10, "cifar100": 100, "imagenet": 1000}[self.dataset]

    def build(self, *, pretrained: bool = False) -> nn.Module:
        """Make the network, with random weights, or with the published ones where a library has them.

        Examples
        --------
        >>> network = CLASSIFIERS["c10-resnet18"].build()  # doctest: +SKIP
        """
        from reproduction import networks

        builder: Callable[..., nn.Module] = getattr(networks, self.network)
        if not pretrained:
            return builder(num_classes=self.n_classes)
        if self.dataset != "imagenet":
            raise ValueError(f"{self.name} has no published weights to load: {self.weights}")
        return builder(num_classes=self.n_classes, pretrained=True)


def _cifar(dataset: str, name: str, network: str, head: str) -> Classifier:
    short, k, pixels = {"cifar10": ("c10", 50, CIFAR10_PIXELS), "cifar100": ("c100", 200, CIFAR100_PIXELS)}[dataset]
    return Classifier(
        name=f"{short}-{name.lower()}",
        label=f"{short.upper()} {name}",
        dataset=dataset,
        network=network,
        layers=PAPER_LAYERS[f"{short}-{name.lower()}"],
        head=head,
        k=k,
        bank_fraction=1.0,
        image_size=32,
        pixels=pixels,
        weights=_TRAIN_HERE,
    )


def _imagenet(
    name: str,
    network: str,
    head: str,
    weights: str,
    *,
    image_size: int = 224,
    pixels: tuple[tuple[float, float, float], tuple[float, float, float]] = IMAGENET_PIXELS,
) -> Classifier:
    return Classifier(
        name=f"img-{name.lower()}",
        label=f"IMG {name}",
        dataset="imagenet",
        network=network,
        layers=PAPER_LAYERS[f"img-{name.lower()}"],
        head=head,
        k=10,
        bank_fraction=0.01,
        image_size=image_size,
        pixels=pixels,
        weights=weights,
    )


def _cifar_resnet(depth: int) -> Classifier:
    return Classifier(
        name=f"c10-resnet{depth}",
        label=f"C10 ResNet{depth}",
        dataset="cifar10",
        network=f"cifar_resnet{depth}",
        layers=CIFAR_RESNET_LAYERS,
        head="linear",
        k=50,
        bank_fraction=1.0,
        image_size=32,
        pixels=IMAGENET_PIXELS,
        weights="a published .th file, read by reproduction.cifar_resnet.load_cifar_resnet",
        in_paper=False,
    )


_ALL = (
    _cifar("cifar10", "ResNet18", "resnet18", "fc"),
    _cifar("cifar10", "VGG16", "vgg16", "classifier"),
    _cifar("cifar10", "DenseNet121", "densenet121", "classifier"),
    _cifar("cifar100", "ResNet18", "cifar_stem_resnet18", "fc"),
    _cifar("cifar100", "VGG16", "cifar_vgg16_bn", "classifier"),
    _cifar("cifar100", "DenseNet121", "cifar_stem_densenet121", "classifier"),
    _imagenet("ResNet152", "resnet152", "fc", "torchvision: ResNet152_Weights.IMAGENET1K_V1"),
    _imagenet(
        "DenseNet169",
        "densenet169",
        "classifier",
        "torchvision: DenseNet169_Weights.IMAGENET1K_V1",
    ),
    _imagenet(
        "Xception",
        "xception",
        "fc",
        "timm: legacy_xception.tf_in1k",
        image_size=299,
        pixels=SYMMETRIC_PIXELS,
    ),
    _imagenet(
        "BiT-M",
        "bit_m",
        "head",
        "timm: resnetv2_101x1_bit.goog_in21k_ft_in1k",
        image_size=448,
        pixels=SYMMETRIC_PIXELS,
    ),
    _imagenet(
        "ResNeXt-WSL",
        "resnext_wsl",
        "fc",
        "torch.hub: facebookresearch/WSL-Images, resnext101_32x8d_wsl",
    ),
    _imagenet(
        "ViT-B",
        "vit_b",
        "head",
        "timm: vit_base_patch16_224.augreg_in21k_ft_in1k",
        pixels=SYMMETRIC_PIXELS,
    ),
    *(_cifar_resnet(depth) for depth in (20, 32, 44, 56)),
)

CLASSIFIERS: Mapping[str, Classifier] = {classifier.name: classifier for classifier in _ALL}


def find_classifier(name: str) -> Classifier:
    """Give the classifier of this name, or an error that lists the names there are.

    Examples
    --------
    >>> find_classifier("img-vit-b").label
    'IMG ViT-B'
    """
    if name not in CLASSIFIERS:
        raise ValueError(f"classifier must be one of {', '.join(CLASSIFIERS)}; got {name!r}")
    return CLASSIFIERS[name]
