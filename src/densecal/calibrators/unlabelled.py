"""Accuracy and adaptation of a fitted calibrator on unlabelled batches."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, cast

from densecal.arrays import Array, ArrayLike, namespace
from densecal.errors import warn_user
from densecal.estimation.accuracy_model import AccuracyModel
from densecal.estimation.estimate import EXTRAPOLATED, AccuracyEstimate
from densecal.estimation.signals import SampleSignals
from densecal.outputs import Distances, Outputs

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator, Features, Samples
    from densecal.calibrators.dac import DAC


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
        from densecal.calibrators.dac.unlabelled import estimate_accuracy

        calibrator = cast("Calibrator", self)
        samples, dac = calibrator._fitted_samples(logits, features, distances), _estimator(calibrator)
        return estimate_accuracy(dac, samples, _confidence(calibrator, dac, samples))

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
        from densecal.calibrators.dac.unlabelled import Batch
        from densecal.calibrators.registry import join_stages

        calibrator = cast("Calibrator", self)
        samples, dac = calibrator._fitted_samples(logits, features, distances), _estimator(calibrator)
        following = list(calibrator.stages[1:])

        def mean_confidence(rescaled: Array) -> float:
            confidence = join_stages(following)._confidence(samples._replace(logits=rescaled))
            return float(namespace(confidence).mean(confidence))

        batch, adapted = Batch.of(dac, samples), copy(dac)
        if batch.extrapolation_of(dac) > 1:
            warn_user(f"The batch is {EXTRAPOLATED}. Nothing supports the confidences of the adapted copy.")
        adapted.adaptation_ = batch.adaptation(mean_confidence if following else None)
        return join_stages([adapted, *following])


def sample_signals(
    calibrator: Calibrator,
    logits: ArrayLike | Outputs,
    features: Features | None = None,
    distances: ArrayLike | Distances | None = None,
) -> SampleSignals:
    """Return the signals of each sample that a monitor keeps for its estimates."""
    from densecal.calibrators.dac.unlabelled import Batch, sample_signals

    samples, dac = calibrator._fitted_samples(logits, features, distances), _estimator(calibrator)
    return sample_signals(dac, Batch.of(dac, samples), _confidence(calibrator, dac, samples))


def can_estimate(calibrator: Calibrator) -> bool:
    """Return whether a calibrator was fitted with shifted data, so that it can estimate accuracies."""
    stage = calibrator.density_stage
    return stage is not None and stage.accuracy_model_ is not None


def with_plain_scaling(calibrator: Calibrator) -> dict[str, Calibrator]:
    """Return the calibrator and, if it has learned one, temperature scaling on the same validation data, by name."""
    from densecal.calibrators.dac.unlabelled import learned_accuracy
    from densecal.calibrators.temperature import TemperatureScaling

    found = {calibrator.method_name: calibrator}
    if can_estimate(calibrator):
        scaling = TemperatureScaling()
        scaling.temperature_ = learned_accuracy(_estimator(calibrator))["plain_temperature"]
        scaling.n_classes_, scaling.is_identity_ = calibrator.n_classes_, False
        found[scaling.method_name] = scaling
    return found


def accuracy_model(calibrator: Calibrator) -> AccuracyModel:
    """Return the regression of the accuracy; raise if the calibrator has none."""
    from densecal.calibrators.dac.unlabelled import learned_accuracy

    return AccuracyModel.from_state(learned_accuracy(_estimator(calibrator))["regression"])


def _estimator(calibrator: Calibrator) -> DAC:
    if calibrator.density_stage is None:
        raise ValueError(
            f"{calibrator.short_name!r} cannot estimate accuracies: it does not measure distances. Use 'dac' or "
            f"'dac+{calibrator.short_name}', fitted with shifted=."
        )
    return calibrator.density_stage


def _confidence(calibrator: Calibrator, dac: DAC, samples: Samples) -> Array | None:
    """Return the confidence of a calibrator, or None if it is that of the fit, which the estimates compute anyway."""
    return None if calibrator is dac and dac.adaptation_ is None else calibrator._confidence(samples)
