"""Outputs: a classifier's logits and features on one data set, and their distances from the training data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from densecal.arrays import ArrayLike, ArrayOrTensor, as_array, namespace, random_rows, row_blocks, to_numpy
from densecal.arrays.checks import (
    as_floats,
    check_features,
    check_finite,
    check_labels,
    check_numbers,
    check_scores_shape,
    reject_probabilities,
)
from densecal.io import output_files
from densecal.io.atomic_files import name_file_in_errors
from densecal.io.output_files import FEATURE_PREFIX, FileContent, FileLayout

if TYPE_CHECKING:
    from densecal.outputs.shards import OutputShards

Rows: TypeAlias = int | slice | Sequence[int] | ArrayOrTensor
"""A row index, a slice, several row indices or a boolean mask."""
BATCH_SIZE = 4096
"""The rows of a batch, by default."""


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances of samples from the training data in each layer.

    Attributes
    ----------
    values : array of shape (n_samples, n_layers)
        Euclidean distances between normalised features.
    layers : tuple of str
        The layer of each column.
    k : int or None
        The distance is to the k-th nearest training sample, or to the nearest centre of the training samples (None).
    bank : str or None
        The fingerprint of the bank that measured them, if known.

    Examples
    --------
    >>> import numpy as np
    >>> distances = Distances(np.array([[0.1, 0.4], [0.3, 0.2]]), layers=("layer1", "pool"), k=10)
    >>> len(distances[:1])
    1
    """

    values: ArrayOrTensor
    layers: tuple[str, ...]
    k: int | None
    bank: str | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __getitem__(self, rows: Rows) -> Distances:
        return replace(self, values=self.values[rows])


