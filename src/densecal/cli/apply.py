"""``densecal apply``: calibrate new data with a fitted calibrator."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from densecal.cli.app import collect_warnings, print_json, print_values
from densecal.cli.inputs import (
    FILES,
    RAY,
    EngineOptions,
    FileOptions,
    Json,
    UsageError,
    check_outputs,
    expand,
    with_options,
)
from densecal.errors import require

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.io.output_files import FileLayout

WRITTEN = (".csv", ".tsv", ".parquet", ".npz")


@with_options
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
            help=f"The file to write: {', '.join(WRITTEN)}. With --engine ray: a folder, with one .parquet file per "
            "data file.",
        ),
    ],
    files: FileOptions,
    run_on: EngineOptions,
    as_json: Json = False,
) -> None:
    """Turn a classifier's outputs into calibrated probabilities."""
    from densecal.cli.calibrator_files import read_calibrator
    from densecal.display import percent

    _check_output(output, run_on.engine)
    paths = expand("--data", data)
    jobs = [(paths, output)] if run_on.engine != RAY else _one_job_per_file(paths, output)
    for _, written in jobs:
        check_outputs({"--output": written}, {"the calibrator": [calibrator], "--data": paths})
    fitted, layout, _ = read_calibrator(calibrator, files.layout())
    work = partial(_apply, fitted, layout)
    with run_on.open() as on_ray, collect_warnings() as messages:
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
    if engine == RAY:
        if output.suffix or output.is_file():
            raise UsageError(f"--output must be a folder for --engine ray, got {output.name!r}.")
        output.mkdir(exist_ok=True)
    elif output.suffix not in WRITTEN:
        raise UsageError(f"--output must end in {', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}, got {output.name!r}.")
    elif output.suffix == ".parquet":
        require("pyarrow", "parquet", "Writing Parquet")


def _one_job_per_file(paths: list[Path], folder: Path) -> list[tuple[list[Path], Path]]:
    names = {path.stem: path for path in paths}
    if len(names) < len(paths):
        raise UsageError("--engine ray writes one file per data file, so the names of the data files must differ.")
    return [([path.absolute()], folder.absolute() / f"{name}.parquet") for name, path in names.items()]


class _Applied(NamedTuple):
    n_samples: int
    total_confidence: float
    columns: list[str]


def _apply(fitted: Calibrator, layout: FileLayout, job: tuple[list[Path], Path]) -> _Applied:
    """Calibrate the files of a data set, one at a time, and write the result to one file."""
    import numpy as np

    from densecal.io import output_files
    from densecal.io.atomic_files import name_file_in_errors
    from densecal.outputs import make_outputs

    paths, output = job
    found: dict[str, list[Any]] = {}
    for path in paths:
        content = output_files.read(path, layout)
        layout = layout.following(content)
        columns = {} if content.ids is None else {layout.id or "ids": content.ids}
        with name_file_in_errors(path):
            outputs = fitted.measure(make_outputs(path, content))
            columns["probabilities"] = probabilities = fitted.predict_proba(outputs)
            columns["predicted"] = probabilities.argmax(axis=1)
            columns["confidence"] = fitted.confidence(outputs)
            if fitted.density_stage is not None:
                columns["temperature"] = fitted.density_stage.temperatures(outputs)
        if found and list(found) != list(columns):
            raise ValueError(f"{path} and {paths[0]} must both have sample ids, or neither.")
        for name, values in columns.items():
            found.setdefault(name, []).append(values)
    joined = {name: np.concatenate(parts) for name, parts in found.items()}
    probabilities = joined.pop("probabilities")
    if layout.classes:
        joined["predicted"] = np.array(layout.classes, dtype=object)[joined["predicted"]]
    _write_columns(output, probabilities, joined, layout.classes, layout.delimiter)
    return _Applied(len(probabilities), float(joined["confidence"].sum(dtype=float)), list(joined))


def _write_columns(
    output: Path, probabilities: Any, columns: dict[str, Any], classes: tuple[str, ...], delimiter: str | None
) -> None:
    """Write a table with one column per class, or arrays. The class names are the names of the columns."""
    import numpy as np
    import pandas as pd

    from densecal.io.atomic_files import atomic_write
    from densecal.io.tables import delimiter_of

    with atomic_write(output) as temporary, temporary.open("wb") as file:
        if output.suffix == ".npz":
            named: dict[str, Any] = {"classes": np.array(classes)} if classes else {}
            named |= {name: one.astype(str) if one.dtype == object else one for name, one in columns.items()}
            np.savez_compressed(file, probabilities=probabilities, **named)
            return
        names = [f"p_{name}" for name in classes] or [f"p{place}" for place in range(probabilities.shape[1])]
        table = pd.concat([pd.DataFrame(columns), pd.DataFrame(probabilities, columns=names)], axis=1)
        if output.suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            table.to_csv(file, index=False, sep=delimiter_of(output, delimiter))
