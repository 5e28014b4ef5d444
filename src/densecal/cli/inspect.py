"""``densecal inspect``: show the content of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.app import collect_warnings, print_json, print_values
from densecal.cli.inputs import FILES, FileOptions, Json, with_options

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.io.output_files import FileLayout


@with_options
def inspect(
    path: Annotated[Path, typer.Argument(help=f"A calibrator, or outputs: {FILES}.")],
    files: FileOptions,
    as_json: Json = False,
) -> None:
    """Show the content of a calibrator or of a file of outputs."""
    with collect_warnings():
        content = _describe(path, files.layout())
    if as_json:
        print_json(content)
        return
    content["metadata"] = _shorten_fingerprint(content["metadata"])
    shown = {
        name.removeprefix("n_").replace("_", " "): _to_text(value)
        for name, value in content.items()
        if value not in (None, {}, [])
    }
    print_values(f"{content['kind'].capitalize()} {path}", shown)


def _describe(path: Path, layout: FileLayout) -> dict[str, Any]:
    from densecal.errors import ArtefactError
    from densecal.io import artefacts, safetensors_file
    from densecal.monitor.monitor import FORMAT as MONITOR

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    written = safetensors_file.read_header(path).get("format") if path.is_file() else None
    if written == MONITOR:
        raise ArtefactError(
            f"{path} is the state of a monitor. `densecal monitor CALIBRATOR --state {path} --data FILES -o PAGE` "
            "continues it and shows its content."
        )
    if written == artefacts.FORMAT:
        return _describe_calibrator(path)
    return _describe_outputs(path, layout)


def _describe_calibrator(path: Path) -> dict[str, Any]:
    from densecal.calibrators.dac.unlabelled_batch import can_estimate
    from densecal.calibrators.state import from_artefact_of_several
    from densecal.io import artefacts

    artefact = artefacts.read(path)
    calibrators = from_artefact_of_several(path, artefact)
    calibrator, dac = calibrators[0], calibrators[0].density_stage
    bank = None
    if dac is not None and dac.bank is not None:
        kept = dac.bank
        bank = {"kept": kept.describe(), "n_centres": kept.centres, "k": dac.k, "widths": kept.widths}
    metadata = dict(artefact.metadata)
    of_estimator = [str(name) for name in metadata.get("sklearn", {}).get("classes", ())]
    return {
        "kind": "calibrator",
        "method": calibrator.method_name,
        "full_name": calibrator.full_name,
        "n_classes": calibrator.n_classes_,
        "classes": metadata.pop("classes", None) or of_estimator or None,
        "keeps_predicted_class": calibrator.accuracy_preserving,
        "estimates_accuracy": can_estimate(calibrator),
        "n_calibrators": len(calibrators),
        "stages": [stage for one in calibrators for stage in describe_stages(one)],
        "bank": bank,
        "created_at": artefact.created_at,
        "densecal_version": artefact.densecal_version,
        "format_version": artefacts.VERSION,
        "data_hashes": artefact.state.data_hashes,
        "files": metadata.pop("files", {}),
        "metadata": metadata,
        "n_bytes": path.stat().st_size,
        "papers": [str(stage.citation) for stage in calibrator.stages],
    }


def describe_stages(calibrator: Calibrator) -> list[dict[str, Any]]:
    """Return the method, the parameters and the short learned values of each stage."""
    from densecal.calibrators.state import learned_values

    found = []
    for state, learned in zip(calibrator.state().stages, learned_values(calibrator), strict=True):
        short = {name: _to_plain(value) for name, value in learned.items()}
        found.append({"method": state.method, "parameters": state.params, "learned": short})
    return found


def _to_plain(value: Any) -> Any:
    """Return an array as a list, the accuracy regression as a summary, and any other value unchanged."""
    if isinstance(value, dict) and "regression" in value:
        return {name: value["regression"][name] for name in ("n_domains", "n_kinds")}
    return value.tolist() if hasattr(value, "tolist") else value


def _shorten_fingerprint(metadata: dict[str, Any]) -> dict[str, Any]:
    """Replace the fingerprint of a classifier, which has thousands of numbers, with a summary."""
    fingerprint = metadata.get("classifier")
    if not isinstance(fingerprint, dict):
        return metadata
    tensors = len(fingerprint.get("sums", ()))
    return {**metadata, "classifier": f"{fingerprint.get('class', 'unknown')}, fingerprint of {tensors} tensors"}


def _describe_outputs(path: Path, layout: FileLayout) -> dict[str, Any]:
    import numpy as np

    from densecal.arrays import softmax
    from densecal.io import output_files
    from densecal.io.atomic_files import hash_file, name_file_in_errors
    from densecal.metrics import accuracy, expected_calibration_error
    from densecal.outputs import make_outputs

    found = output_files.read(path, layout)
    outputs = make_outputs(path, found)
    with name_file_in_errors(path):
        probabilities = softmax(outputs.checked_logits())
    labels = outputs.labels
    return {
        "kind": "outputs",
        "n_samples": len(outputs),
        "n_classes": outputs.n_classes,
        "classes": list(found.classes) or None,
        "has_labels": outputs.labels is not None,
        "dtype": str(outputs.logits.dtype),
        "layers": {
            layer: {"width": int(array.shape[1]), "dtype": str(array.dtype)}
            for layer, array in outputs.features.items()
        },
        "metadata": outputs.metadata,
        "mean_confidence": float(probabilities.max(axis=1).mean()),
        "accuracy": None if labels is None else accuracy(probabilities, labels),
        "uncalibrated_ece": None if labels is None else expected_calibration_error(probabilities, labels),
        "classes_without_samples": None if labels is None else np.setdiff1d(range(outputs.n_classes), labels).tolist(),
        "sha256": hash_file(path),
    }


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        shown = {name: one for name, one in value.items() if one not in (None, {}, [])}
        return ", ".join(f"{name.replace('_', ' ')}: {_to_text(one)}" for name, one in shown.items())
    if isinstance(value, list):
        sentences = all(isinstance(one, dict) or (isinstance(one, str) and " " in one) for one in value)
        return ("\n" if sentences else ", ").join(map(_to_text, value))
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
