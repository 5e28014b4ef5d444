"""``densecal inspect``: show the content of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from densecal.cli.screen import FILES, AssumeLogits, Json, collect_warnings, print_json, print_values


def inspect(
    path: Annotated[Path, typer.Argument(help=f"A calibrator, or outputs: {FILES}.")],
    assume_logits: AssumeLogits = False,
    as_json: Json = False,
) -> None:
    """Show the content of a calibrator or of a file of outputs."""
    with collect_warnings():
        content = _describe(path, assume_logits=assume_logits)
    if as_json:
        print_json(content)
        return
    content["metadata"] = _shorten_fingerprint(content["metadata"])
    shown = {name: _to_text(value) for name, value in content.items() if value}
    print_values(f"{content['kind'].capitalize()} {path}", shown)


def _describe(path: Path, *, assume_logits: bool) -> dict[str, Any]:
    from densecal.io import artefacts, safetensors_file

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if path.is_file() and safetensors_file.read_header(path).get("format") == artefacts.FORMAT:
        return _describe_calibrator(path)
    return _describe_outputs(path, assume_logits=assume_logits)


def _describe_calibrator(path: Path) -> dict[str, Any]:
    from densecal.calibrators.registry import from_artefact
    from densecal.io import artefacts
    from densecal.report.text import learned_numbers, stage_names

    artefact = artefacts.read(path)
    calibrator = from_artefact(path, artefact)
    stage = calibrator.density_stage
    states = zip(stage_names(calibrator), artefact.state.stages, strict=True)
    return {
        "kind": "calibrator",
        "method": calibrator.method_name,
        "full name": calibrator.full_name,
        "classes": calibrator.n_classes_,
        "keeps the predicted class": calibrator.accuracy_preserving,
        "learned": dict(learned_numbers(calibrator)),
        "parameters": {name: state.params for name, state in states if state.params},
        "bank": None
        if stage is None or stage.bank is None
        else {"kept": stage.bank.describe(), "centres": stage.bank.centres, "k": stage.k, "widths": stage.bank.widths},
        "metadata": artefact.metadata,
        "written by": f"densecal {artefact.densecal_version}, format {artefact.format_version}",
        "bytes": path.stat().st_size,
        "papers": [str(stage.citation) for stage in calibrator.stages],
    }


def _shorten_fingerprint(metadata: dict[str, Any]) -> dict[str, Any]:
    """Replace the fingerprint of a classifier, which has thousands of numbers, with a summary."""
    fingerprint = metadata.get("classifier")
    if not isinstance(fingerprint, dict):
        return metadata
    tensors = len(fingerprint.get("sums", ()))
    return {**metadata, "classifier": f"{fingerprint.get('class', 'unknown')}, fingerprint of {tensors} tensors"}


def _describe_outputs(path: Path, *, assume_logits: bool) -> dict[str, Any]:
    import numpy as np

    from densecal.arrays import softmax
    from densecal.metrics import accuracy, expected_calibration_error
    from densecal.outputs import read_outputs

    outputs = read_outputs(path, assume_logits=assume_logits)
    probabilities = softmax(outputs.checked_logits())
    content: dict[str, Any] = {
        "kind": "outputs",
        "samples": len(outputs),
        "classes": outputs.n_classes,
        "labels": outputs.labels is not None,
        "logits": str(outputs.logits.dtype),
        "layers": {layer: f"{array.shape[1]} x {array.dtype}" for layer, array in outputs.features.items()},
        "metadata": outputs.metadata,
        "mean confidence": float(probabilities.max(axis=1).mean()),
    }
    if outputs.labels is not None:
        content["accuracy"] = accuracy(probabilities, outputs.labels)
        content["uncalibrated ECE"] = expected_calibration_error(probabilities, outputs.labels)
        content["classes without a sample"] = np.setdiff1d(np.arange(outputs.n_classes), outputs.labels).tolist()
    return content


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_to_text(one)}" for name, one in value.items())
    if isinstance(value, list):
        sentences = all(isinstance(one, str) and " " in one for one in value)
        return ("\n" if sentences else ", ").join(map(str, value))
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
