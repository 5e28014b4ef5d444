"""extract_shards: extraction of a data set to many files, shared by any number of processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

from densecal.display import track
from densecal.errors import ArtefactError
from densecal.io.array_files import METADATA
from densecal.io.safetensors_file import read_header
from densecal.outputs.shards import SHARD_SIZE, shard_name
from densecal.torch.batches import BatchFn
from densecal.torch.extraction import Extraction
from densecal.torch.features.capture import on_device
from densecal.torch.features.layers import LayerChoice
from densecal.torch.fingerprint import weights_hash


def extract_shards(
    folder: str | Path,
    model: nn.Module,
    dataset: Dataset[Any],
    layers: LayerChoice = "auto",
    *,
    name: str = "part",
    shard_size: int = SHARD_SIZE,
    batch_size: int = 128,
    metadata: Mapping[str, str] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    batch_fn: BatchFn[Any] | None = None,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    feature_dtype: torch.dtype = torch.float32,
    progress: bool = True,
) -> list[Path]:
    """Extract this process's share of a data set to files in a folder, and return their paths.

    Each file holds ``shard_size`` consecutive samples, for any number of processes. Existing files are kept: to resume
    after an interruption, repeat the call. A file of another classifier or of other settings raises an error; whether
    the data are the same is not checked. ``Outputs.open(folder)`` reads all files as one data set.

    Parameters
    ----------
    folder : str or Path
        The folder of the files ``NAME-00000-of-00010.safetensors``, and of no other outputs.
    model, layers, batch_fn, device, autocast, feature_dtype, progress
        As in :func:`~densecal.torch.extract`.
    dataset : torch Dataset
        A data set with a length whose samples are read by their index.
    name : str
        The name of the data set in the names of the files.
    metadata : mapping of str to str, optional
        What is saved in every file.
    shard_size, batch_size : int
        Samples per file and per forward pass.
    rank, world_size : int, optional
        The index of this process and the number of processes; by default those of ``torchrun``, or one process.

    Examples
    --------
    >>> import tempfile
    >>> model, data = nn.Linear(4, 3), torch.utils.data.TensorDataset(torch.randn(10, 4), torch.arange(10) % 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for rank in range(2):  # in two processes
    ...         written = extract_shards(folder, model, data, shard_size=4, rank=rank, world_size=2)
    ...         print([path.name for path in written])
    ['part-00000-of-00003.safetensors', 'part-00002-of-00003.safetensors']
    ['part-00001-of-00003.safetensors']
    """
    options = {"batch_fn": batch_fn, "device": device, "autocast": autocast, "feature_dtype": feature_dtype}
    plan = ShardPlan(Path(folder), dataset, layers, name, shard_size, batch_size, dict(metadata or {}), options)
    writer = ShardWriter(plan, model)
    own = range(len(plan))[_share(rank, world_size)]
    with on_device(model, writer.run.device):
        return [writer.write(index) for index in (track(own, "extracting") if progress else own)]


def _share(rank: int | None, world_size: int | None) -> slice:
    """Return which of the files a process writes."""
    rank = int(os.environ.get("RANK", 0)) if rank is None else rank
    world_size = int(os.environ.get("WORLD_SIZE", 1)) if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must lie in 0 ... {world_size - 1} for {world_size} processes, got {rank}.")
    return slice(rank, None, world_size)


@dataclass(frozen=True)
class ShardPlan:
    """The plan of an extraction, without the model: the samples of each file. Its length is the number of files."""

    folder: Path
    dataset: Dataset[Any]
    layers: LayerChoice
    name: str
    shard_size: int
    batch_size: int
    metadata: dict[str, str]
    options: dict[str, Any]

    def __post_init__(self) -> None:
        if not hasattr(self.dataset, "__len__") or not hasattr(self.dataset, "__getitem__"):
            raise TypeError(
                f"Expected a data set with a length and an index, got {type(self.dataset).__name__}. For a stream use "
                "densecal.torch.extract_to, or Ray: densecal.integrations.ray.extract."
            )
        if self.shard_size < 1 or self.batch_size < 1:
            raise ValueError(f"shard_size and batch_size must be at least 1, got {self.shard_size}, {self.batch_size}.")
        if not len(self.dataset):
            raise ValueError("The data set has no samples.")

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.shard_size)  # type: ignore[arg-type]

    def path(self, index: int) -> Path:
        """Return the path of one of the files."""
        return self.folder / shard_name(self.name, index, len(self))

    def existing(self) -> list[Path]:
        """Return the files that exist already; raise if the folder holds other ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        expected = {self.path(index) for index in range(len(self))}
        found = sorted(path for path in self.folder.glob("*.safetensors") if not path.name.startswith("."))
        if others := [path.name for path in found if path not in expected]:
            raise ArtefactError(
                f"{self.folder} holds {others[0]}, which is none of the {len(self)} files "
                f"{self.path(0).name} ... of this extraction. Choose an empty folder, or remove it."
            )
        return found


class ShardWriter:
    """Writes files of a plan with a model."""

    def __init__(self, plan: ShardPlan, model: nn.Module) -> None:
        self.plan, self.run = plan, Extraction(model, plan.layers, **plan.options)
        self.settings = {**settings_of(self.run), "batch_size": str(plan.batch_size), **plan.metadata}
        for path in plan.existing()[:1]:
            self._check(path)

    def write(self, index: int) -> Path:
        """Write one file unless it exists, and return its path."""
        path = self.plan.path(index)
        if path.exists():
            self._check(path)
            return path
        start = index * self.plan.shard_size
        rows = range(start, min(start + self.plan.shard_size, len(self.plan.dataset)))  # type: ignore[arg-type]
        loader = DataLoader(Subset(self.plan.dataset, rows), batch_size=self.plan.batch_size)
        outputs = self.run.outputs(loader, progress=False)
        outputs.metadata = {**self.settings, "samples": f"{rows.start}-{rows.stop - 1}"}
        outputs.save(path)
        return path

    def _check(self, path: Path) -> None:
        """Raise if a file was written with another model or with other settings."""
        change = changed_setting(read_header(path).get(METADATA, {}), self.settings)
        if change is not None:
            raise ArtefactError(
                f"{path} was written with {change}. Choose another folder, or remove the files of that extraction."
            )


def settings_of(run: Extraction) -> dict[str, str]:
    """Return what the files of one extraction have in common, for their metadata."""
    choice = str(dict(run.choice)) if isinstance(run.choice, Mapping) else run.choice
    return {
        "weights": weights_hash(run.model)[:16],
        "autocast": str(run.autocast),
        "feature_dtype": str(run.feature_dtype),
        "layer_choice": choice if isinstance(choice, str) else ", ".join(choice),
    }


def changed_setting(found: Mapping[str, str], settings: Mapping[str, str]) -> str | None:
    """Return how the first setting that differs has changed, or None."""
    changes = (f"{name}={found.get(name)}, not {now}" for name, now in settings.items() if found.get(name) != now)
    return next(changes, None)
