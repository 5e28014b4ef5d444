"""``python -m reproduction.training``: train the paper's CIFAR classifiers."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def main(
    classifiers: Annotated[list[str], typer.Argument(help="Names such as c10-resnet18; all are trained at once.")],
    data: Annotated[Path, typer.Option(help="The folder of CIFAR-10 or CIFAR-100.")] = Path("data"),
    out: Annotated[Path, typer.Option(help="Write the weights to OUT/weights.")] = Path("results"),
    epochs: Annotated[int | None, typer.Option(help="Shorten the schedule to this many epochs.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds after which to stop with a checkpoint.")] = float("inf"),
    device: str | None = None,
    bench: Annotated[bool, typer.Option(help="Only time a step on random images.")] = False,
) -> None:
    """Train classifiers with the paper's recipe; run it again to continue after the time limit."""
    import torch

    from reproduction.training.run import Training, time_steps, train_together

    deadline = time.perf_counter() + time_limit
    torch.backends.cudnn.benchmark = True
    if bench:
        time_steps(classifiers, device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return
    wanted = [name for name in classifiers if not (out / "weights" / f"{name}.safetensors").exists()]
    # The graphs are captured before the threads start: nothing else may use the device during a capture.
    prepare = partial(Training, data=data, out=out, epochs=epochs, device=device)
    train_together([prepare(name) for name in wanted], deadline)


if __name__ == "__main__":
    typer.run(main)
