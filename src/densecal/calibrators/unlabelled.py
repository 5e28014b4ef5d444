"""The methods of a fitted calibrator for unlabelled batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from densecal.arrays import ArrayLike
from densecal.estimation.accuracy_estimate import AccuracyEstimate
from densecal.outputs import Distances, Outputs

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator, Features
    from densecal.calibrators.dac.unlabelled_batch import Batch


class EstimatesAccuracy:
    """The methods of a calibrator for data without labels."""

    def estimate_accuracy(
        self,
        logits: ArrayLike | Outputs,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
    ) -> AccuracyEstimate:
        """Estimate the accuracy of the classifier on an unlabelled batch.

        ``fit`` learns the estimate from ``shifted=`` data. Labels in the batch are ignored. The batch must be
        unselected, everything that the classifier receives or a random sample of it: for samples chosen by confidence
        or class, the interval does not hold.
        """
        return self._batch(logits, features, distances).estimate()

    def adapted_to(
        self,
        logits: ArrayLike | Outputs,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
    ) -> Calibrator:
        """Return a copy that is calibrated for an unlabelled batch.

        Inputs at similar distances get one temperature, at which their mean confidence equals their estimated accuracy.
        A batch that looks clean gets the confidences of temperature scaling, or those of the fit if its NLL on the
        clean validation data is lower. A batch of a few samples gets those of the fit. The copy treats each input on
        its own, and the predicted class does not change. It is for inputs like those of the batch: return to the
        original when the data return to normal, and adapt again when they change. Adapting an adapted calibrator
        replaces the earlier adaptation.
        """
        return self._batch(logits, features, distances).adapted_calibrator()

    def _batch(
        self, logits: ArrayLike | Outputs, features: Features | None, distances: ArrayLike | Distances | None
    ) -> Batch:
        from densecal.calibrators.dac.unlabelled_batch import Batch

        calibrator = cast("Calibrator", self)
        return Batch(calibrator, calibrator._fitted_samples(logits, features, distances))
