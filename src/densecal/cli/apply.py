"""``densecal apply``: calibrate new data with a fitted calibrator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from densecal.cli.command import UsageError
from densecal.cli.file_options import FILES, reads_files
from densecal.cli.screen import Json, collect_warnings, print_json, print_values
from densecal.io.file_layout import FileLayout

WRITTEN = (".csv", ".tsv", ".parquet", ".npz")


@reads_files
def apply(
    calibrator: Annotated[Path, typer.Argument(help="A calibrator written by `densecal fit`.")],
    data: Annotated[
        list[Path], typer.Option(help=f"Outputs to calibrate: {FILES}; labels are not needed. Repeatable.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help=f"The file to write: {', '.join(WRITTEN)}.")],
    layout: FileLayout,
    as_json: Json = False,
) -> None:
    """Turn a classifier's outputs into calibrated probabilities."""
    from densecal.calibrators.registry import from_artefact
    from densecal.errors import listed, require
    from densecal.io import artefacts
    from densecal.io.files import check_output_file
    from densecal.outputs import name_file_in_errors
    from densecal.reading import expand, read_shards
    from densecal.report.text import percent

    check_output_file(output)
    if output.suffix not in WRITTEN:
        raise UsageError(f"--output must end in {', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}, got {output.name!r}.")
    if output.suffix == ".parquet":
        require("pyarrow", "parquet", "Writing Parquet")
    artefact = artefacts.read(calibrator)
    fitted = from_artefact(calibrator, artefact)
    layout = layout.for_calibrator(artefact.metadata)
    paths = expand(data)
    with collect_warnings() as messages, name_file_in_errors(listed([str(path) for path in paths])):
        loaded = read_shards(paths, layout)
        outputs = fitted.measure(loaded.outputs)
        probabilities = fitted.predict_proba(outputs)
        best = probabilities.argmax(axis=1)
        columns: dict[str, Any] = {} if loaded.ids is None else {layout.id or "ids": loaded.ids}
        columns["predicted"] = [loaded.classes[place] for place in best] if loaded.classes else best
        columns["confidence"] = fitted.confidence(outputs)
        if fitted.density_stage is not None:
            columns["temperature"] = fitted.density_stage.temperatures(outputs)
    _write_columns(output, probabilities, columns, loaded.classes, layout.delimiter)
    mean = float(columns["confidence"].mean())
    if as_json:
        found = {"n_samples": len(outputs), "method": fitted.method_name, "mean_confidence": mean}
        print_json({"output": output, **found, "columns": list(columns), "warnings": messages})
        return
    values = {
        "method": fitted.full_name,
        "samples": f"{len(outputs):,}",
        "mean confidence": percent(mean, 1),
        "arrays": ", ".join(["probabilities", *columns]),
        "written to": str(output),
    }
    print_values("Calibrated", values)


def _write_columns(
    output: Path, probabilities: Any, columns: dict[str, Any], classes: tuple[str, ...], delimiter: str | None
) -> None:
    """Write a table with a column per class, or arrays. Names of classes are those of the columns."""
    import numpy as np
    import pandas as pd

    from densecal.io.files import atomic_write
    from densecal.io.tables import delimiter_of

    with atomic_write(output) as temporary, temporary.open("wb") as file:
        if output.suffix == ".npz":
            named: dict[str, Any] = {"classes": np.array(classes)} if classes else {}
            named |= {name: np.array(list(map(str, one))) if _is_text(one) else one for name, one in columns.items()}
            np.savez_compressed(file, probabilities=probabilities, **named)
            return
        names = [f"p_{name}" for name in classes] or [f"p{place}" for place in range(probabilities.shape[1])]
        table = pd.concat([pd.DataFrame(columns), pd.DataFrame(probabilities, columns=names)], axis=1)
        if output.suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            table.to_csv(file, index=False, sep=delimiter_of(output, delimiter))


def _is_text(column: Any) -> bool:
    return isinstance(column, list) or column.dtype.kind == "O"
