"""``densecal apply``: calibrate new data with a fitted calibrator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from densecal.cli.screen import FILES, AssumeLogits, Json, collect_warnings, print_json, print_values


def apply(
    calibrator: Annotated[Path, typer.Argument(help="A calibrator written by `densecal fit`.")],
    data: Annotated[Path, typer.Option(help=f"Outputs to calibrate: {FILES}; labels are not needed.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: .npz or .csv.")],
    assume_logits: AssumeLogits = False,
    as_json: Json = False,
) -> None:
    """Turn a classifier's outputs into calibrated probabilities."""
    from densecal.calibrators.registry import load
    from densecal.io.files import check_output_file
    from densecal.outputs import name_file_in_errors, read_outputs
    from densecal.report.text import percent

    check_output_file(output)
    if output.suffix not in (".npz", ".csv"):
        raise ValueError(f"--output must end in .npz or .csv, got {output.name!r}.")
    fitted = load(calibrator)
    with collect_warnings(), name_file_in_errors(data):
        outputs = fitted.measure(read_outputs(data, assume_logits=assume_logits))
        probabilities = fitted.predict_proba(outputs)
        columns = {"predicted": probabilities.argmax(axis=1), "confidence": fitted.confidence(outputs)}
        if fitted.density_stage is not None:
            columns["temperature"] = fitted.density_stage.temperatures(outputs)
    _write_columns(output, probabilities, columns)
    mean = float(columns["confidence"].mean())
    if as_json:
        print_json({"output": output, "samples": len(outputs), "method": fitted.method_name, "mean_confidence": mean})
        return
    values = {
        "method": fitted.full_name,
        "samples": f"{len(outputs):,}",
        "mean confidence": percent(mean, 1),
        "arrays": ", ".join(["probabilities", *columns]),
        "written to": str(output),
    }
    print_values("Calibrated", values)


def _write_columns(output: Path, probabilities: Any, columns: dict[str, Any]) -> None:
    import numpy as np

    from densecal.io.files import atomic_write

    with atomic_write(output) as temporary, temporary.open("wb") as file:
        if output.suffix == ".npz":
            np.savez_compressed(file, probabilities=probabilities, **columns)
            return
        import pandas as pd

        classes = {f"p{place}": probabilities[:, place] for place in range(probabilities.shape[1])}
        pd.DataFrame({**columns, **classes}).to_csv(file, index=False)
