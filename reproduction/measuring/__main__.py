"""``python -m reproduction.measuring``: measure classifiers on a local copy of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reproduction.classifiers import find_classifier


def main(
    classifiers: Annotated[list[str], typer.Argument(help="Names such as c10-resnet18.")],
    data: Annotated[Path, typer.Option(help="The folder of the data set.")],
    weights: Annotated[Path | None, typer.Option(help="Folder of CLASSIFIER.safetensors or resnetNN-*.th.")] = None,
    out: Annotated[Path, typer.Option(help="Write the measurements to OUT/measurements/CLASSIFIER.")] = Path("results"),
    perturbed: Annotated[bool, typer.Option(help="Also measure the perturbed sets of the shift-fit study.")] = False,
    all_layers: Annotated[int | None, typer.Option(help="Measure all layers, on this many images per set.")] = None,
    limit: Annotated[int | None, typer.Option(help="Number of images per set, for a trial run.")] = None,
    device: str | None = None,
) -> None:
    """Measure logits and neighbour distances of every data set; an interrupted run continues where it stopped."""
    from reproduction.measuring.run import find_weights, measure

    folder = out / "weights" if weights is None else weights
    for name in classifiers:
        about = find_classifier(name)
        file = find_weights(about, folder)
        found = measure(
            name, data, weights=file, out=out, perturbed=perturbed, all_layers=all_layers, limit=limit, device=device
        )
        print(f"{name}: {found}")


if __name__ == "__main__":
    typer.run(main)
