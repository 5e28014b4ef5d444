"""Run a model from torchvision, timm or the user's own code over a data set, for ``densecal extract``.

The model runs in this process, in each process of torchrun, or in the workers of Ray.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from densecal.cli.inputs import UsageError
from densecal.io.array_files import check_writable
from densecal.outputs import Outputs
from densecal.outputs.shards import SHARD_SIZE
from densecal.shift import Dataset, Perturbed, ResizeCrop, open_dataset
from densecal.torch import extract, extract_shards
from densecal.torch.features.layers import LayerChoice

Pixels = tuple[tuple[float, float, float], tuple[float, float, float]]
RESIZE_BEFORE_CROP = 256 / 224
"""Size of the resized image relative to the crop, as is usual for ImageNet."""
LAYER_CHOICES = ("auto", "paper", "all", "logits")
WORLD_SIZE, LOCAL_RANK = "WORLD_SIZE", "LOCAL_RANK"
"""Variables that torchrun sets: the number of processes, and the index of this one on its machine."""


def check_output(output: Path, *, is_sharded: bool) -> bool:
    """Return whether the output is a folder of files; raise if it cannot be written."""
    if not is_sharded and int(os.environ.get(WORLD_SIZE, "1")) == 1:
        check_writable(output)
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


def open_data(data: str, root: Path | None, split: str | None, image_size: int | None) -> Dataset:
    """Return a data set, whose image files are resized and cropped to a size if there is one."""
    crop = None if image_size is None else ResizeCrop(round(image_size * RESIZE_BEFORE_CROP), image_size)
    dataset: Dataset = open_dataset(data, root=root, split=split, **({"transform": crop} if crop else {}))
    return dataset


def describe_data(dataset: Dataset) -> dict[str, str]:
    """Return the metadata of a data set: its name, its corruption and severity, its split and seed."""
    condition = "perturbed" if isinstance(dataset, Perturbed) else getattr(dataset, "corruption", "clean")
    metadata = {"data": dataset.name, "condition": condition, "severity": getattr(dataset, "severity", 0)}
    metadata |= {"split": dataset.split, "seed": getattr(dataset, "seed", "")}
    return {name: str(value) for name, value in metadata.items() if value != ""}


class Extractor:
    """A classifier, and the options of its run over a data set."""

    def __init__(
        self, network: nn.Module, pixels: Pixels, layers: str, batch_size: int, device: str, *, with_labels: bool
    ) -> None:
        self.network, self.pixels, self.batch_size = network, pixels, batch_size
        self.layers = layers if layers in LAYER_CHOICES else [name.strip() for name in layers.split(",")]
        self.device, self.may_use_gpu = device, device != "cpu"
        if device == "auto":
            self.device = f"cuda:{os.environ.get(LOCAL_RANK, 0)}" if torch.cuda.is_available() else "cpu"
        self.options: dict[str, Any] = {"feature_dtype": torch.float16}
        if not with_labels:
            self.options["batch_fn"] = _without_labels

    def check_classes(self, model: str, dataset: Dataset) -> None:
        """Raise unless the model has a logit for each class of the data set, from a run on one image."""
        n_classes = self._run(dataset.subset(range(1)), "logits").n_classes
        if n_classes != dataset.n_classes:
            raise ValueError(
                f"{model} has {n_classes} classes, but {dataset.name} has {dataset.n_classes}: its labels are not "
                "those of the model. Use a data set with the model's classes, such as one folder per class in the "
                "model's order, or --ood if the images belong to none of them."
            )

    def write(self, dataset: Dataset, path: Path, metadata: dict[str, str]) -> bool:
        """Write one file."""
        outputs = self._run(dataset, self.layers)
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
        options = {**self.options, "shard_size": size, "batch_size": self.batch_size, "metadata": metadata}
        given = folder, self.network, self._images(dataset), self.layers
        if on_ray is None:
            extract_shards(*given, device=self.device, name=folder.name, **options)
        else:
            from densecal.integrations.ray.cluster import has_gpus

            num_gpus = int(self.may_use_gpu and has_gpus())
            on_ray.extract_shards(*given, workers=workers, num_gpus=num_gpus, name=folder.name, **options)
        return len(list(folder.glob("*.safetensors"))) == -(-len(dataset) // size)

    def _run(self, dataset: Dataset, layers: LayerChoice) -> Outputs:
        loader = DataLoader(self._images(dataset), batch_size=self.batch_size)
        outputs: Outputs = extract(self.network, loader, layers, device=self.device, **self.options)
        return outputs

    def _images(self, dataset: Dataset) -> Any:
        return dataset.as_torch(mean=self.pixels[0], std=self.pixels[1])


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
