"""``densecal apply``: calibrate new data with a fitted calibrator."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from densecal.cli.command import UsageError
from densecal.cli.engine import LOCAL, RAY, Address, Engine, Workers, open_engine
from densecal.cli.file_options import FILES, reads_files
from densecal.cli.screen import Json, collect_warnings, print_json, print_values
from densecal.io.file_layout import FileLayout

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator

WRITTEN = (".csv", ".tsv", ".parquet", ".npz")


@reads_files
def apply(
    calibrator: Annotated[Path, typer.Argument(help="A calibrator written by `densecal fit`.")],
    data: Annotated[
        list[Path], typer.Option(help=f"Outputs to calibrate: {FILES}; labels are not needed. Repeatable.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help=f"The file to write: {', '.join(WRITTEN)}. With --engine ray: a folder, with a .parquet file for each "
            "file of the data.",
        ),
    ],
    layout: FileLayout,
    engine: Engine = LOCAL,
    address: Address = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Turn a classifier's outputs into calibrated probabilities."""
    from densecal.calibrators.restore import from_artefact
    from densecal.io import artefacts
    from densecal.reading import expand
    from densecal.report.text import percent

    _check_output(output, engine)
    artefact = artefacts.read(calibrator)
    fitted = from_artefact(calibrator, artefact)
    work = partial(_apply, fitted, layout.for_calibrator(artefact.metadata))
    paths = expand(data)
    with open_engine(engine, address, workers) as on_ray, collect_warnings() as messages:
        jobs = [(paths, output)] if on_ray is None else _one_job_per_file(paths, output)
        done = list(map(work, jobs) if on_ray is None else on_ray.map_tasks(work, jobs))
    columns = done[0].columns
    n_samples = sum(one.n_samples for one in done)
    mean = sum(one.total_confidence for one in done) / n_samples
    if as_json:
        found = {"n_samples": n_samples, "method": fitted.method_name, "mean_confidence": mean}
        print_json({"output": output, **found, "columns": columns, "warnings": messages})
        return
    values = {
        "method": fitted.full_name,
        "samples": f"{n_samples:,}",
        "mean confidence": percent(mean, 1),
        "arrays": ", ".join(["probabilities", *columns]),
        "written to": str(output),
    }
    print_values("Calibrated", values)


def _check_output(output: Path, engine: str) -> None:
    from densecal.errors import require
    from densecal.io.files import check_output_file

    if engine == RAY:
        if output.suffix or output.is_file():
            raise UsageError(f"--output must be a folder for --engine ray, got {output.name!r}.")
        output.mkdir(exist_ok=True)
        return
    check_output_file(output)
    if output.suffix not in WRITTEN:
        raise UsageError(f"--output must end in {', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}, got {output.name!r}.")
    if output.suffix == ".parquet":
        require("pyarrow", "parquet", "Writing Parquet")


def _one_job_per_file(paths: list[Path], folder: Path) -> list[tuple[list[Path], Path]]:
    names = {path.stem: path for path in paths}
    if len(names) < len(paths):
        raise UsageError("--engine ray writes one file for each of the data, so their names must differ.")
    return [([path.absolute()], folder.absolute() / f"{name}.parquet") for name, path in names.items()]


class _Applied(NamedTuple):
    n_samples: int
    total_confidence: float
    columns: list[str]


def _apply(fitted: Calibrator, layout: FileLayout, job: tuple[list[Path], Path]) -> _Applied:
    """Calibrate the files of a data set and write the result to one file."""
    from densecal.errors import listed
    from densecal.outputs import name_file_in_errors
    from densecal.reading import read_shards

    paths, output = job
    with name_file_in_errors(listed([str(path) for path in paths])):
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
    return _Applied(len(outputs), float(columns["confidence"].sum(dtype=float)), list(columns))


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
