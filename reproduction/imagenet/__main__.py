"""``python -m reproduction.imagenet``: four ImageNet networks under the corruptions of ImageNet-C."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help=__doc__, no_args_is_help=True)
Networks = Annotated[list[str], typer.Argument(help="lite0, lite1, lite2, resnet50.")]
Measured = Annotated[Path, typer.Option(help="Folder of the measurements.")]
Results = Annotated[Path, typer.Option(help="Folder of the committed results.")]
MEASURED, RESULTS = Path("runs/imagenet"), Path("results/imagenet")


@app.command()
def crop(
    val: Annotated[Path, typer.Option(help="Validation images, a folder per class, named by its number.")],
    train: Annotated[Path, typer.Option(help="Training images, named by their WordNet ids.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
) -> None:
    """Write crops of 224x224 pixels of all images."""
    from reproduction.imagenet.images import crop_all

    crop_all(val, train, out)


@app.command()
def measure(
    networks: Networks,
    images: Annotated[Path, typer.Option(help="Folder of the crops.")],
    weights: Annotated[Path, typer.Option(help="Folder of ResNet-50's model.json.")] = Path("ResNet50"),
    measured: Measured = MEASURED,
    n_classes: Annotated[int, typer.Option(help="Only the first classes, for a trial.")] = 1000,
) -> None:
    """Store compact logits and distances of each network on all sets."""
    import torch

    from reproduction.imagenet.measure import load_images, make_sets
    from reproduction.imagenet.measure import measure as measure_network

    start = time.monotonic()
    parts = load_images(images, torch.device("cuda" if torch.cuda.is_available() else "cpu"), n_classes)
    sets = make_sets(parts)
    print(f"{len(sets)} sets after {time.monotonic() - start:.0f} s", flush=True)
    for name in networks:
        measure_network(name, parts, sets, weights).save(measured / name)
        print(f"{name} after {time.monotonic() - start:.0f} s", flush=True)


@app.command()
def judge(networks: Networks, measured: Measured = MEASURED, results: Results = RESULTS) -> None:
    """Fit and evaluate every method on the measurements of each network."""
    from reproduction.imagenet.judge import judge as judge_network
    from reproduction.measuring.measurements import Measurements
    from reproduction.studies.corruptions import write_judged

    for name in networks:
        write_judged(results, name, *judge_network(Measurements.load(measured / name)))


@app.command()
def page(results: Results = RESULTS) -> None:
    """Write README.md of the results from their tables."""
    import pandas as pd

    from reproduction.imagenet.page import summary

    single, means = (
        pd.concat([pd.read_csv(path, dtype={"severity": str}) for path in sorted(results.glob(pattern))])
        for pattern in ("*.csv.gz", "*-means.csv")
    )
    (results / "README.md").write_text(summary(single, means))


if __name__ == "__main__":
    app()
