"""``densecal fit`` and ``densecal apply``: learn a calibrator, and use it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.screen import Json, collected_warnings, facts_table, print_json, screen, show_warnings
from densecal.evaluation.test_sets import FILES, about, read_labelled, read_outputs

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.density.bank import FeatureBank
    from densecal.outputs import Outputs


LABELS_NEEDED = "a calibrator learns from the true classes of its validation set."


def add_to(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command(
        epilog="Example: densecal fit --train train.safetensors --val val.safetensors --method dac+ets -o cal.densecal"
    )(fit)
    app.command(epilog="Example: densecal apply cal.densecal --data new.safetensors -o probabilities.npz")(apply)


def fit(
    val: Annotated[Path, typer.Option(help=f"Outputs of the validation set, with labels: {FILES}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the calibrator.")],
    train: Annotated[
        Path | None,
        typer.Option(help="Outputs of the training set, for methods with DAC: its features/LAYER are the bank."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="One of ts, ets, irm, ir, spl, pts, dir, vs, dia, dac, or dac+ one of them.")
    ] = "dac+ets",
    shifted: Annotated[
        list[Path] | None,
        typer.Option(help="Outputs of perturbed validation inputs: fits DAC for where the data will go. Repeatable."),
    ] = None,
    k: Annotated[
        int | None, typer.Option(help="Which neighbour's distance counts; chosen by the bank's size.", min=1)
    ] = None,
    subsample: Annotated[
        float | None, typer.Option(help="Keep this many training samples in the bank, or below 1 this share.")
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Write the bank in half precision: half the size.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a calibrator on a validation set that the classifier was not trained on."""
    from densecal.calibrators.registry import make_calibrator
    from densecal.io.artefact import save_calibrator
    from densecal.io.storage import check_no_folder
    from densecal.report.cautions import validation_cautions

    check_no_folder(output)
    # The method's name is checked before any file is read.
    needs_bank = _has_density(make_calibrator(method))
    given = {"--train": train, "--shifted": shifted, "--k": k, "--subsample": subsample, "--half": half}
    unused = [] if needs_bank else _unused(method, [name for name, value in given.items() if value])
    with collected_warnings() as messages:
        validation = read_labelled(val, LABELS_NEEDED)
        bank = _read_bank(train, k, subsample) if needs_bank else None
        calibrator = make_calibrator(method, bank=bank)
        density: dict[str, Any] = {"features": validation.features or None}
        _check_features(bank, validation, val)
        if shifted and needs_bank:
            density["shifted"] = [_read_shifted(path, bank, validation) for path in shifted]
        with about(val):
            calibrator.fit(validation.logits, validation.labels, **density)
    careful = validation_cautions(validation)
    show_warnings([*unused, *careful])
    messages += careful
    # A report made from the file alone must know what the fit warned of.
    metadata = {"validation_samples": len(validation), "warnings": messages}
    save_calibrator(calibrator, output, half_precision_bank=half, metadata=metadata)
    _tell(calibrator, validation, output, [*unused, *messages], as_json=as_json)


def _unused(method: str, options: list[str]) -> list[str]:
    """Say which options have no effect on a method that measures no distances."""
    if not options:
        return []
    are = "is" if len(options) == 1 else "are"
    return [f"{', '.join(options)} {are} not used: only methods with DAC measure distances, and {method} has none."]


def _check_features(bank: FeatureBank | None, outputs: Outputs, path: Path) -> None:
    """Measure one sample, so that features which do not fit the bank are said with their file's name."""
    if bank is not None:
        with about(path):
            bank.distances(outputs[:1].features)


def _read_shifted(path: Path, bank: FeatureBank | None, validation: Outputs) -> Outputs:
    outputs = read_labelled(path, LABELS_NEEDED)
    if outputs.n_classes != validation.n_classes:
        raise ValueError(f"{path} has {outputs.n_classes} classes, the validation set {validation.n_classes}.")
    _check_features(bank, outputs, path)
    return outputs


def _has_density(calibrator: Calibrator) -> bool:
    from densecal.evaluation.conditions import density_stage

    return density_stage(calibrator) is not None


