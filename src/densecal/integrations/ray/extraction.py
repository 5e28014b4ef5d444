"""extract and extract_shards: run a classifier over a data set with Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import ray.data
import torch
from torch import nn
from torch.utils.data import Dataset

from densecal.integrations.ray.cluster import Columns, Workers
from densecal.outputs.shards import SHARD_SIZE
from densecal.torch.batches import BatchFn
from densecal.torch.extraction import Extraction
from densecal.torch.features.layers import LayerChoice
from densecal.torch.shards import ShardPlan, ShardWriter

ModelFactory: TypeAlias = nn.Module | Callable[[], nn.Module]


def extract(
    dataset: ray.data.Dataset,
    model_factory: ModelFactory,
    layers: LayerChoice = "auto",
    *,
    keep: Sequence[str] = (),
    batch_size: int = 128,
    workers: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    batch_fn: BatchFn[Any] | None = None,
    autocast: torch.dtype | None = None,
    feature_dtype: torch.dtype = torch.float32,
) -> ray.data.Dataset:
    """Run a classifier over a Ray data set, and return a Ray data set of its logits, labels and pooled layer features.

    The columns of the result are ``logits``, ``labels`` (if any), ``features/LAYER`` and those to keep. Nothing runs
    before the result is used: by `write_shards`, `fit_bank` or `evaluate`, or by ``write_parquet`` of Ray.

    Parameters
    ----------
    dataset : ray.data.Dataset
        The data, such as of ``ray.data.read_images``, ``read_parquet`` or ``read_webdataset``.
    model_factory : callable or nn.Module
        A function that returns the classifier, called once by every worker, or the classifier, which is sent to them.
    keep : sequence of str
        Columns that are copied to the result, such as the names of the files.
    batch_size : int
        Samples per forward pass.
    workers : int, optional
        The number of workers; by default as many as the cluster has room for.
    num_cpus, num_gpus : float
        CPUs and GPUs per worker. With a GPU the classifier runs on it.
    layers, autocast, feature_dtype : optional
        As in :func:`~densecal.torch.extract`.
    batch_fn : callable, optional
        As in :func:`~densecal.torch.extract`: maps a batch to (args, kwargs, labels). The batch is a dict of the
        columns, those of numbers as tensors. Without it, the columns that are not kept are passed to ``forward`` by
        name.

    Examples
    --------
    >>> images = ray.data.read_images("s3://photos", include_paths=True)  # doctest: +SKIP
    >>> to_inputs = lambda batch: ((batch["image"].permute(0, 3, 1, 2) / 255,), {}, None)
    >>> resnet = lambda: torchvision.models.resnet50(weights="DEFAULT")
    >>> outputs = extract(images, resnet, batch_fn=to_inputs, keep=["path"], num_gpus=1)  # doctest: +SKIP
    """

    def make(model: nn.Module) -> Callable[[Columns], Columns]:
        extraction = Extraction(model, layers, batch_fn=batch_fn, autocast=autocast, feature_dtype=feature_dtype)

        def run(batch: Columns) -> Columns:
            (piece,) = extraction.pieces([as_inputs(batch, keep if batch_fn is None else ())], progress=False)
            return {**{name: batch[name] for name in keep}, **{name: one.numpy() for name, one in piece.items()}}

        return run

    return Workers(workers, num_cpus, num_gpus).map(dataset, model_factory, make, batch_size)


def extract_shards(
    folder: str | Path,
    model_factory: ModelFactory,
    dataset: Dataset[Any],
    layers: LayerChoice = "auto",
    *,
    name: str = "part",
    shard_size: int = SHARD_SIZE,
    batch_size: int = 128,
    metadata: Mapping[str, str] | None = None,
    workers: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    batch_fn: BatchFn[Any] | None = None,
    autocast: torch.dtype | None = None,
    feature_dtype: torch.dtype = torch.float32,
) -> list[Path]:
    """Extract a torch data set to files in a folder with the workers of Ray, and return their paths.

    The files are those of :func:`densecal.torch.extract_shards`, for any number of workers. A worker that dies is
    replaced. To resume after an interruption, repeat the call: existing files are kept.

    Parameters
    ----------
    folder : str or Path
        The folder of the files, which all workers reach by this path.
    dataset : torch Dataset
        A data set with a length whose samples are read by their index. It is sent to every worker.
    name, shard_size, metadata : optional
        As in :func:`densecal.torch.extract_shards`.
    model_factory : callable or nn.Module
        As in `extract`.
    layers, batch_size, workers, num_cpus, num_gpus, batch_fn, autocast, feature_dtype : optional
        As in `extract`.

    Examples
    --------
    >>> extract_shards("train", model, dataset, workers=4, num_gpus=1)  # doctest: +SKIP
    """
    options = {"batch_fn": batch_fn, "autocast": autocast, "feature_dtype": feature_dtype}
    target = Path(folder).absolute()
    plan = ShardPlan(target, dataset, layers, name, shard_size, batch_size, dict(metadata or {}), options)
    plan.existing()

    def make(model: nn.Module) -> Callable[[Columns], Columns]:
        writer = ShardWriter(plan, model)

        def write(batch: Columns) -> Columns:
            for index in batch["id"]:
                writer.write(int(index))
            return batch

        return write

    indices = ray.data.range(len(plan), override_num_blocks=len(plan))
    Workers(workers, num_cpus, num_gpus).map(indices, model_factory, make, batch_size=1).materialize()
    return [plan.path(index) for index in range(len(plan))]


def as_inputs(batch: Columns, left_out: Sequence[str]) -> dict[str, Any]:
    """Return the columns except ``left_out``; numbers as tensors, copied because the memory of Ray is read-only."""
    wanted = {name: values for name, values in batch.items() if name not in left_out}
    return {name: torch.tensor(one) if one.dtype.kind in "biuf" else one for name, one in wanted.items()}
