"""``densecal fit`` and ``densecal apply``: fit a calibrator, and calibrate new data with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.calibrators.names import DEFAULT_METHOD
from densecal.cli.screen import FILES, Json, collect_warnings, file_and_size, print_json, print_values, print_warnings

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.density.bank import FeatureBank
    from densecal.density.defaults import BankSize
    from densecal.outputs import Outputs

WHY_LABELS = "a calibrator is fitted to the true classes."
READ_ROWS = 8192


def fit(
    val: Annotated[Path, typer.Option(help=f"Outputs of the validation set, with labels: {FILES}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The calibrator file to write.")],
    train: Annotated[
        Path | None,
        typer.Option(help="Outputs of the training set, for methods with DAC: its features/LAYER are the bank."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="One of ts, ets, irm, ir, spl, pts, dir, vs, dia, dac, or dac+ one of them.")
    ] = DEFAULT_METHOD,
    shifted: Annotated[
        list[Path] | None,
        typer.Option(
            help="Outputs of perturbed validation inputs, to fit DAC for calibration under shift. Repeatable."
        ),
    ] = None,
    centres: Annotated[
        int | None,
        typer.Option(help="Centres per layer in the bank, the default with --shifted; their number is chosen.", min=1),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            help="Keep training samples in the place of centres and measure the distance to the k-th neighbour; the "
            "default without --shifted, where k is chosen.",
            min=1,
        ),
    ] = None,
    bank_size: Annotated[
        str | None,
        typer.Option(help="Training samples to keep: a number, a fraction such as 0.1 (1.0 means all), or auto."),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Store kept training samples in half precision.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a calibrator on a validation set that the classifier was not trained on."""
    from densecal.calibrators.registry import make_calibrator
    from densecal.io.files import check_not_a_folder
    from densecal.outputs import name_file_in_errors, read_labelled
    from densecal.report.text import validation_cautions

    check_not_a_folder(output)
    # Check the name of the method before reading any file.
    needs_bank = make_calibrator(method).density_stage is not None
    rows = {"--k": k, "--bank-size": bank_size, "--half": half}
    given = {"--train": train, "--shifted": shifted, "--centres": centres, **rows}
    unused = [] if needs_bank else _warn_unused(method, [name for name, value in given.items() if value])
    with collect_warnings() as messages:
        validation = read_labelled(val, WHY_LABELS)
        bank = None
        if needs_bank and (centres is not None or (shifted and not any(rows.values()))):
            _refuse_rows_with_centres(rows)
            bank = _read_centres(train, centres)
        elif needs_bank:
            bank = _read_rows(train, k, bank_size)
        calibrator = make_calibrator(method, bank=bank)
        with name_file_in_errors(val):
            validation = calibrator.measure(validation)
        read = {path: _read_shifted(path, calibrator, validation) for path in shifted or [] if needs_bank}
        with name_file_in_errors(val):
            calibrator.fit(validation, shifted=_by_domain(read) or None)
    cautions = validation_cautions(validation)
    print_warnings([*unused, *cautions])
    messages += cautions
    # Store the warnings in the file, so that a report can show them.
    metadata = {"validation_samples": len(validation), "warnings": messages}
    calibrator.save(output, half_precision_bank=half, metadata=metadata)
    _print_fit(calibrator, validation, output, [*unused, *messages], as_json=as_json)


def _warn_unused(method: str, options: list[str]) -> list[str]:
    if not options:
        return []
    verb = "is" if len(options) == 1 else "are"
    return [f"{', '.join(options)} {verb} ignored: only methods with DAC measure distances, and {method} has no DAC."]


def _read_shifted(path: Path, calibrator: Calibrator, validation: Outputs) -> Outputs:
    from densecal.outputs import name_file_in_errors, read_labelled

    outputs = read_labelled(path, WHY_LABELS)
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


def _refuse_rows_with_centres(rows: Mapping[str, object]) -> None:
    given = [name for name, value in rows.items() if value]
    if given:
        raise ValueError(f"--centres replaces training samples, which {', '.join(given)} keep. Pass one or the other.")