def _read_bank(train: Path | None, k: int | None, subsample: float | None) -> FeatureBank:
    from densecal.density.bank import FeatureBank
    from densecal.density.defaults import choose_k
    from densecal.outputs import Outputs

    if train is None:
        raise ValueError(
            "A method with DAC needs --train: the outputs of the training set, whose features say what the classifier "
            "has seen. Without them use a method such as ets."
        )
    # Only the features are used: the logits may just as well be probabilities.
    outputs = Outputs.load(train)
    if not outputs.features:
        raise ValueError(
            f"{train} holds no features: DAC needs the training set's layer features, as arrays features/LAYER "
            "(`densecal extract` writes them)."
        )
    share = subsample if subsample is None or subsample < 1 else int(subsample)
    samples = len(outputs) if share is None else int(share if share >= 1 else share * len(outputs))
    with about(train):
        return FeatureBank(outputs.features, k=k or choose_k(samples, outputs.n_classes), subsample=share)


def _tell(calibrator: Calibrator, validation: Outputs, output: Path, messages: list[str], *, as_json: bool) -> None:
    from densecal.arrays import softmax
    from densecal.arrays.checks import check_logits
    from densecal.metrics import expected_calibration_error
    from densecal.report.metadata import learned_numbers
    from densecal.report.words import counted

    before = expected_calibration_error(softmax(check_logits(validation.logits)), validation.labels)
    confidence = calibrator.confidence(validation.logits, features=validation.features or None)
    correct = calibrator.predict_proba(validation.logits, features=validation.features or None).argmax(axis=1)
    after = expected_calibration_error(confidence, correct == validation.labels)
    size = output.stat().st_size
    if as_json:
        print_json(
            {
                "artefact": output,
                "bytes": size,
                "method": calibrator.short_name,
                "samples": len(validation),
                "learned": dict(learned_numbers(calibrator)),
                "validation_ece": {"before": before, "after": after},
                "warnings": messages,
            }
        )
        return
    metadata = {
        "method": calibrator.full_name,
        "fitted on": f"{counted(len(validation), 'sample')}, {validation.n_classes} classes",
        "ECE there": f"{100 * before:.1f} before, {100 * after:.1f} after (percentage points, on the data of the fit)",
        **dict(learned_numbers(calibrator)),
        "written to": f"{output} ({size / 1e6:.1f} MB)",
    }
    screen().print(facts_table("Fitted", metadata))


def apply(
    calibrator: Annotated[Path, typer.Argument(help="A calibrator that `densecal fit` wrote.")],
    data: Annotated[Path, typer.Option(help=f"Outputs to calibrate: {FILES}; labels are not needed.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write: a .npz or a .csv file.")],
    as_json: Json = False,
) -> None:
    """Turn a classifier's outputs into calibrated probabilities."""
    from densecal.evaluation.conditions import density_stage
    from densecal.io.artefact import load
    from densecal.io.storage import check_no_folder

    check_no_folder(output)
    if output.suffix not in (".npz", ".csv"):
        raise ValueError(f"--output must end in .npz or .csv, got {output.name!r}.")
    fitted = load(calibrator)
    with collected_warnings():
        outputs = read_outputs(data)
        features = outputs.features or None
        with about(data):
            probabilities = fitted.predict_proba(outputs.logits, features=features)
            columns = {
                "predicted": probabilities.argmax(axis=1),
                "confidence": fitted.confidence(outputs.logits, features=features),
            }
            stage = density_stage(fitted)
            if stage is not None:
                columns["temperature"] = stage.temperatures(features=features, logits=outputs.logits)
    _write_answers(output, probabilities, columns)
    mean = float(columns["confidence"].mean())
    if as_json:
        print_json({"output": output, "samples": len(outputs), "method": fitted.short_name, "mean_confidence": mean})
        return
    metadata = {
        "method": fitted.full_name,
        "samples": f"{len(outputs):,}",
        "mean confidence": f"{100 * mean:.1f} %",
        "arrays": ", ".join(["probabilities", *columns]),
        "written to": str(output),
    }
    screen().print(facts_table("Calibrated", metadata))


def _write_answers(output: Path, probabilities: Any, columns: dict[str, Any]) -> None:
    import numpy as np

    from densecal.io.storage import whole_file

    with whole_file(output) as temporary, temporary.open("wb") as file:
        if output.suffix == ".npz":
            np.savez_compressed(file, probabilities=probabilities, **columns)
            return
        import pandas as pd

        classes = {f"p{place}": probabilities[:, place] for place in range(probabilities.shape[1])}
        pd.DataFrame({**columns, **classes}).to_csv(file, index=False)
