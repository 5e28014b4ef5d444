"""Run a model from torchvision, timm or the user's own code over a data set, for ``densecal extract``.

The model runs in this process, in each process of torchrun, or in the workers of Ray.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from densecal.cli.inputs import UsageError
from densecal.io.array_files import check_writable
from densecal.io.files import check_output_file
from densecal.outputs import Outputs
from densecal.outputs.shards import SHARD_SIZE
from densecal.shift import Dataset
from densecal.torch import extract, extract_shards
from densecal.torch.features.layers import LayerChoice

Pixels = tuple[tuple[float, float, float], tuple[float, float, float]]
LAYER_CHOICES = ("auto", "paper", "all", "logits")
WORLD_SIZE, LOCAL_RANK = "WORLD_SIZE", "LOCAL_RANK"
"""Variables that torchrun sets: the number of processes, and the index of this one on its machine."""


def check_output(output: Path, *, is_sharded: bool) -> bool:
    """Return whether the output is a folder of files; raise if it cannot be written."""
    if not is_sharded and int(os.environ.get(WORLD_SIZE, "1")) == 1:
        check_output_file(check_writable(output))
        return False
    if output.suffix in (".safetensors", ".npz") or output.is_file():
        raise UsageError(f"--output must be a folder for several files, got {output.name!r}.")
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"{output} cannot be created: the folder {output.parent} does not exist.")
    return True


def absolute_paths(data: str, root: Path | None) -> tuple[str, Path | None]:
    """Return the options with absolute paths, for workers with another working directory."""
    kind, _, folder = data.partition(":")
    data = f"{kind}:{Path(folder).absolute()}" if kind == "folder" and folder else data
    return data, None if root is None else root.absolute()


@dataclass
class Extractor:
    """A classifier, and the options of its run over a data set."""

    network: nn.Module
    pixels: Pixels
    layers: str
    batch_size: int
    device: str
    with_labels: bool

    def count_classes(self, dataset: Dataset) -> int:
        """Return the number of logits, from a run on one image."""
        return self._run(dataset.subset(range(1)), "logits").n_classes

    def write(self, dataset: Dataset, path: Path, metadata: dict[str, str]) -> bool:
        """Write one file."""
        outputs = self._run(dataset, self._choice())
        outputs.metadata = metadata
        outputs.save(path)
        return True

    def write_shards(
        self,
        dataset: Dataset,
        folder: Path,
        metadata: dict[str, str],
        shard_size: int | None,
        on_ray: Any,
        workers: int | None,
    ) -> bool:
        """Write all shards of a folder, or those of this process; return whether the folder is complete."""
        size = shard_size or SHARD_SIZE
        options: dict[str, Any] = {"shard_size": size, "batch_size": self.batch_size, "metadata": metadata}
        options |= {"name": folder.name, "batch_fn": self._split, "feature_dtype": torch.float16}
        images = self._images(dataset)
        if on_ray is None:
            extract_shards(folder, self.network, images, self._choice(), device=self._device(), **options)
        else:
            from densecal.integrations.ray.cluster import has_gpus

            num_gpus = int(self.device != "cpu" and has_gpus())
            options |= {"workers": workers, "num_gpus": num_gpus}
            on_ray.extract_shards(folder, self.network, images, self._choice(), **options)
        return len(list(folder.glob("*.safetensors"))) == -(-len(dataset) // size)

    def _run(self, dataset: Dataset, layers: LayerChoice) -> Outputs:
        loader = DataLoader(self._images(dataset), batch_size=self.batch_size)
        options = {"device": self._device(), "feature_dtype": torch.float16, "batch_fn": self._split}
        outputs: Outputs = extract(self.network, loader, layers, **options)
        return outputs

    def _images(self, dataset: Dataset) -> Any:
        mean, std = self.pixels
        return dataset.as_torch(mean=mean, std=std)

    def _choice(self) -> LayerChoice:
        return self.layers if self.layers in LAYER_CHOICES else [name.strip() for name in self.layers.split(",")]

    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        return f"cuda:{os.environ.get(LOCAL_RANK, 0)}" if torch.cuda.is_available() else "cpu"

    @property
    def _split(self) -> Any:
        return None if self.with_labels else _without_labels


def _without_labels(batch: Any) -> Any:
    return (batch[0],), {}, None


def build_model(
    spec: str, num_classes: int, *, weights: Path | None = None, pretrained: bool = False
) -> tuple[nn.Module, Pixels | None]:
    """Return the model named by ``spec`` and, if the library provides them, the mean and std of its inputs."""
    library, _, name = spec.partition(":")
    pixels: Pixels | None = None
    if not name:
        raise UsageError(f"Unknown model {spec!r}. Use torchvision:NAME, timm:NAME or package.module:callable.")
    if library == "torchvision":
        model = _from_torchvision(name, num_classes, pretrained)
    elif library == "timm":
        model, pixels = _from_timm(name, num_classes, pretrained)
    else:
        model = _from_user(library, name, num_classes)
    if weights is not None:
        load_weights(model, weights)
    return model, pixels


def _from_torchvision(name: str, num_classes: int, pretrained: bool) -> nn.Module:
    from torchvision import models

    if name not in models.list_models():
        raise UsageError(f"torchvision has no model {name!r}. It has {', '.join(models.list_models()[:6])}, ...")
    # Pretrained weights fix the number of classes.
    options: dict[str, Any] = {"weights": "DEFAULT"} if pretrained else {"weights": None, "num_classes": num_classes}
    model: nn.Module = models.get_model(name, **options)
    return model


def _from_timm(name: str, num_classes: int, pretrained: bool) -> tuple[nn.Module, Pixels | None]:
    import timm

    options: dict[str, Any] = {} if pretrained else {"num_classes": num_classes}
    try:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
    except RuntimeError as error:
        raise UsageError(f"timm has no model {name!r}: {error}") from error
    if not pretrained:
        return model, None
    # Not every pretrained model was trained with ImageNet's usual normalisation.
    published: Any = model.pretrained_cfg
    return model, (tuple(published["mean"]), tuple(published["std"]))


def _from_user(module: str, name: str, num_classes: int) -> nn.Module:
    # Modules in the current folder can be imported, as with `python -m`.
    sys.path.insert(0, str(Path.cwd()))
    try:
        made: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ValueError(f"The module {module!r} of the model cannot be imported: {error}") from error
    except AttributeError:
        raise ValueError(f"The module {module!r} has no {name!r}.") from None
    finally:
        sys.path.pop(0)
    if isinstance(made, nn.Module):
        return made
    takes = inspect.signature(made).parameters
    model = made(num_classes=num_classes) if "num_classes" in takes else made()
    if not isinstance(model, nn.Module):
        raise TypeError(f"{module}:{name} must return a torch.nn.Module, got {type(model).__name__}.")
    return model


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a state_dict into a model; the prefix that `DataParallel` adds to names is removed."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: --weights must name a file.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as weights (code is not unpickled): {error}") from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    state = {name.removeprefix("module."): value for name, value in state.items()}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = " ".join(str(error).split())
        raise ValueError(f"The weights in {path} do not match the model: {lines[:300]}") from error
