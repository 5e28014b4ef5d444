"""A connection to Ray, and how many workers it has room for."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.data import ActorPoolStrategy

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
        The number of workers to make room for on this machine; by default its number of cores.

    Examples
    --------
    >>> with cluster(workers=2):  # doctest: +SKIP
    ...     extract_shards("train", model, dataset)
    """
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if address is not None:
        ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
    else:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        cores = (os.cpu_count() or 1) if workers is None else workers
        room = {"num_cpus": cores + SPARE_CPUS, "include_dashboard": False}
        ray.init("local", **room, log_to_driver=False, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def worker_errors() -> Iterator[None]:
    """Replace the long message of an error in a worker, of which Ray keeps only the text, by its last line."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        first, *_ = str(error).split("\n\nThe above exception was the direct cause")
        kind, _, message = first.strip().splitlines()[-1].partition(": ")
        raise ValueError(f"{message or kind} (in a worker of Ray)") from error


def has_gpus() -> bool:
    """Return whether the cluster has GPUs."""
    return float(ray.cluster_resources().get("GPU", 0)) > 0


def actor_pool(workers: int | None, num_cpus: float, num_gpus: float) -> ActorPoolStrategy:
    """Return a pool of so many workers, by default as many as the cluster has room for."""
    if not ray.is_initialized():
        ray.init()
    resources = ray.cluster_resources()
    most = int((resources.get("CPU", 0) - SPARE_CPUS) // num_cpus) if num_cpus else (workers or 1)
    if num_gpus:
        most = min(most, int(resources.get("GPU", 0) // num_gpus))
    if (workers or 1) > most:
        raise ValueError(
            f"{workers or 1} workers with {num_cpus:g} CPUs and {num_gpus:g} GPUs each, and {SPARE_CPUS} CPUs for the "
            f"other tasks, are more than the cluster has: {resources.get('CPU', 0):g} CPUs and "
            f"{resources.get('GPU', 0):g} GPUs. Pass fewer workers or a smaller num_cpus, or start Ray with more: "
            "ray.init(num_cpus=...)."
        )
    return ActorPoolStrategy(size=workers or most)
