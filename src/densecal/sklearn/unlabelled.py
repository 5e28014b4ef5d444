"""Samples without labels, and shifted samples from which a calibrated classifier learns to judge them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from densecal.arrays import to_logits
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.shift_fit import Shifted, ShiftedSet
from densecal.estimation.accuracy import AccuracyEstimate
from densecal.outputs import Outputs
from densecal.sklearn.conventions import label_indices
from densecal.sklearn.held_out import HeldOut
from densecal.sklearn.shifted import Domains


class UnlabelledSamples:
    """The methods of a calibrated classifier for samples without labels."""

    calibrators_: list[Calibrator]
    classes_: Any
    probability_floor_: float | None

    def estimate_accuracy(self, X: object) -> AccuracyEstimate:
        """Estimate the accuracy of the classifier on unlabelled samples.

        The method must be ``dac``, fitted with ``X_shifted``. The samples must be what the classifier meets, not a
        selection, as for ``Calibrator.estimate_accuracy``.
        """
        check_is_fitted(self)
        return self.calibrators_[0].estimate_accuracy(self._outputs(X))

    def adapted_to(self, X: object) -> Self:
        """Return a copy that is calibrated for unlabelled samples, of one domain or several.

        The calibration is that of ``Calibrator.adapted_to``.
        """
        check_is_fitted(self)
        adapted = copy(self)
        adapted.calibrators_ = [self.calibrators_[0].adapted_to(self._outputs(X))]
        return adapted

    def _outputs(self, X: Any, y: Any = None) -> Outputs:
        raise NotImplementedError

    def _shifted_outputs(self, domains: Domains | None, held_out: Mapping[str | None, HeldOut]) -> Shifted | None:
        """Return the outputs of shifted samples: those on held-out copies, and else those of the fitted estimator."""
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
