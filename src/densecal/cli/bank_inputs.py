"""The bank of ``densecal fit``: from the files of the training set, as centres or as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from densecal.cli.command import UsageError
from densecal.errors import listed
from densecal.io.file_layout import FileLayout
from densecal.progress import track

if TYPE_CHECKING:
    from densecal.density.bank import FeatureBank
    from densecal.density.defaults import BankSize
    from densecal.outputs import Outputs

WHY_DIFFERENT = (
    "A calibrator needs validation data that the classifier was not trained on, and shifted data that differ from them."
)
READ_ROWS = 8192


def check_bank_options(train: object, centres: int | None, rows: Mapping[str, object]) -> None:
    """Raise for a bank without training data, or with both centres and rows."""
    if train is None:
        raise UsageError(
            "A method with DAC requires --train: the outputs of the training set, whose features form the bank. "
            "Without them, use a method such as ets."
        )
    given = [name for name, value in rows.items() if value]
    if centres is not None and given:
        raise UsageError(f"--centres replaces training samples, which {', '.join(given)} keep. Pass one or the other.")


def read_features(paths: list[Path], layout: FileLayout, validation: Mapping[str, Outputs]) -> dict[Path, Outputs]:
    """Return the outputs of the training set by file; raise or warn if they are among the validation data."""
    from densecal.density.duplicates import DuplicateCheck
    from densecal.reading import check_different, read_outputs

    # Only the features are used. The logits are not checked, so they may be probabilities.
    layout = replace(layout, probabilities=False, assume_logits=True)
    found = {path: read_outputs(path, layout) for path in track(paths, "reading the training set")}
    layers = next(iter(found.values())).layers
    checks = [
        DuplicateCheck({layer: one.features[layer] for layer in one.layers if layer in layers})
        for one in validation.values()
    ]
    for path, outputs in found.items():
        if not outputs.features:
            raise ValueError(
                f"{path} has no features: DAC requires the layer features of the training set, as arrays "
                "features/LAYER or columns features/LAYER/0, features/LAYER/1, ... (`densecal extract` writes them)."
            )
        check_different({f"--train {path}": outputs, **validation}, WHY_DIFFERENT)
        for check in checks:
            check.update(outputs.features)
    for check in checks:
        check.warn()
    return found


def make_centres(parts: Mapping[Path, Outputs], centres: int | None) -> FeatureBank:
    """Return a bank of centres, found in one pass over the files."""
    from densecal.density.bank import FeatureBank
    from densecal.outputs import name_file_in_errors

    blocks = [
        (outputs, slice(start, start + READ_ROWS))
        for outputs in parts.values()
        for start in range(0, len(outputs), READ_ROWS)
    ]
    with name_file_in_errors(listed([str(path) for path in parts])):
        # A block of a memory-mapped file is read at a time.
        return FeatureBank.from_batches(
            (outputs[rows].features for outputs, rows in track(blocks, "finding centres")),
            centres="auto" if centres is None else centres,
        )


def make_rows(parts: Mapping[Path, Outputs], k: int | None, bank_size: BankSize) -> FeatureBank:
    """Return a bank of training samples."""
    from densecal.density.bank import FeatureBank
    from densecal.density.defaults import choose_bank_size, choose_k
    from densecal.outputs import Outputs, name_file_in_errors

    outputs = next(iter(parts.values())) if len(parts) == 1 else Outputs.concatenate(parts.values())
    size = choose_bank_size(len(outputs), bank_size)
    with name_file_in_errors(listed([str(path) for path in parts])):
        return FeatureBank(outputs.features, k=k or choose_k(size, outputs.n_classes), bank_size=size)


def parse_bank_size(text: str | None) -> BankSize:
    """Parse a number of samples, such as ``1``, a fraction, such as ``1.0`` (all samples), or ``auto``."""
    if text is None or text == "auto":
        return "auto" if text else None
    try:
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        raise ValueError(
            f"--bank-size must be a number of samples, a fraction such as 0.1, or auto, got {text!r}."
        ) from None
