"""What ``densecal extract`` runs: in this process, in each process of torchrun, or in the workers of Ray."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from densecal.cli.command import UsageError
from densecal.cli.models import Pixels
from densecal.io.files import check_output_file
from densecal.io.output_files import check_writable
from densecal.io.shard_files import SHARD_SIZE
from densecal.outputs import Outputs
from densecal.shift import Dataset
from densecal.torch import extract, extract_shards
from densecal.torch.features.layers import LayerChoice

LAYER_CHOICES = ("auto", "paper", "all", "logits")
WORLD_SIZE, LOCAL_RANK = "WORLD_SIZE", "LOCAL_RANK"
"""Variables that torchrun sets: the number of processes, and the number of this one on its machine."""


def check_output(output: Path, *, is_sharded: bool) -> bool:
    """Return whether the output is a folder of files; raise if its name or its folder does not fit."""
    if not is_sharded and int(os.environ.get(WORLD_SIZE, "1")) == 1:
        check_output_file(check_writable(output))
        return False
    if output.suffix in (".safetensors", ".npz") or output.is_file():
        raise UsageError(f"--output must be a folder for several files, got {output.name!r}.")
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"{output} cannot be made: the folder {output.parent} does not exist.")
    return True


def absolute_paths(data: str, root: Path | None) -> tuple[str, Path | None]:
    """Return the options with absolute paths, for workers that may have another working folder."""
    kind, _, folder = data.partition(":")
    data = f"{kind}:{Path(folder).absolute()}" if kind == "folder" and folder else data
    return data, None if root is None else root.absolute()


@dataclass
class Extractor:
    """A classifier, and how it runs over a data set."""

    network: nn.Module
    pixels: Pixels
    layers: str
    batch_size: int
    device: str
    with_labels: bool

    def count_classes(self, dataset: Dataset) -> int:
        """Return the number of logits, by a run over one image."""
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
        """Write the files of a folder, or those of this process; return whether all are there."""
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
