"""The connection to Ray, and tasks and workers that apply a function to items or batches."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import ray.data
from numpy.typing import NDArray
from ray.data import ActorPoolStrategy

Columns: TypeAlias = dict[str, NDArray[Any]]
"""A batch of Ray Data."""
MakeWork: TypeAlias = Callable[[Any], Callable[[Columns], Any]]
Item = TypeVar("Item")
Result = TypeVar("Result")
SPARE_CPUS = 2
"""CPUs that workers leave: workers keep theirs to the end, so the tasks that read, and the one that skips what an
interrupted run has written, would wait for the workers, and these for them."""


@contextmanager
def cluster(address: str | None = None, *, workers: int | None = None) -> Iterator[None]:
    """Connect to a Ray cluster, or start Ray on this machine and stop it at the end.

    Parameters
    ----------
    address : str, optional
        The address of a cluster, such as ``"auto"`` or ``"ray://host:10001"``; by default that of ``RAY_ADDRESS``, or
        else this machine, where Ray sends no usage statistics.
    workers : int, optional
        The number of workers that this machine must have room for; by default its number of cores.

    Examples
    --------
    >>> with cluster(workers=2):  # doctest: +SKIP
    ...     extract_shards("train", model, dataset)
    """
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        cores = (os.cpu_count() or 1) if workers is None else workers
        options |= {"num_cpus": cores + SPARE_CPUS, "include_dashboard": False}
    ray.init(address or "local", **options)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def worker_errors() -> Iterator[None]:
    """Replace the long message of an error in a worker, of which Ray keeps only the text, with its last line."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        first, *_ = str(error).split("\n\nThe above exception was the direct cause")
        kind, _, message = first.strip().splitlines()[-1].partition(": ")
        raise ValueError(f"{message or kind} (in a worker of Ray)") from error


def has_gpus() -> bool:
    """Return whether the cluster has GPUs."""
    return bool(ray.cluster_resources().get("GPU"))


class _Worker:
    def __init__(self, make: MakeWork, model: Any, on_gpu: bool) -> None:
        from torch import nn  # Imported by workers alone: it takes seconds and hundreds of megabytes.

        own = model if isinstance(model, nn.Module) else model()
        self.work = make(own.to("cuda") if on_gpu else own)

    def __call__(self, batch: Columns) -> Any:
        return self.work(batch)


class Workers(NamedTuple):
    """The number of workers, by default as many as fit in the cluster, and the CPUs and GPUs of each."""

    number: int | None
    num_cpus: float
    num_gpus: float

    def map(self, dataset: ray.data.Dataset, model: Any, make: MakeWork, batch_size: int | None) -> ray.data.Dataset:
        """Apply to every batch the function that ``make(model)`` returns; each worker has its own.

        The model is a module, which is sent to the workers, or a function that returns one. It runs on the GPU, if any.
        """
        return dataset.map_batches(
            _Worker,
            fn_constructor_args=(make, model, self.num_gpus > 0),
            batch_size=batch_size,
            compute=ActorPoolStrategy(size=self._size()),
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
        )

    def _size(self) -> int:
        if not ray.is_initialized():
            ray.init()
        cpus, gpus = (ray.cluster_resources().get(name, 0) for name in ("CPU", "GPU"))
        wanted = self.number or 1
        limits = [(cpus - SPARE_CPUS, self.num_cpus), (gpus, self.num_gpus)]
        most = min((int(there // each) for there, each in limits if each), default=wanted)
        if wanted > most:
            raise ValueError(
                f"{wanted} workers with {self.num_cpus:g} CPUs and {self.num_gpus:g} GPUs each, and {SPARE_CPUS} CPUs "
                f"for the other tasks, are more than the cluster has: {cpus:g} CPUs and {gpus:g} GPUs. Pass fewer "
                "workers or a smaller num_cpus, or start Ray with more: ray.init(num_cpus=...)."
            )
        return self.number or most


def map_tasks(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the results of a function for each item, in order, like ``map``; every item is a Ray task.

    The tasks share the function. Results that are waiting stay in Ray's memory or are spilled to disk.

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
    """Return a context in which a data set yields its rows in order. Its options are shared with its sources."""
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
