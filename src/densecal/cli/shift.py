"""``densecal shift``: look at the data that moves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from densecal.cli.screen import Json, facts_table, print_json, screen


def add_to(app: typer.Typer) -> None:
    """Add the group to the app."""
    group = typer.Typer()
    group.command(epilog="Example: densecal shift show photo.jpg -o grid.png")(show)
    # A callback keeps `show` a command of the group, though it is the only one.
    group.callback(invoke_without_command=True)(_group)
    app.add_typer(group, name="shift")


def _group(context: typer.Context) -> None:
    """Look at the corruptions that densecal tests with."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def show(
    source: Annotated[str, typer.Argument(help="An image file, or a data set: cifar10, imagenet, folder:PATH, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the picture.")] = Path("grid.png"),
    index: Annotated[int, typer.Option(help="Which image of the data set.", min=0)] = 0,
    root: Annotated[Path | None, typer.Option(help="Where the data set lies (else $DENSECAL_DATA, else data).")] = None,
    seed: Annotated[int, typer.Option(help="Another seed gives other noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw one image under all 18 corruptions at severities 1 to 5."""
    from densecal.io.storage import whole_file
    from densecal.shift import CORRUPTIONS, SEVERITIES, corruption_grid

    formats = (".png", ".pdf", ".svg", ".jpg")
    if output.suffix not in formats:
        raise ValueError(f"--output must end in one of {', '.join(formats)}, got {output.name!r}.")
    image = _read(source, index, root)
    figure = corruption_grid(image, seed, index=index)
    with whole_file(output) as temporary:
        figure.savefig(temporary, format=output.suffix[1:])
    metadata: dict[str, Any] = {"picture": output, "corruptions": list(CORRUPTIONS), "severities": list(SEVERITIES)}
    if as_json:
        print_json(metadata)
        return
    drawn = {"image": f"{source}, {image.shape[1]} x {image.shape[0]}", "written to": str(output)}
    screen().print(facts_table(f"{len(CORRUPTIONS)} corruptions at {len(SEVERITIES)} severities", drawn))


def _read(source: str, index: int, root: Path | None) -> Any:
    import numpy as np

    if Path(source).is_file():
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(source) as image:
                return np.asarray(image.convert("RGB"))
        except UnidentifiedImageError:
            raise ValueError(f"{source} is not an image that Pillow can read.") from None
    from densecal.shift import DATASETS, open_dataset

    if source.partition(":")[0].lower() not in DATASETS:
        raise FileNotFoundError(
            f"{source} is neither an image file nor a data set; data sets are {', '.join(DATASETS)}."
        )
    dataset = open_dataset(source, root=root)
    if index >= len(dataset):
        raise ValueError(f"--index {index} is beyond the data set: it has {len(dataset):,} images.")
    return dataset[index][0]
