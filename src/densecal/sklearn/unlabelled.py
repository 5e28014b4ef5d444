"""The outputs of a calibrated classifier, its accuracy on unlabelled samples, and its adaptation to them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from densecal.arrays import to_logits
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.shift_fit import Shifted, ShiftedSet
from densecal.calibrators.registry import has_dac
from densecal.estimation.estimate import AccuracyEstimate
from densecal.outputs import Outputs
from densecal.sklearn.conventions import label_indices
from densecal.sklearn.held_out import Density, HeldOut
from densecal.sklearn.responses import response
from densecal.sklearn.shifted import Domains


class UnlabelledSamples:
    """The methods of a calibrated classifier for unlabelled samples, and the outputs that they need."""

    method: str
    features: Any
    k: Any
    estimator_: Any
    estimators_: list[Any]
    calibrators_: list[Calibrator]
    classes_: Any
    features_: Any
    probability_floor_: float | None

    def outputs(self, X: object, y: object = None) -> Outputs:
        """Return the input of the calibrator: logits, the features that ``dac`` measures and, if given, the labels.

        A label is its position in ``classes_``. Use ``outputs(X).save(path)`` and ``save`` to write files for the
        commands, such as ``densecal monitor``. If the estimator predicts probabilities, the logits are their
        logarithms, and the commands need ``--assume-logits``. An ensemble of classifiers has no common outputs: use
        ``ensemble=False``.
        """
        check_is_fitted(self)
        return self._outputs(X, y, self.estimator_)

    def estimate_accuracy(self, X: object) -> AccuracyEstimate:
        """Estimate the accuracy of the classifier on unlabelled samples.

        The method must be ``dac``, fitted with ``X_shifted``. The samples must not be selected by confidence or class,
        as for ``Calibrator.estimate_accuracy``.
        """
        check_is_fitted(self)
        return self.calibrators_[0].estimate_accuracy(self._outputs(X))

    def adapted_to(self, X: object) -> Self:
        """Return a copy that is calibrated for unlabelled samples.

        The calibration is that of ``Calibrator.adapted_to``.
        """
        check_is_fitted(self)
        adapted = copy(self)
        adapted.calibrators_ = [self.calibrators_[0].adapted_to(self._outputs(X))]
        return adapted

    def _density(self, *, shift_fit: bool = False) -> Density | None:
        k = None if shift_fit and self.k == "auto" else self.k
        return Density(self.features, k) if self.method != "auto" and has_dac(self.method) else None

    def _outputs(self, X: Any, y: Any = None, member: Any = None) -> Outputs:
        member = self.estimators_[0] if member is None else member
        n_classes, density = len(self.classes_), self._density()
        known = response(member, X, n_classes)
        features = None if density is None else density.features(self.features_, member, X, n_classes, known)
        labels = None if y is None else label_indices(y, self.classes_)
        return Outputs(to_logits(known[0], self.probability_floor_), labels, features)

    def _shifted_outputs(self, domains: Domains | None, held_out: Mapping[str | None, HeldOut]) -> Shifted | None:
        """Return the outputs of shifted samples: on held-out copies, or else those of the fitted estimator."""
        if domains is None:
            return None
        found: dict[Any, ShiftedSet] = {}
        for name, (X, y) in domains.items():
            if name in held_out:
                part = held_out[name]
                labels = label_indices(y, self.classes_, "y_shifted")[part.rows]
                found[name] = to_logits(part.values, self.probability_floor_), labels, part.distances
            else:
                found[name] = self._outputs(X, y)
        return found.get(None, found)
