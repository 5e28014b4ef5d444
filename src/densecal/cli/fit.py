"""``densecal fit``: fit a calibrator on validation data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from densecal.calibrators.names import DEFAULT_METHOD
from densecal.cli.bank_inputs import (
    WHY_DIFFERENT,
    check_bank_options,
    make_centres,
    make_rows,
    parse_bank_size,
    read_features,
)
from densecal.cli.command import usage_errors
from densecal.cli.file_options import FILES, MAX_FIT_SAMPLES, MaxSamples, reads_files
from densecal.cli.inspect import describe_stages
from densecal.cli.screen import Json, collect_warnings, file_and_size, print_json, print_values, print_warnings
from densecal.errors import listed
from densecal.io.file_layout import FileLayout
from densecal.progress import track

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.calibrators.solvers.tempering import Loss
    from densecal.outputs import Outputs
    from densecal.reading import LoadedFile

WHY_LABELS = "a calibrator is fitted to the true classes."
METHOD_WITHOUT_TRAIN = "ets"


Val = Annotated[
    list[Path],
    typer.Option(help=f"Outputs of the validation set, with labels: {FILES}. Repeatable: files of one data set."),
]
Train = Annotated[
    list[Path] | None,
    typer.Option(help="Outputs of the training set, for methods with DAC: features/LAYER make the bank. Repeatable."),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="One of ts, ets, irm, ir, spl, pts, dir, vs, dia, platt, beta, dac, or dac+ one. By default "
        f"{DEFAULT_METHOD}, or {METHOD_WITHOUT_TRAIN} without --train."
    ),
]
Shifted = Annotated[
    list[Path] | None,
    typer.Option(help="Outputs of perturbed validation inputs, to fit DAC for calibration under shift. Repeatable."),
]
Centres = Annotated[
    int | None,
    typer.Option(help="Centres per layer in the bank, the default with --shifted; their number is chosen.", min=1),
]
K = Annotated[
    int | None,
    typer.Option(
        help="Keep training samples in the place of centres and measure the distance to the k-th neighbour; the "
        "default without --shifted, where k is chosen.",
        min=1,
    ),
]
BankSizeText = Annotated[
    str | None,
    typer.Option(help="Training samples to keep: a number, a fraction such as 0.1 (1.0 means all), or auto."),
]
LossName = Annotated[
    str | None,
    typer.Option(help="The loss that dac, ts and ets minimise; by default brier for dac and nll for ts, ets."),
]


@reads_files
def fit(
    val: Val,
    output: Annotated[Path, typer.Option("--output", "-o", help="The calibrator file to write.")],
    layout: FileLayout,
    train: Train = None,
    method: Method = None,
    shifted: Shifted = None,
    centres: Centres = None,
    k: K = None,
    bank_size: BankSizeText = None,
    half: Annotated[bool, typer.Option("--half", help="Store kept training samples in half precision.")] = False,
    loss: LossName = None,
    max_samples: MaxSamples = MAX_FIT_SAMPLES,
    as_json: Json = False,
) -> None:
    """Fit a calibrator on a validation set that the classifier was not trained on."""
    from densecal.calibrators.registry import make_calibrator
    from densecal.io.files import check_output_file
    from densecal.outputs import name_file_in_errors
    from densecal.reading import check_different, expand, read_shards, require_labels
    from densecal.report.text import validation_cautions

    check_output_file(output)
    method = method or (DEFAULT_METHOD if train else METHOD_WITHOUT_TRAIN)
    # Check the options before reading any file.
    make = partial(make_calibrator, method, loss=cast("Loss | None", loss))
    with usage_errors():
        needs_bank = make().density_stage is not None
        rows = {"--k": k, "--bank-size": parse_bank_size(bank_size), "--half": half}
    for_bank = {"--train": train, "--shifted": shifted, "--centres": centres, **rows}
    unused = _warn_unused(method, [name for name, value in for_bank.items() if value and not needs_bank])
    if needs_bank:
        check_bank_options(train, centres, rows)
    vals, trains, shifts = expand(val), expand(train or []), expand(shifted or [])
    val_name = listed([str(path) for path in vals])
    with collect_warnings() as messages:
        loaded = read_shards(vals, layout, max_samples=max_samples)
        validation = require_labels(loaded.outputs, val_name, WHY_LABELS)
        layout = layout.following(loaded.classes, loaded.probability_floor)
        given, bank = {f"--val {val_name}": validation}, None
        if needs_bank:
            parts = read_features(trains, layout, given)
            with_centres = centres is not None or (shifted and not any(rows.values()))
            bank = make_centres(parts, centres) if with_centres else make_rows(parts, k, rows["--bank-size"])
        calibrator = make(bank=bank)
        with name_file_in_errors(val_name):
            validation = calibrator.measure(validation)
        paths = track(shifts, "measuring shifted data") if needs_bank else []
        read = {path: _read_shifted(path, calibrator, validation, layout) for path in paths}
        given |= {f"--shifted {path}": outputs for path, outputs in read.items()}
        check_different(given, WHY_DIFFERENT)
        with name_file_in_errors(val_name):
            calibrator.fit(validation, shifted=_by_domain(read) or None)
    messages += (cautions := validation_cautions(validation))
    print_warnings([*unused, *cautions])
    # Store the warnings in the file, so that a report can show them.
    files = {"val": vals, "train": trains, "shifted": shifts} if needs_bank else {"val": vals}
    metadata = {"validation_samples": len(validation), "warnings": messages, **_describe_data(loaded, files)}
    calibrator.save(output, half_precision_bank=half, metadata=metadata)
    _print_fit(calibrator, validation, output, [*unused, *messages], as_json=as_json)


def _describe_data(loaded: LoadedFile, files: Mapping[str, list[Path]]) -> dict[str, object]:
    """Return what `densecal apply` needs to know about the data of the fit, and the SHA-256 of each file."""
    from densecal.io.files import hash_file

    found: dict[str, object] = {
        "files": {role: {path.name: hash_file(path) for path in paths} for role, paths in files.items() if paths}
    }
    if loaded.classes:
        found["classes"] = list(loaded.classes)
    if loaded.probability_floor is not None:
        found["probability_floor"] = loaded.probability_floor
    return found


def _warn_unused(method: str, options: list[str]) -> list[str]:
    verb = "is" if len(options) == 1 else "are"
    why = f"only methods with DAC measure distances, and {method} has no DAC."
    return [f"{', '.join(options)} {verb} ignored: {why}"] if options else []


def _read_shifted(path: Path, calibrator: Calibrator, validation: Outputs, layout: FileLayout) -> Outputs:
    from densecal.outputs import name_file_in_errors
    from densecal.reading import read_outputs, require_labels

    outputs = require_labels(read_outputs(path, layout), path, WHY_LABELS)
    if outputs.n_classes != validation.n_classes:
        raise ValueError(f"{path} has {outputs.n_classes} classes, but the validation set has {validation.n_classes}.")
    with name_file_in_errors(path):
        return calibrator.measure(outputs)


def _by_domain(shifted: Mapping[Path, Outputs]) -> dict[str, Outputs]:
    """Return shifted data by domain: images that `densecal extract --perturb` wrote by their plan, others by file."""
    import numpy as np

    from densecal.outputs import Outputs
    from densecal.shift import plan_perturbations

    domains: dict[str, list[Outputs]] = {}
    for path, outputs in shifted.items():
        seed = outputs.metadata.get("seed")
        if outputs.metadata.get("condition") != "perturbed" or seed is None:
            domains.setdefault(str(path), []).append(outputs)
            continue
        names = plan_perturbations(np.arange(len(outputs)), int(seed)).domains()
        for name in np.unique(names):
            domains.setdefault(str(name), []).append(outputs[np.flatnonzero(names == name)])
    return {name: Outputs.concatenate(parts) for name, parts in domains.items()}


def _print_fit(
    calibrator: Calibrator, validation: Outputs, output: Path, messages: list[str], *, as_json: bool
) -> None:
    from densecal.arrays import softmax
    from densecal.metrics import expected_calibration_error
    from densecal.report.text import counted, learned_numbers, points

    before = expected_calibration_error(softmax(validation.checked_logits()), validation.labels)
    correct = calibrator.predict_proba(validation).argmax(axis=1) == validation.labels
    after = expected_calibration_error(calibrator.confidence(validation), correct)
    if as_json:
        print_json(
            {
                "artefact": output,
                "n_bytes": output.stat().st_size,
                "method": calibrator.method_name,
                "n_samples": len(validation),
                "n_classes": validation.n_classes,
                "stages": describe_stages(calibrator),
                "validation_ece": {"before": before, "after": after},
                "warnings": messages,
            }
        )
        return
    values = {
        "method": calibrator.full_name,
        "fitted on": f"{counted(len(validation), 'sample')}, {validation.n_classes} classes",
        "validation ECE": f"{points(before)} before, {points(after)} after (percentage points)",
        **dict(learned_numbers(calibrator)),
        "written to": file_and_size(output),
    }
    print_values("Fitted", values)
