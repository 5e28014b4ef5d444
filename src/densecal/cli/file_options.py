"""The options that say what the columns or arrays of files hold, for every command that reads files of outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from densecal.io.file_layout import FileLayout

FILES = (
    "a .csv, .tsv, .parquet, .npz or .safetensors file or a folder of .npy, with arrays or columns logits, labels, "
    "features/LAYER"
)
MAX_FIT_SAMPLES = 100_000
"""Enough for methods with few parameters. Those with some per class still gain from more: `results/fit_samples`."""
MaxSamples = Annotated[
    int, typer.Option(help="The most validation samples to fit on: of more, so many random ones are used.", min=1)
]
_PANEL = "What the files hold"
_OPTIONS: dict[str, Any] = {
    "scores": Annotated[
        str | None,
        typer.Option(
            help="The columns of the scores, in the order of the classes, or a pattern: 'p_*'. A single one is the "
            "score of the second of two classes. Otherwise logit0, logit1, ... or logit_CLASS. Of arrays: its name.",
            rich_help_panel=_PANEL,
        ),
    ],
    "labels": Annotated[
        str | None,
        typer.Option(
            help="The column or array of the true classes, as numbers from 0 or names.", rich_help_panel=_PANEL
        ),
    ],
    "id": Annotated[
        str | None,
        typer.Option(
            "--id", help="A column or array that names the samples; `apply` writes it.", rich_help_panel=_PANEL
        ),
    ],
    "classes": Annotated[
        str | None,
        typer.Option(
            help="The names of the classes, in the order of the scores: cat,dog. By default those of the columns or of "
            "the calibrator.",
            rich_help_panel=_PANEL,
        ),
    ],
    "probabilities": Annotated[
        bool,
        typer.Option("--probabilities", help="The scores are probabilities or percentages.", rich_help_panel=_PANEL),
    ],
    "delimiter": Annotated[
        str | None, typer.Option(help="What separates the columns of a text file: ';' or tab.", rich_help_panel=_PANEL)
    ],
    "decimal": Annotated[
        str, typer.Option(help="What separates the decimals of a text file's numbers.", rich_help_panel=_PANEL)
    ],
    "assume_logits": Annotated[
        bool,
        typer.Option(
            "--assume-logits",
            help="Accept logits that look like probabilities or percentages.",
            rich_help_panel=_PANEL,
        ),
    ],
}


def reads_files(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``layout`` of a command by options for its fields."""
    hints = get_type_hints(command, include_extras=True)
    defaults = {one.name: one.default for one in fields(FileLayout)} | {"classes": None}
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    own = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, one in inspect.signature(command).parameters.items()
        if name != "layout"
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        layout = {name: given.pop(name) for name in _OPTIONS}
        layout["classes"] = tuple(name.strip() for name in (layout["classes"] or "").split(",") if name.strip())
        command(layout=FileLayout(**layout), **given)

    run.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*own, *options]}
    return run
