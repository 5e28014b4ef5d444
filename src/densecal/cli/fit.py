"""``densecal fit``: fit a calibrator on validation data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from densecal.calibrators import DEFAULT_METHOD
from densecal.cli.app import collect_warnings, file_and_size, print_json, print_values
from densecal.cli.inputs import (
    FILES,
    MAX_FIT_SAMPLES,
    WHY_DIFFERENT,
    FileOptions,
    Json,
    UsageError,
    check_different,
    check_outputs,
    expand,
    read_validation,
    usage_errors,
    with_options,
)
from densecal.cli.inspect import describe_stages
from densecal.display import track
from densecal.errors import warn_user
from densecal.io.atomic_files import listed, name_file_in_errors

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.calibrators.temperature import Loss
    from densecal.density.bank import FeatureBank
    from densecal.density.defaults import BankSize
    from densecal.io.output_files import FileLayout
    from densecal.outputs import Outputs, OutputShards

METHOD_WITHOUT_TRAIN = "ets"
FOR_ROWS = ("k", "bank_size", "half")
"""The options of a bank that keeps training samples."""

Val = Annotated[
    list[Path],
    typer.Option(help=f"Labelled outputs of the validation set: {FILES}. Repeat for several files of one data set."),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="Calibration method: ts, ets, irm, ir, spl, pts, dir, vs, dia, platt, beta or dac, or dac followed by "
        f"another method, such as dac+ets. With --shifted, dac is the shift fit, dac-shift. The default is "
        f"{DEFAULT_METHOD}, or {METHOD_WITHOUT_TRAIN} without --train."
    ),
]
LossName = Annotated[
    str | None,
    typer.Option(help="Loss of dac, ts and ets: brier or nll. The default is brier for dac, nll for ts and ets."),
]
MaxSamples = Annotated[
    int, typer.Option(help="Maximum number of validation samples to fit on; a larger set is sampled at random.", min=1)
]


@dataclass(frozen=True)
class BankOptions:
    """The options of methods with DAC, which measure distances from a bank of training features."""

    train: Annotated[
        list[Path] | None,
        typer.Option(help="Outputs of the training set, required by DAC: features/LAYER form the bank. Repeatable."),
    ] = None
    shifted: Annotated[
        list[str] | None,
        typer.Option(
            help="Labelled outputs of perturbed validation inputs, to fit DAC for data under shift, as PATH or "
            "NAME=PATH. Repeatable. The part of a name before / is the kind of shift: noise/weak=a.npz, "
            "noise/strong=b.npz."
        ),
    ] = None
    centres: Annotated[
        int | None,
        typer.Option(help="Number of centres per layer in the bank; automatic by default with --shifted.", min=1),
    ] = None
    k: Annotated[
        int | None,
        typer.Option(
            help="Keep training samples instead of centres, and use the distance to the k-th nearest sample. Without "
            "--shifted this is the default, with k chosen automatically.",
            min=1,
        ),
    ] = None
    bank_size: Annotated[
        str | None,
        typer.Option(help="Number of training samples to keep, a fraction such as 0.1 (1.0 means all), or auto."),
    ] = None
    half: Annotated[bool, typer.Option("--half", help="Store the bank's training samples in half precision.")] = False

    def given(self, *names: str) -> list[str]:
        """Return those of the options, by default all, that are given."""
        return [f"--{name.replace('_', '-')}" for name in names or vars(self) if getattr(self, name)]

    def check(self) -> None:
        """Raise for a bank without training data, or with both centres and training samples."""
        self.parsed_size()
        if self.train is None:
            raise UsageError(
                "A method with DAC requires --train: the outputs of the training set, whose features form the bank. "
                "Without them, use a method such as ets."
            )
        if self.centres is not None and (rows := ", ".join(self.given(*FOR_ROWS))):
            raise UsageError(f"--centres replaces training samples, which {rows} keep. Pass one or the other.")

    def parsed_size(self) -> BankSize:
        """Parse a number of samples, such as ``1``, a fraction, such as ``1.0`` (all samples), or ``auto``."""
        text = self.bank_size
        if text is None or text == "auto":
            return "auto" if text else None
        try:
            return int(text) if text.strip().isdigit() else float(text)
        except ValueError:
            raise UsageError(
                f"--bank-size must be a number of samples, a fraction such as 0.1, or auto, got {text!r}."
            ) from None


@with_options
def fit(
    val: Val,
    output: Annotated[Path, typer.Option("--output", "-o", help="The calibrator file to write.")],
    files: FileOptions,
    for_bank: BankOptions,
    method: Method = None,
    loss: LossName = None,
    max_samples: MaxSamples = MAX_FIT_SAMPLES,
    as_json: Json = False,
) -> None:
    """Fit a calibrator on a validation set that the classifier was not trained on."""
    from densecal.calibrators.registry import make_calibrator
    from densecal.calibrators.validation_warnings import validation_cautions
    from densecal.cli.shifted_data import expand_shifted, read_domains, warn_of_one_kind

    method = method or (DEFAULT_METHOD if for_bank.train else METHOD_WITHOUT_TRAIN)
    # Check the options before reading any file.
    make = partial(make_calibrator, method, loss=cast("Loss | None", loss))
    with usage_errors():
        needs_bank = make().density_stage is not None
    if needs_bank:
        for_bank.check()
    vals, trains = expand("--val", val), expand("--train", for_bank.train or [])
    shifts = expand_shifted(for_bank.shifted) if for_bank.shifted else {}
    sources = {"val": vals, "train": trains, "shifted": list(shifts)}
    check_outputs({"--output": output}, {f"--{role}": paths for role, paths in sources.items()})
    val_name = listed(vals)
    bank = domains = None
    with collect_warnings() as messages:
        validation, layout = read_validation(vals, files.layout(), max_samples)
        if needs_bank:
            bank = _make_bank(_open_training_set(trains, layout, validation, f"--val {val_name}"), for_bank)
        elif unused := for_bank.given():
            verb = "is" if len(unused) == 1 else "are"
            why = f"only methods with DAC measure distances, and {method} has no DAC."
            warn_user(f"{', '.join(unused)} {verb} ignored: {why}")
            sources, shifts = {"val": vals}, {}
        calibrator = make(bank=bank)
        with name_file_in_errors(val_name):
            validation = calibrator.measure(validation)
        if shifts:
            domains = read_domains(shifts, calibrator, validation, f"--val {val_name}", layout)
        with name_file_in_errors(val_name):
            calibrator.fit(validation, shifted=domains)
        if shifts:
            warn_of_one_kind(calibrator)
        for caution in validation_cautions(validation, layout.classes):
            warn_user(caution)
    # Store the warnings in the file, so that a report can show them.
    metadata = {"validation_samples": len(validation), "warnings": messages, **_describe_data(layout, sources)}
    calibrator.save(output, half_precision_bank=for_bank.half, metadata=metadata)
    _print_fit(calibrator, validation, output, messages, as_json=as_json)


def _open_training_set(paths: list[Path], layout: FileLayout, validation: Outputs, name: str) -> OutputShards:
    """Return the outputs of the training set; raise or warn if they are among the validation data of that name."""
    from densecal.density.duplicates import DuplicateCheck
    from densecal.outputs import OutputShards

    # Only the features are used. The logits are not checked, so they may be probabilities.
    train = OutputShards(paths, replace(layout, probabilities=False, assume_logits=True), verify=True)
    if not train.layers:
        raise ValueError(
            f"{paths[0]} has no features: DAC requires the layer features of the training set, as arrays "
            "features/LAYER or columns features/LAYER/0, features/LAYER/1, ... (`densecal extract` writes them)."
        )
    duplicates = DuplicateCheck({layer: one for layer, one in validation.features.items() if layer in train.layers})
    for path, (_, part) in zip(track(paths, "reading the training set"), train.parts(), strict=True):
        check_different({f"--train {path}": part, name: validation}, WHY_DIFFERENT)
        for batch in part.batches():
            duplicates.update(batch.features)
    duplicates.warn()
    return train


def _make_bank(train: OutputShards, options: BankOptions) -> FeatureBank:
    """Return a bank of centres, found in one pass over the files, or of training samples."""
    from densecal.calibrators.validation_warnings import warn_of_small_bank
    from densecal.density.bank import FeatureBank
    from densecal.density.defaults import choose_bank_size, choose_k
    from densecal.outputs.outputs import BATCH_SIZE

    warn_of_small_bank(len(train), train.n_classes)
    size = choose_bank_size(len(train), options.parsed_size())
    with name_file_in_errors(listed(train.paths)):
        if options.centres is not None or (options.shifted and not options.given(*FOR_ROWS)):
            batches = track(train.batches(), "finding centres", total=len(train) // BATCH_SIZE)
            return FeatureBank.from_batches((batch.features for batch in batches), centres=options.centres or "auto")
        return FeatureBank(train.load().features, k=options.k or choose_k(size, train.n_classes), bank_size=size)


def _describe_data(layout: FileLayout, files: Mapping[str, list[Path]]) -> dict[str, object]:
    """Return the metadata that `densecal apply` needs about the data of the fit, and the SHA-256 of each file."""
    from densecal.io.atomic_files import hash_file

    found: dict[str, object] = {
        "files": {role: {path.name: hash_file(path) for path in paths} for role, paths in files.items() if paths}
    }
    if layout.classes:
        found["classes"] = list(layout.classes)
    if layout.probability_floor is not None:
        found |= {"probability_floor": layout.probability_floor, "percentages": layout.percentages}
    return found


def _print_fit(
    calibrator: Calibrator, validation: Outputs, output: Path, messages: list[str], *, as_json: bool
) -> None:
    from densecal.arrays import softmax
    from densecal.calibrators.state import learned_numbers
    from densecal.display import counted, percent, points
    from densecal.metrics import expected_calibration_error

    uncalibrated = softmax(validation.checked_logits())
    correct = uncalibrated.argmax(axis=1) == validation.labels
    right, before = float(correct.mean()), expected_calibration_error(uncalibrated.max(axis=1), correct)
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
                "validation_accuracy": right,
                "validation_ece": {"before": before, "after": after},
                "warnings": messages,
            }
        )
        return
    values = {
        "method": calibrator.full_name,
        "fitted on": f"{counted(len(validation), 'sample')}, {validation.n_classes} classes",
        "validation accuracy": f"{percent(right, 1)} of the classifier",
        "validation ECE": f"{points(before)} before, {points(after)} after (percentage points)",
        **dict(learned_numbers(calibrator)),
        "written to": file_and_size(output),
    }
    print_values("Fitted", values)
