"""What a reader should be warned of: an active bound, a small validation set, a missing class, too few samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.arrays import to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import method_label
from densecal.evaluation.conditions import density_stage
from densecal.report.words import counted

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable
    from densecal.outputs import Outputs

FEW_SAMPLES = 1000
FEW_A_CLASS = 20
ALMOST_ZERO = 2e-3


def cautions(
    table: EvaluationTable,
    calibrators: Mapping[str, Calibrator],
    *,
    validation: Outputs | None = None,
    given: Iterable[str] = (),
) -> list[str]:
    """Return one sentence a caution, the given ones first, each once."""
    found = [*given]
    if validation is not None:
        found += validation_cautions(validation)
    for name, calibrator in calibrators.items():
        found += _about_fit(name, calibrator)
    found += _about_density(calibrators)
    found += _about_tests(table)
    return list(dict.fromkeys(found))


def validation_cautions(validation: Outputs) -> list[str]:
    """Return what to be careful of in a validation set: too few samples, a class that is missing.

    Examples
    --------
    >>> from densecal import Outputs
    >>> few = Outputs([[2.0, 1.0]] * 30, labels=[0] * 30)
    >>> validation_cautions(few)[1]
    'Class 1 is not in the validation set, so nothing was learned about it.'
    """
    found = []
    samples, classes = len(validation), validation.n_classes
    if samples < max(FEW_SAMPLES, FEW_A_CLASS * classes):
        found.append(
            f"The validation set has {counted(samples, 'sample')} for {counted(classes, 'class', 'classes')}. With so "
            "few, a fit can follow chance; 1,000 or more, and 20 a class, are better."
        )
    if validation.labels is not None:
        missing = sorted(set(range(classes)) - set(np.unique(to_numpy(validation.labels)).tolist()))
        if missing:
            them = "it" if len(missing) == 1 else "them"
            found.append(f"{_classes(missing)} not in the validation set, so nothing was learned about {them}.")
    return found


def _classes(missing: list[int]) -> str:
    shown = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
    return f"Class {shown} is" if len(missing) == 1 else f"Classes {shown} ({len(missing)} in all) are"


def _about_fit(name: str, calibrator: Calibrator) -> list[str]:
    found = []
    label = method_label(name)
    for stage in getattr(calibrator, "stages", (calibrator,)):
        if getattr(stage, "is_identity_", False):
            found.append(f"{label} did not improve the validation set and returns the softmax unchanged.")
        if getattr(stage, "converged_", True) is False:
            found.append(f"{label}: the optimiser stopped before it converged ({getattr(stage, 'message_', '')}).")
        temperature = getattr(stage, "temperature_", None)
        if isinstance(temperature, float) and not 1e-3 < temperature < 1e3:
            found.append(f"{label}: the temperature ended at its bound, {temperature:g}.")
    if not calibrator.accuracy_preserving:
        found.append(f"{label} can change the predicted class.")
    return found


def _about_density(calibrators: Mapping[str, Calibrator]) -> list[str]:
    """Return what the DAC in some methods learned to be careful of, each once with the methods' names before it."""
    about: dict[str, list[str]] = {}
    for name, calibrator in calibrators.items():
        caution = _about_weights(density_stage(calibrator))
        if caution:
            about.setdefault(caution, []).append(method_label(name))
    return [f"{', '.join(labels)}: {caution}" for caution, labels in about.items()]


def _about_weights(stage: Any) -> str:
    weights = np.asarray(getattr(stage, "weights_", []), float)
    bias = float(getattr(stage, "bias_", 1.0))
    if not weights.size:
        return ""
    if not weights.any():
        return (
            "DAC gave every layer the weight zero, so it acts as temperature scaling. Fit it with shifted validation "
            "data (densecal fit --shifted) to prepare it for data that moves."
        )
    # In a shift fit the constant is a factor, which has no such bound.
    if bias < ALMOST_ZERO * weights.sum() and not getattr(stage, "shift_fitted", False):
        return (
            "the constant part w₀ of DAC's temperature ended at its lower bound, so an input at a distance near zero "
            "from the training data, such as a copy, gets a confidence close to 100 %, right or wrong."
        )
    return ""


def _about_tests(table: EvaluationTable) -> list[str]:
    small = [condition for condition in table.conditions if len(condition.outputs) < FEW_SAMPLES // 2]
    found = []
    if small:
        sizes = [len(condition.outputs) for condition in small]
        which = f"{len(small)} of the {len(table.conditions)} test sets have" if len(small) > 1 else "One test set has"
        smallest = "the smallest " if len(small) > 1 else ""
        found.append(
            f"{which} fewer than {FEW_SAMPLES // 2} samples ({smallest}{min(sizes)}): an ECE on so few is too high "
            f"by chance.{' Look at the intervals.' if table.has_intervals else ''}"
        )
    return found
