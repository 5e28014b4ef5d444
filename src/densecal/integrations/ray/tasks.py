"""map_tasks: a function applied to many items by the tasks of Ray."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import ray.data
from numpy.typing import NDArray

Columns: TypeAlias = dict[str, NDArray[Any]]
"""A batch of Ray Data."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def map_tasks(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield what a function returns for each item, in order, like ``map``; every item is a task of Ray.

    The function is shared by the tasks, and results that wait are in the memory of Ray, or spilled to disk.

    Examples
    --------
    >>> with cluster():  # doctest: +SKIP
    ...     table = evaluate_conditions(calibrators, conditions, mapper=map_tasks)
    """
    given = list(items)
    shared = ray.put((function, given))
    places = ray.data.range(len(given), override_num_blocks=len(given))

    def run(batch: Columns) -> pa.Table:
        apply, each = ray.get(shared)
        return pack(apply(each[batch["id"][0]]))

    with in_order(places.map_batches(run, batch_size=1)) as found:
        yield from unpack(found)


@contextmanager
def in_order(dataset: ray.data.Dataset) -> Iterator[ray.data.Dataset]:
    """Let a data set yield its rows in order for a while. It shares its options with those that it was made of."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield dataset
    finally:
        options.preserve_order = before


def pack(value: object) -> pa.Table:
    """Return an object as a row of Ray Data."""
    return pa.table({"state": [pickle.dumps(value)]})


def unpack(dataset: ray.data.Dataset) -> Iterator[Any]:
    """Yield the objects in the rows of a data set."""
    for row in dataset.iter_rows():
        yield pickle.loads(row["state"])
