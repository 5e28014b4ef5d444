"""``densecal inspect``: what is in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from densecal.cli.screen import Json, collected_warnings, facts_table, print_json, screen
from densecal.evaluation.test_sets import FILES, read_outputs


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(epilog="Example: densecal inspect cal.densecal")(inspect)


def inspect(
    path: Annotated[Path, typer.Argument(help=f"A calibrator, or outputs: {FILES}.")], as_json: Json = False
) -> None:
    """Show what is in a calibrator or in a file of outputs."""
    with collected_warnings():
        metadata = _facts(path)
    if as_json:
        print_json(metadata)
        return
    metadata["metadata"] = _brief(metadata["metadata"])
    title = {"calibrator": "Calibrator", "outputs": "Outputs"}[metadata["kind"]]
    screen().print(facts_table(f"{title} {path}", {name: _words(value) for name, value in metadata.items() if value}))


def _facts(path: Path) -> dict[str, Any]:
    from densecal.io import storage
    from densecal.io.artefact import FORMAT

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if path.is_file() and storage.is_artefact(path):
        header, _ = storage.read(path)
        if header.get("format") == FORMAT:
            return _calibrator_facts(path, header)
    return _outputs_facts(path)


def _calibrator_facts(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    from densecal.io.artefact import load
    from densecal.report.metadata import learned_numbers

    calibrator = load(path)
    return {
        "kind": "calibrator",
        "method": calibrator.short_name,
        "full name": calibrator.full_name,
        "classes": calibrator.n_classes_,
        "keeps the predicted class": calibrator.accuracy_preserving,
        "learned": dict(learned_numbers(calibrator)),
        "parameters": {stage["method"]: stage["params"] for stage in header["stages"] if stage["params"]},
        "bank": header["bank"],
        "metadata": header.get("metadata", {}),
        "written by": f"densecal {header['densecal']}, format {header['version']}",
        "bytes": path.stat().st_size,
        "papers": [str(stage.paper) for stage in getattr(calibrator, "stages", (calibrator,))],
    }


def _brief(metadata: dict[str, Any]) -> dict[str, Any]:
    """Put a classifier's fingerprint, thousands of numbers that only a program compares, into words."""
    marks = metadata.get("classifier")
    if not isinstance(marks, dict):
        return metadata
    tensors = len(marks.get("sums") or marks.get("values") or ())
    return {**metadata, "classifier": f"{marks.get('class', 'unknown')}, fingerprint of {tensors} tensors"}


def _outputs_facts(path: Path) -> dict[str, Any]:
    import numpy as np

    from densecal.arrays import softmax, to_numpy
    from densecal.arrays.checks import check_logits
    from densecal.metrics import accuracy, expected_calibration_error

    outputs = read_outputs(path)
    metadata: dict[str, Any] = {
        "kind": "outputs",
        "samples": len(outputs),
        "classes": outputs.n_classes,
        "labels": outputs.labels is not None,
        "logits": str(outputs.logits.dtype),
        "layers": {layer: f"{array.shape[1]} x {array.dtype}" for layer, array in outputs.features.items()},
        "metadata": outputs.metadata,
    }
    probabilities = softmax(check_logits(outputs.logits))
    metadata["mean confidence"] = float(to_numpy(probabilities).max(axis=1).mean())
    if outputs.labels is not None:
        missing = sorted(set(range(outputs.n_classes)) - set(np.unique(to_numpy(outputs.labels)).tolist()))
        metadata["accuracy"] = accuracy(probabilities, outputs.labels)
        metadata["uncalibrated ECE"] = expected_calibration_error(probabilities, outputs.labels)
        metadata["classes without a sample"] = missing
    return metadata


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_words(one)}" for name, one in value.items())
    if isinstance(value, list):
        return (
            "\n".join(value)
            if all(isinstance(one, str) and " " in one for one in value)
            else ", ".join(map(str, value))
        )
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
