"""The options of the commands that Ray can run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from densecal.cli.command import UsageError

LOCAL, RAY = "local", "ray"
_PANEL = "Where it runs"
Engine = Annotated[
    str, typer.Option(help="local: this process. ray: the workers of Ray (densecal[ray]).", rich_help_panel=_PANEL)
]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --engine ray: the cluster, such as auto or ray://HOST:10001. By default RAY_ADDRESS, or else Ray is "
        "started on this machine for the time of the command.",
        rich_help_panel=_PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="With --engine ray: the number of workers. By default as many as there is room for.",
        min=1,
        rich_help_panel=_PANEL,
    ),
]


@contextmanager
def open_engine(engine: str, address: str | None, workers: int | None) -> Iterator[Any]:
    """Yield the module for Ray, connected to a cluster, or None if the command is to run in this process."""
    if engine not in (LOCAL, RAY):
        raise UsageError(f"--engine must be {LOCAL} or {RAY}, got {engine!r}.")
    if engine == LOCAL:
        if address is not None or workers is not None:
            raise UsageError("--address and --workers are for --engine ray.")
        yield None
        return
    from densecal.integrations import ray as on_ray
    from densecal.integrations.ray.cluster import worker_errors

    with on_ray.cluster(address, workers=workers), worker_errors():
        _quieten()
        yield on_ray


def _quieten() -> None:
    """Let Ray Data show its progress in a terminal, and errors, but no log."""
    import ray

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = sys.stderr.isatty()
