"""ImageNet networks whose weights come inside a package: EfficientNet-Lite0 to Lite2, and a ResNet-50 of Keras."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torchvision.models import resnet50

from densecal.torch.features.paper_layers import PAPER_LAYERS
from reproduction.natural.efficientnet import build_network, layers_of
from reproduction.natural.vector_network import Floats


@dataclass(frozen=True)
class ImageNetNetwork:
    """A network, its input size, the mean and scale of its pixels (0 to 255), and the names of its feature layers.

    ``build`` takes the folder of the weights.
    """

    size: int
    mean: tuple[float, float, float]
    scale: float
    layers: Mapping[str, str]
    build: Callable[[Path], nn.Module]

    def prepare(self, images: Tensor) -> Tensor:
        """Return uint8 images of shape (n_samples, height, width, 3) as input, enlarged to the input size."""
        pixels = images.permute(0, 3, 1, 2).float()
        if pixels.shape[-1] != self.size:
            pixels = interpolate(pixels, size=(self.size, self.size), mode="bicubic", antialias=True).clamp(0, 255)
        return (pixels - torch.tensor(self.mean, device=images.device).view(3, 1, 1)) / self.scale


def keras_arrays(folder: Path) -> dict[str, Floats]:
    """Return the weights of a Keras model stored for TensorFlow.js: ``model.json`` and the files that it names."""
    arrays: dict[str, Floats] = {}
    for group in json.loads((folder / "model.json").read_text())["weightsManifest"]:
        values = b"".join((folder / path).read_bytes() for path in group["paths"])
        start = 0
        for one in group["weights"]:
            dtype = np.dtype(one["dtype"]).newbyteorder("<")
            count = math.prod(one["shape"])
            found = np.frombuffer(values, dtype, count, offset=start)
            arrays[one["name"]] = found.reshape(one["shape"]).astype(np.float32)
            start += count * dtype.itemsize
        if start != len(values):
            raise ValueError(f"{folder} must hold {start:,} bytes, as its model.json says, got {len(values):,}.")
    return arrays


def keras_resnet50(arrays: Mapping[str, Floats]) -> nn.Module:
    """Return torchvision's ResNet-50 with Keras's weights: strides in the first convolution of a block, RGB input.

    Keras's convolutions have biases; they are subtracted from the means of the batch norms that follow.
    """
    network = resnet50()
    for stage in (network.layer2, network.layer3, network.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    state: dict[str, Tensor] = {}

    def take(convolution: str, norm: str, source: str, source_norm: str) -> None:
        state[f"{convolution}.weight"] = torch.tensor(arrays[f"{source}/kernel"].transpose(3, 2, 0, 1).copy())
        parts = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
        for ours, theirs in parts.items():
            state[f"{norm}.{ours}"] = torch.tensor(arrays[f"{source_norm}/{theirs}"])
        state[f"{norm}.running_mean"] -= torch.tensor(arrays[f"{source}/bias"])

    take("conv1", "bn1", "conv1", "bn_conv1")
    for stage, blocks in ((1, 3), (2, 4), (3, 6), (4, 3)):
        for block in range(blocks):
            ours, theirs = f"layer{stage}.{block}", f"{stage + 1}{'abcdef'[block]}_branch"
            for number, letter in enumerate("abc", start=1):
                source = f"{theirs}2{letter}"
                take(f"{ours}.conv{number}", f"{ours}.bn{number}", f"res{source}", f"bn{source}")
            if block == 0:
                take(f"{ours}.downsample.0", f"{ours}.downsample.1", f"res{theirs}1", f"bn{theirs}1")
    state["conv1.weight"] = state["conv1.weight"].flip(1)  # from BGR
    state["fc.weight"] = torch.tensor(arrays["fc1000/kernel"].T.copy())
    state["fc.bias"] = torch.tensor(arrays["fc1000/bias"])
    counters = {name: value for name, value in network.state_dict().items() if name.endswith("num_batches_tracked")}
    network.load_state_dict({**state, **counters})
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3
    return cast(nn.Module, network.eval())


def _efficientnet(number: int, size: int) -> ImageNetNetwork:
    return ImageNetNetwork(
        size, (127.0, 127.0, 127.0), 128.0, layers_of(number), lambda _: build_network(torch.device("cpu"), number)
    )


_RESNET_LAYERS = PAPER_LAYERS["img-resnet152"]
NETWORKS: Mapping[str, ImageNetNetwork] = {
    "lite0": _efficientnet(0, 224),
    "lite1": _efficientnet(1, 240),
    "lite2": _efficientnet(2, 260),
    "resnet50": ImageNetNetwork(
        224,
        (123.68, 116.779, 103.939),
        1.0,
        dict(zip(_RESNET_LAYERS, _RESNET_LAYERS, strict=True)),
        lambda folder: keras_resnet50(keras_arrays(folder)),
    ),
}
"""The networks by name."""