class Outputs:
    """Logits, labels and layer features of one data set.

    Parameters
    ----------
    logits : array of shape (n_samples, n_classes)
        The classifier's scores before the softmax.
    labels : array of shape (n_samples,) or one-hot, optional
        The true classes as integers; absent for unlabelled data.
    features : mapping of str to array of shape (n_samples, width), optional
        The output of each layer, averaged over positions or tokens. float16 is kept.
    metadata : mapping of str to str, optional
        The origin of the arrays: classifier, data set, condition. Saved in the file and shown by ``densecal inspect``.
    assume_logits : bool, default False
        Whether to accept logits that look like probabilities or percentages. Not saved.

    Attributes
    ----------
    distances : Distances or None
        Set by ``Calibrator.measure`` to share one neighbour search between several calls. Not saved.

    Examples
    --------
    >>> outputs = Outputs([[2.0, 1.0], [0.0, 3.0]], labels=[0, 1], features={"pool": np.eye(2)})
    >>> len(outputs), outputs.layers
    (2, ('pool',))
    >>> outputs[1:].labels
    array([1])
    """

    def __init__(
        self,
        logits: ArrayLike,
        labels: ArrayLike | None = None,
        features: Mapping[str, ArrayLike] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        assume_logits: bool = False,
    ) -> None:
        self.logits: ArrayOrTensor = check_numbers(as_array(logits, "logits"), "logits")
        check_scores_shape(self.logits)
        check_finite(self.logits, "logits")
        samples, classes = self.logits.shape
        self.labels: ArrayOrTensor | None = None if labels is None else check_labels(labels, samples, classes)
        self.features: dict[str, ArrayOrTensor] = check_features(features or {})
        for layer, array in self.features.items():
            if array.shape[0] != samples:
                raise ValueError(f"features[{layer!r}] has {array.shape[0]} samples but logits have {samples}.")
            self.features[layer] = check_numbers(array, f"features[{layer!r}]")
            check_finite(self.features[layer], f"features[{layer!r}]")
        self.metadata = dict(metadata or {})
        self.assume_logits = assume_logits
        self.distances: Distances | None = None

    def checked_logits(self, name: str = "logits") -> ArrayOrTensor:
        """Return the logits as finite floats; raise if they look like probabilities, unless ``assume_logits``."""
        check_scores_shape(self.logits, name)  # A part of the outputs may have no samples.
        logits: ArrayOrTensor = as_floats(self.logits)  # finite since they were set
        return logits if self.assume_logits else reject_probabilities(logits, name)

    def with_distances(self, distances: Distances) -> Outputs:
        """Return a copy of the outputs with distances from the training data."""
        if len(distances) != len(self):
            raise ValueError(f"distances have {len(distances)} samples but logits have {len(self)}.")
        measured = copy(self)
        measured.distances = distances
        return measured

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in order."""
        return tuple(self.features)

    @property
    def has_labels(self) -> bool:
        """Whether the outputs have labels."""
        return self.labels is not None

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.logits.shape[1])

    def __len__(self) -> int:
        return int(self.logits.shape[0])

    def __repr__(self) -> str:
        widths = ", ".join(f"{layer}: {array.shape[1]}" for layer, array in self.features.items())
        labelled = "labels" if self.labels is not None else "no labels"
        samples = f"{len(self)} sample" if len(self) == 1 else f"{len(self)} samples"
        return f"Outputs({samples}, {self.n_classes} classes, {labelled}, features {{{widths}}})"

    def __getitem__(self, rows: Rows) -> Outputs:
        """Return the outputs of the rows given by an index, a slice, an index array or a boolean mask."""
        if isinstance(rows, (int, np.integer)):
            position = range(len(self))[int(rows)]
            rows = slice(position, position + 1)
        part = copy(self)
        part.logits = self.logits[rows]
        part.labels = None if self.labels is None else self.labels[rows]
        part.features = {layer: array[rows] for layer, array in self.features.items()}
        part.metadata = dict(self.metadata)
        part.distances = None if self.distances is None else self.distances[rows]
        return part

    def batches(self, batch_size: int = BATCH_SIZE) -> Iterator[Outputs]:
        """Yield the outputs of at most ``batch_size`` rows at a time, in order."""
        for rows in row_blocks(len(self), 1, batch_size):
            yield self[rows]

    def sample(self, size: int, seed: int = 0) -> Outputs:
        """Return at most ``size`` random rows, in their order."""
        rows = random_rows(len(self), size, seed)
        return self if rows is None else self[rows]

    def split(self, names: ArrayLike) -> dict[str, Outputs]:
        """Return the outputs of each name; ``names`` has one name per sample, such as its domain."""
        names = np.asarray(names)
        return {str(name): self[np.flatnonzero(names == name)] for name in np.unique(names)}

    @classmethod
    def concatenate(cls, parts: Iterable[Outputs]) -> Outputs:
        """Concatenate outputs of the same classifier."""
        parts = list(parts)
        if not parts:
            raise ValueError("concatenate needs at least one Outputs, got none.")
        first = parts[0]
        for number, part in enumerate(parts[1:], start=1):
            if part.layers != first.layers or part.n_classes != first.n_classes:
                raise ValueError(
                    f"Outputs {number} has {part.n_classes} classes and layers {part.layers}, the first has "
                    f"{first.n_classes} classes and layers {first.layers}: they are outputs of different classifiers."
                )
            if (part.labels is None) != (first.labels is None):
                raise ValueError(f"Outputs {number} and the first must both have labels, or neither.")
        xp = namespace(first.logits)
        labels = None if first.labels is None else xp.concat([part.labels for part in parts])
        features = {layer: xp.concat([part.features[layer] for part in parts]) for layer in first.layers}
        joined = cls(
            xp.concat([part.logits for part in parts]),
            labels,
            features,
            metadata=first.metadata,
            assume_logits=all(part.assume_logits for part in parts),
        )
        measured = [part.distances for part in parts if part.distances is not None]
        if len(measured) < len(parts) or len({(one.layers, one.k, one.bank) for one in measured}) > 1:
            return joined
        return joined.with_distances(replace(measured[0], values=xp.concat([one.values for one in measured])))

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, or an ``.npz`` file if ``path`` has that suffix. The write is atomic.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Outputs([[2.0, 1.0]], labels=[0]).save(folder + "/val.safetensors")
        ...     print(Outputs.load(folder + "/val.safetensors"))
        Outputs(1 sample, 2 classes, labels, features {})
        """
        arrays = {"logits": to_numpy(self.logits)}
        if self.labels is not None:
            arrays["labels"] = to_numpy(self.labels)
        for layer, array in self.features.items():
            arrays[FEATURE_PREFIX + layer] = to_numpy(array)
        output_files.write(path, arrays, self.metadata)

    @classmethod
    def load(cls, path: str | Path, *, assume_logits: bool = False, max_bytes: int | None = None) -> Outputs:
        """Read a safetensors file (memory-mapped), an ``.npz``, ``.csv`` or ``.parquet`` file, or a folder of ``.npy``.

        In a safetensors file, an ``.npz`` file or a folder the arrays are named ``logits``, ``labels`` (optional) and
        ``features/LAYER`` (in a folder: ``features/LAYER.npy``). A table has the columns ``logit0``, ``logit1``, ... or
        ``logit_CLASS``, ``label`` (optional; also the names of classes) and ``features/LAYER/0``, ... (optional). The
        logits keep the order of the columns, whatever their names. `open` reads all tables in the order of the first.

        Parameters
        ----------
        path, assume_logits
            The file or folder to read, and whether to accept logits that look like probabilities.
        max_bytes : int, optional
            The memory that the arrays of a compressed ``.npz`` file may take, by default 50 times the size of the file
            or 256 MiB, whichever is more.
        """
        return make_outputs(path, output_files.read(path, FileLayout(assume_logits=assume_logits), max_bytes))

    @classmethod
    def open(
        cls, source: str | Path | Sequence[str | Path], *, assume_logits: bool = False, verify: bool = False
    ) -> OutputShards:
        """Open outputs in one or many files, which are read in batches when they are used.

        Parameters
        ----------
        source : str, path or sequence of them
            A folder of shards, a pattern such as ``"outputs/test-*.safetensors"``, one file, or the files in order.
            Shards named ``test-00000-of-00002.safetensors``, ... must be complete, each once; other names are read in
            natural order, ``part-2`` before ``part-10``. A sequence of files may leave shards out.
        assume_logits : bool, default False
            Whether to accept logits that look like probabilities or percentages.
        verify : bool, default False
            Whether to compare each safetensors file with its checksum now, which reads it once more.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for rank in range(2):
        ...         Outputs([[2.0, 1.0]] * 3, labels=[rank] * 3).save(f"{folder}/test-{rank:05}-of-00002.safetensors")
        ...     shards = Outputs.open(folder)
        ...     print(len(shards), shards.n_classes, [len(batch) for batch in shards.batches(2)])
        6 2 [2, 1, 2, 1]
        """
        from densecal.outputs.shards import OutputShards

        return OutputShards(source, FileLayout(assume_logits=assume_logits), verify=verify)


def make_outputs(path: str | Path, content: FileContent) -> Outputs:
    """Return the outputs of a file's content."""
    with name_file_in_errors(path):
        return Outputs(
            content.logits,
            content.labels,
            content.features,
            metadata=content.metadata,
            assume_logits=content.assume_logits,
        )
