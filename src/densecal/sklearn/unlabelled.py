"""Samples without labels, and shifted samples from which a calibrated classifier learns to judge them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from densecal.calibrators.base import Calibrator
from densecal.estimation.accuracy import AccuracyEstimate
from densecal.outputs import Outputs


class UnlabelledSamples:
    """The methods of a calibrated classifier for samples without labels."""

    calibrators_: list[Calibrator]

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

    def _shifted_outputs(self, X: Any, y: Any) -> Outputs | dict[str, Outputs] | None:
        """Return the outputs of shifted samples, by their domains if these are named."""
        is_list_of_tables = isinstance(X, list) and bool(X) and hasattr(X[0], "shape") and len(X[0].shape) > 1
        if not isinstance(X, Mapping) and not isinstance(y, Mapping) and not is_list_of_tables:
            return None if X is None else self._outputs(X, y)
        if not isinstance(X, Mapping) or not isinstance(y, Mapping) or X.keys() != y.keys():
            raise ValueError(
                "X_shifted and y_shifted must be two arrays, or two mappings with the same names of domains: "
                "X_shifted={'night/weak': X1, ...}, y_shifted={'night/weak': y1, ...}."
            )
        return {name: self._outputs(X[name], y[name]) for name in X}
