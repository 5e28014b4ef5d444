"""read_shards and write_shards: Ray data sets from and to files of outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
from ray.data.block import BlockAccessor
from ray.data.checkpoint import CheckpointConfig
from ray.data.datasource import BlockBasedFileDatasink

from densecal.integrations.ray.cluster import Columns
from densecal.io.output_files import FEATURE_PREFIX
from densecal.outputs import Outputs
from densecal.outputs.shards import SHARD_SIZE

LOGITS, LABELS, SAMPLE = "logits", "labels", "sample"
READ_ROWS = 4096
"""Rows that are read at once."""


def read_shards(source: str | Path | Sequence[str | Path], *, assume_logits: bool = False) -> ray.data.Dataset:
    """Return a Ray data set of files of outputs: one data set, one task per file.

    Its columns are ``sample`` (the number of the sample in the data set), ``logits``, ``labels`` (if any) and
    ``features/LAYER``.

    Parameters
    ----------
    source : str, Path or sequence of them
        As in ``Outputs.open``: a folder, a pattern or files, which all workers reach by this path.
    assume_logits : bool
        Whether to accept logits that look like probabilities.

    Examples
    --------
    >>> read_shards("test").count()  # doctest: +SKIP
    10000
    """
    parts = Outputs.open(source, assume_logits=assume_logits).parts()
    shared = ray.put(parts)
    places = ray.data.range(len(parts), override_num_blocks=len(parts))

    def read(batch: Columns) -> Iterator[Columns]:
        for place in batch["id"]:
            start, part = ray.get(shared)[place]
            for outputs in part.batches(READ_ROWS):
                columns = {SAMPLE: np.arange(start, start + len(outputs)), LOGITS: outputs.logits}
                if outputs.labels is not None:
                    columns[LABELS] = outputs.labels
                yield columns | {FEATURE_PREFIX + layer: values for layer, values in outputs.features.items()}
                start += len(outputs)

    return places.map_batches(read, batch_size=1)


def write_shards(
    dataset: ray.data.Dataset, folder: str | Path, *, id_column: str | None = None, shard_size: int = SHARD_SIZE
) -> None:
    """Write a Ray data set of outputs, such as `extract` returns, to files that ``Outputs.open(folder)`` reads.

    Parameters
    ----------
    dataset : ray.data.Dataset
        Its columns are ``logits``, ``labels`` (optional) and ``features/LAYER``; others are not written.
    folder : str or Path
        The folder, which all workers reach by this path, or its address in cloud storage.
    id_column : str, optional
        A column with a different value for every sample, such as the path of its image, in the data set as it was read
        and in the results (see ``keep`` of `extract`). An interrupted call then resumes when it is repeated: Ray
        records in ``FOLDER.checkpoint`` which samples are written, reads only the others, and removes unfinished files.
    shard_size : int
        The minimum number of samples per file, except for the last.

    Examples
    --------
    >>> outputs = extract(ray.data.read_images("photos", include_paths=True), model, keep=["path"])  # doctest: +SKIP
    >>> write_shards(outputs, "outputs", id_column="path")  # doctest: +SKIP
    """
    target, context = str(folder) if "://" in str(folder) else str(Path(folder).absolute()), dataset.context
    before = context.checkpoint_config
    if id_column is not None:
        record = f"{target}.checkpoint"
        context.checkpoint_config = CheckpointConfig(id_column, record, delete_checkpoint_on_success=False)
    try:
        dataset.write_datasink(_ShardSink(target, min_rows_per_file=shard_size, file_format="safetensors"))
    finally:
        context.checkpoint_config = before


class _ShardSink(BlockBasedFileDatasink):  # type: ignore[misc]  # Ray's types are not followed.
    def write_block_to_file(self, block: BlockAccessor, file: Any) -> None:
        """Write one file; its checksum is known last, and a stream cannot go back to its place."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "shard.safetensors"
            to_outputs(block.to_batch_format("numpy")).save(path)
            file.write(path.read_bytes())


def to_outputs(batch: Columns, *, assume_logits: bool = False) -> Outputs:
    """Return the outputs in a batch of Ray Data."""
    if LOGITS not in batch:
        raise ValueError(f"The data set must have a column {LOGITS!r}, as of extract or read_shards; got {[*batch]}.")
    return Outputs(batch[LOGITS], batch.get(LABELS), features_of(batch), assume_logits=assume_logits)


def features_of(batch: Columns) -> Columns:
    """Return the features in a batch of Ray Data, by layer."""
    return {name.removeprefix(FEATURE_PREFIX): batch[name] for name in batch if name.startswith(FEATURE_PREFIX)}
