"""Options that several commands share. No heavy imports: ``densecal --help`` reads this module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FILES = "a .safetensors, .npz or .csv file or a folder of .npy, with arrays logits, labels, features/LAYER"

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DataRoot = Annotated[
    Path | None, typer.Option("--root", help="The folder of the data sets; the default is $DENSECAL_DATA or ./data.")
]
