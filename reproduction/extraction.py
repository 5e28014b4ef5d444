"""Read a network's layers and measure how far images lie from its training features, all on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from densecal.density.torch_search import kth_distances
from reproduction.classifiers import Classifier


class LayerReader:
    """Run a network on uint8 images and collect its logits and pooled, normalised layer outputs.

    ``layers`` None reads every module that has no children, each time it is called, in order.
    """

    def __init__(self, network: nn.Module, classifier: Classifier, layers: Sequence[str] | None, device: str) -> None:
        self.network = network.to(device).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        mean, std = (torch.tensor(values, device=device) for values in classifier.pixels)
        self.scale, self.shift = 1 / (255 * std), -mean / std
        self.features: dict[str, Tensor] = {}
        for name, module in self.network.named_modules():
            leaf = not any(True for _ in module.children())
            if name in layers if layers is not None else leaf and not isinstance(module, nn.Dropout):
                module.register_forward_hook(self._reader(name))
        self.wanted = layers

    def _reader(self, name: str):  # type: ignore[no-untyped-def]
        def read(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            key, call = name, 2
            while key in self.features:  # a ReLU that a block calls twice is two layers
                key, call = f"{name}:{call}", call + 1
            # Pooled at once: later modules may change the output in place.
            self.features[key] = functional.normalize(output.mean((2, 3)) if output.ndim == 4 else output, dim=1)

        return read

    @torch.inference_mode()
    def __call__(self, pixels: Tensor, *, batch: int = 2000) -> tuple[Tensor, dict[str, Tensor]]:
        """Give the logits and the features of (N, H, W, 3) uint8 images, both float32 on the device."""
        logits: list[Tensor] = []
        parts: list[dict[str, Tensor]] = []
        for part in pixels.split(batch):
            self.features = {}
            images = (part.to(self.scale.device).float() * self.scale + self.shift).permute(0, 3, 1, 2)
            output = self.network(images)
            logits.append(output)
            if self.wanted is not None:
                self.features["logits"] = functional.normalize(output, dim=1)
            parts.append(self.features)
        names = parts[0]
        return torch.cat(logits), {name: torch.cat([part[name] for part in parts]) for name in names}


def measure(
    reader: LayerReader, bank: dict[str, Tensor], sets: Iterator[tuple[str, Tensor]], ks: Sequence[int], folder: Path
) -> Iterator[tuple[str, Tensor]]:
    """Write logits and (N, layers, ks) distances of every set into ``folder``, float16; give each set's logits.

    A set whose file is there already is read back and not measured again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels in sets:
        path = folder / f"{name}.safetensors"
        if path.exists():
            yield name, load_file(path)["logits"].float()
            continue
        logits, features = reader(pixels)
        distances = torch.stack([kth_distances(features[layer], bank[layer], ks) for layer in bank], 1)
        partial = path.with_suffix(".partial")
        save_file({"logits": logits.half().cpu(), "distances": distances.half().cpu()}, partial)
        partial.rename(path)
        yield name, logits


def expected_calibration_error(logits: Tensor, labels: Tensor, bins: int = 15) -> tuple[float, float]:
    """Give accuracy and ECE (equal-width bins) of raw logits, to print while the run goes on."""
    confidence, predicted = logits.float().softmax(1).max(1)
    correct = (predicted.cpu() == labels.cpu()).double()
    confidence = confidence.double().cpu()
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, correct - confidence)
    return float(correct.mean()), float(gaps.abs().sum() / len(correct))