def _read_centres(train: Path | None, centres: int | None) -> FeatureBank:
    from densecal.density.bank import FeatureBank
    from densecal.outputs import name_file_in_errors

    outputs, path = _read_features(train)
    with name_file_in_errors(path):
        # A block of a memory-mapped file is read at a time.
        return FeatureBank.from_batches(
            (outputs[start : start + READ_ROWS].features for start in range(0, len(outputs), READ_ROWS)),
            centres="auto" if centres is None else centres,
        )


def _read_rows(train: Path | None, k: int | None, bank_size: str | None) -> FeatureBank:
    from densecal.density.bank import FeatureBank
    from densecal.density.defaults import choose_bank_size, choose_k
    from densecal.outputs import name_file_in_errors

    outputs, path = _read_features(train)
    size = choose_bank_size(len(outputs), _parse_bank_size(bank_size))
    with name_file_in_errors(path):
        return FeatureBank(outputs.features, k=k or choose_k(size, outputs.n_classes), bank_size=size)


def _read_features(train: Path | None) -> tuple[Outputs, Path]:
    from densecal.outputs import Outputs

    if train is None:
        raise ValueError(
            "A method with DAC requires --train: the outputs of the training set, whose features form the bank. "
            "Without them, use a method such as ets."
        )
    # Only the features are used. The logits are not checked, so they may be probabilities.
    outputs = Outputs.load(train)
    if not outputs.features:
        raise ValueError(
            f"{train} has no features: DAC requires the layer features of the training set, as arrays features/LAYER "
            "(`densecal extract` writes them)."
        )
    return outputs, train


def _parse_bank_size(text: str | None) -> BankSize:
    """Parse a number of samples, such as ``1``, a fraction, such as ``1.0`` (all samples), or ``auto``."""
    if text is None or text == "auto":
        return "auto" if text else None
    try:
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        raise ValueError(
            f"--bank-size must be a number of samples, a fraction such as 0.1, or auto, got {text!r}."
        ) from None


def _print_fit(
    calibrator: Calibrator, validation: Outputs, output: Path, messages: list[str], *, as_json: bool
) -> None:
    from densecal.arrays import softmax
    from densecal.arrays.checks import check_logits
    from densecal.metrics import expected_calibration_error
    from densecal.report.text import counted, learned_numbers, points

    before = expected_calibration_error(softmax(check_logits(validation.logits)), validation.labels)
    correct = calibrator.predict_proba(validation).argmax(axis=1) == validation.labels
    after = expected_calibration_error(calibrator.confidence(validation), correct)
    learned = dict(learned_numbers(calibrator))
    if as_json:
        print_json(
            {
                "artefact": output,
                "bytes": output.stat().st_size,
                "method": calibrator.method_name,
                "samples": len(validation),
                "learned": learned,
                "validation_ece": {"before": before, "after": after},
                "warnings": messages,
            }
        )
        return
    values = {
        "method": calibrator.full_name,
        "fitted on": f"{counted(len(validation), 'sample')}, {validation.n_classes} classes",
        "validation ECE": f"{points(before)} before, {points(after)} after (percentage points)",
        **learned,
        "written to": file_and_size(output),
    }
    print_values("Fitted", values)


def apply(
    calibrator: Annotated[Path, typer.Argument(help="A calibrator written by `densecal fit`.")],
    data: Annotated[Path, typer.Option(help=f"Outputs to calibrate: {FILES}; labels are not needed.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: .npz or .csv.")],
    as_json: Json = False,
) -> None:
    """Turn a classifier's outputs into calibrated probabilities."""
    from densecal.calibrators.registry import load
    from densecal.io.files import check_not_a_folder
    from densecal.outputs import name_file_in_errors, read_outputs
    from densecal.report.text import percent

    check_not_a_folder(output)
    if output.suffix not in (".npz", ".csv"):
        raise ValueError(f"--output must end in .npz or .csv, got {output.name!r}.")
    fitted = load(calibrator)
    with collect_warnings(), name_file_in_errors(data):
        outputs = fitted.measure(read_outputs(data))
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
