"""``densecal shift``: show the corruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from densecal.cli.app import print_json, print_values
from densecal.cli.inputs import DataRoot, Json, SingleValueCommand, UsageError, check_outputs

FORMATS = (".png", ".pdf", ".svg", ".jpg")

group = typer.Typer()


# The callback keeps `show` a subcommand although it is the only one.
@group.callback(invoke_without_command=True)
def show_help(context: typer.Context) -> None:
    """Show the corruptions that densecal uses for evaluation."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@group.command(cls=SingleValueCommand, epilog="Example: densecal shift show photo.jpg -o grid.png")
def show(
    source: Annotated[
        str, typer.Argument(help="An image file, or a data set such as cifar10, imagenet or folder:PATH.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The image file to write.")] = Path("grid.png"),
    index: Annotated[int, typer.Option(help="Index of the image in the data set.", min=0)] = 0,
    root: DataRoot = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw one image under all 18 corruptions at severities 1 to 5."""
    from densecal.io.atomic_files import atomic_write
    from densecal.shift import CORRUPTIONS, SEVERITIES, corruption_grid

    if output.suffix not in FORMATS:
        raise UsageError(f"--output must end in one of {', '.join(FORMATS)}, got {output.name!r}.")
    check_outputs({"--output": output}, {"the image": [Path(source)] if Path(source).is_file() else []})
    image = _read_image(source, index, root)
    figure = corruption_grid(image, seed, index=index)
    with atomic_write(output) as temporary:
        figure.savefig(temporary, format=output.suffix[1:])
    if as_json:
        print_json({"picture": output, "corruptions": list(CORRUPTIONS), "severities": list(SEVERITIES)})
        return
    drawn = {"image": f"{source}, {image.shape[1]} x {image.shape[0]}", "written to": str(output)}
    print_values(f"{len(CORRUPTIONS)} corruptions at {len(SEVERITIES)} severities", drawn)


def _read_image(source: str, index: int, root: Path | None) -> Any:
    if Path(source).is_file():
        import numpy as np
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(source) as image:
                return np.asarray(image.convert("RGB"))
        except UnidentifiedImageError:
            raise ValueError(f"{source} is not an image that Pillow can read.") from None
    from densecal.shift import DATASETS, open_dataset

    if source.partition(":")[0].lower() not in DATASETS:
        raise FileNotFoundError(
            f"{source} is neither an image file nor a data set; the data sets are {', '.join(DATASETS)}."
        )
    dataset = open_dataset(source, root=root)
    if index >= len(dataset):
        raise UsageError(f"--index {index} is out of range: the data set has {len(dataset):,} images.")
    return dataset[index][0]
