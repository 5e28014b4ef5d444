"""Warnings about data: too few samples, missing or masked classes, labels or features of other samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from densecal.arrays import Array, ArrayLike, as_array, namespace, softmax, to_numpy
from densecal.arrays.checks import as_floats
from densecal.calibrators.solvers.masks import MASKED_TEMPERATURES
from densecal.display import counted
from densecal.errors import warn_user
from densecal.io.atomic_files import listed
from densecal.outputs import Outputs

FEW_VALIDATION_SAMPLES = 1000
FEW_PER_CLASS = 20
FEW_TRAINING_SAMPLES = 100
LOGITS_LAYER = "logits"
"""The layer of the features that holds the logits."""
MOST_DIFFERING = 0.1
"""Logits that were corrected afterwards may predict other classes for a few samples."""
SMALLEST_MASK = 5e3
"""A label whose logit is this far below the largest is masked, by -1e4, -1e9 or the lowest float, if the typical
margin between the two largest logits is much smaller."""


def warn_of_small_bank(n_samples: int, n_classes: int) -> None:
    """Warn if so few training samples make a bank that the distances from them mean little."""
    enough = max(FEW_TRAINING_SAMPLES, n_classes)
    if n_samples < enough:
        warn_user(
            f"The bank is made of {counted(n_samples, 'training sample')}, fewer than {enough:,}, so the distances say "
            "little about new data. Use more training samples."
        )


def warn_of_other_rows(logits: Array, features: Mapping[str, ArrayLike]) -> None:
    """Warn if the layer of the logits among the features predicts other classes than the logits."""
    if LOGITS_LAYER not in features:
        return
    layer = as_array(features[LOGITS_LAYER], LOGITS_LAYER)
    if tuple(layer.shape) != tuple(logits.shape) or not len(layer):
        return
    ours, theirs = (to_numpy(namespace(one).argmax(one, axis=1)) for one in (logits, layer))
    differing = float(np.mean(ours != theirs))
    if differing > MOST_DIFFERING:
        warn_user(
            f"On {differing:.1%} of the samples, the features of the layer {LOGITS_LAYER!r} have another largest class "
            "than the logits: the rows or the classes of one of them seem to be in another order. Save logits and "
            "features of the same pass over the data together."
        )


def validation_cautions(validation: Outputs, class_names: Sequence[str] = ()) -> list[str]:
    """Return warnings about a validation set: too few samples, missing classes, labels of other samples."""
    found = []
    samples, classes = len(validation), validation.n_classes
    enough = max(FEW_VALIDATION_SAMPLES, FEW_PER_CLASS * classes)
    if samples < enough:
        why = f", {FEW_PER_CLASS} per class" if enough > FEW_VALIDATION_SAMPLES else ""
        found.append(
            f"The validation set has {counted(samples, 'sample')} for {counted(classes, 'class', 'classes')}. A fit on "
            f"so few samples can overfit. Use at least {enough:,}{why}."
        )
    return found + label_cautions(validation, class_names)


def label_cautions(validation: Outputs, class_names: Sequence[str] = ()) -> list[str]:
    """Return warnings about the labels of a validation set: missing classes, labels of other or training samples."""
    if validation.labels is None:
        return []
    found = []
    absent = np.setdiff1d(np.arange(validation.n_classes), to_numpy(validation.labels))
    if missing := [class_names[one] if class_names else str(one) for one in absent]:
        subject, verb, object_ = ("Class", "is", "it") if len(missing) == 1 else ("Classes", "are", "them")
        found.append(
            f"{subject} {listed(missing)} {verb} not in the validation set, so nothing was learned about {object_}."
        )
    if n_masked := _count_masked_labels(validation.logits, validation.labels):
        found.append(
            f"{n_masked:,} of {len(validation):,} validation samples have the label of a masked class (a logit far "
            "below the largest). No temperature makes such a label probable, so the fit is useless. Leave these "
            "samples out, or unmask the class."
        )
    if chance := accuracy_at_chance(validation.logits, validation.labels):
        found.append(
            f"On the validation set the classifier is no better than chance: {chance}. Check that the labels "
            "belong to these samples, and that the classes are in the order of the scores."
        )
    if accuracy_and_chance(validation.logits, validation.labels)[0] == 1:
        found.append(
            "The classifier is right on every validation sample. If it was trained on these samples, its confidences "
            "become too high: use samples that it was not trained on."
        )
    return found


def accuracy_and_chance(logits: Array, labels: Array) -> tuple[float, float, float]:
    """Return the accuracy, the one expected with shuffled labels, and the standard error of the latter."""
    n_samples, n_classes = logits.shape
    predicted, true = to_numpy(namespace(logits).argmax(logits, axis=1)), to_numpy(labels)
    shares = [np.bincount(classes, minlength=n_classes) / n_samples for classes in (predicted, true)]
    chance = float(shares[0] @ shares[1])
    # The variance over all permutations of the labels; with equal classes that of a binomial share.
    variance = chance + chance**2 - shares[0] * shares[1] @ (shares[0] + shares[1])
    error = float(np.sqrt(max(variance, 0.0) / max(n_samples - 1, 1)))
    return float((predicted == true).mean()), chance, error


def accuracy_at_chance(logits: Array, labels: Array) -> str | None:
    """Return the accuracy in words if the classifier is confident but no more accurate than with shuffled labels."""
    accuracy, chance, error = accuracy_and_chance(logits, labels)
    if accuracy > chance + 2 * error:
        return None  # usually, so the softmax is not computed
    confidence = float(to_numpy(softmax(as_floats(logits))).max(axis=1).mean())
    # With two or three classes, a confident classifier does not claim twice what it gets by chance.
    is_confident = confidence >= min(2 * accuracy, accuracy + (1 - chance) / 4)
    # Where almost one class alone is predicted, shuffled labels hardly change the accuracy and prove nothing.
    binomial_error = np.sqrt(chance * (1 - chance) / len(logits))
    has_enough_samples = chance + 2 * binomial_error < (chance + confidence) / 2
    if not is_confident or not has_enough_samples:
        return None
    return f"accuracy {accuracy:.1%}, with shuffled labels {100 * chance:.1f} ± {error:.1%}"


def _count_masked_labels(logits: Array, labels: Array) -> int:
    """Return how many labels are those of masked classes. Scores in large units have large gaps, but no masks."""
    scores, true = to_numpy(logits), to_numpy(labels)
    below_top = scores.max(axis=1).astype(np.float64) - scores[np.arange(len(true)), true]
    if not (below_top > SMALLEST_MASK).any():
        return 0
    second, largest = np.partition(scores, -2, axis=1)[:, -2:].T.astype(np.float64)
    typical = float(np.median(largest - second))
    return int((below_top > max(SMALLEST_MASK, MASKED_TEMPERATURES * typical)).sum())
