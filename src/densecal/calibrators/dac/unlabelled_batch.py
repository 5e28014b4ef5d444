"""Unlabelled batches: the estimated accuracy of the classifier, and temperatures for the batch."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.arrays import Array, ArrayLike, asarray_like, namespace, row_blocks, softmax, to_numpy
from densecal.calibrators.dac.shift_fit import ShiftedData
from densecal.calibrators.solvers.temperature_fit import solve_temperature
from densecal.calibrators.temperature import TemperatureScaling, TemperedLoss
from densecal.errors import warn_user
from densecal.estimation.accuracy_estimate import EXTRAPOLATED, SAMPLES_PER_CLASS, AccuracyEstimate, expected_confusion
from densecal.estimation.accuracy_model import AccuracyModel
from densecal.estimation.adaptation import adapt_to_batch, map_log_temperatures, solve_level
from densecal.estimation.signals import SampleSignals
from densecal.outputs import Distances, Outputs

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator, Features, Samples
    from densecal.calibrators.dac.method import DAC

CLEAN_QUANTILES = (0.25, 0.75, 0.99)
"""Quantiles of log S on clean data: the quartiles, and the one above which an input counts as far."""
MASKED = 1e9
"""Logits this far below the largest count as masked: their probability is zero."""
LARGEST_LOG_S = 80.0
"""Beyond it the temperature of a very far input overflows in float32; its confidence is 1 / n_classes in any case."""
BLOCK_BYTES = 1 << 24
"""Bytes of logits for which predictors are computed at once."""


def learn_accuracy(
    dac: DAC, logits: Array, labels: Array, clean_temperatures: Any, shifted: ShiftedData
) -> dict[str, Any]:
    """Return the state of the accuracy model of a shift-fitted DAC, learned on clean and shifted data."""
    plain = solve_temperature(TemperedLoss(logits, labels, "nll"), warn=False)
    shifted_temperatures = dac._sample_temperatures(shifted.logits, shifted.scores)
    temperatures = [np.asarray(clean_temperatures), to_numpy(shifted_temperatures)]
    parts = [(logits, labels), (shifted.logits, shifted.labels)]
    predictors = np.concatenate([_predictors(z, t, plain)[0] for (z, _), t in zip(parts, temperatures, strict=True)])
    correct = np.concatenate([to_numpy(namespace(z).argmax(z, axis=1) == y) for z, y in parts])
    drift = to_numpy(dac.residuals(shifted.logits, shifted.scores))
    model = AccuracyModel.learn(predictors, correct, shifted.names, drift)
    quantiles = np.quantile(np.log(temperatures[0]), CLEAN_QUANTILES).tolist()
    return {"plain_temperature": plain, "clean_log_s": quantiles, "regression": model.state()}


def can_estimate(calibrator: Calibrator) -> bool:
    """Return whether a calibrator was fitted with shifted data, so that it can estimate accuracies."""
    stage = calibrator.density_stage
    return stage is not None and stage.accuracy_model_ is not None


def accuracy_model(calibrator: Calibrator) -> AccuracyModel:
    """Return the regression of the accuracy; raise if the calibrator has none."""
    return AccuracyModel.from_state(_learned(calibrator)[1]["regression"])


def with_plain_scaling(calibrator: Calibrator) -> dict[str, Calibrator]:
    """Return the calibrator and, if it has learned one, temperature scaling on the same validation data, by name."""
    found = {calibrator.method_name: calibrator}
    if can_estimate(calibrator):
        scaling = TemperatureScaling()
        scaling.temperature_ = _learned(calibrator)[1]["plain_temperature"]
        scaling.n_classes_, scaling.is_identity_ = calibrator.n_classes_, False
        found[scaling.method_name] = scaling
    return found


def sample_signals(
    calibrator: Calibrator,
    logits: ArrayLike | Outputs,
    features: Features | None = None,
    distances: ArrayLike | Distances | None = None,
) -> SampleSignals:
    """Return the signals of each sample that a monitor keeps for its estimates."""
    return calibrator._batch(logits, features, distances).signals()


class Batch:
    """An unlabelled batch, and the values of each sample from which a calibrator computes its estimates."""

    def __init__(self, calibrator: Calibrator, samples: Samples) -> None:
        dac, learned = _learned(calibrator)
        self.calibrator, self.dac, self.samples, self.logits = calibrator, dac, samples, samples.logits
        scores = dac._scores(samples)
        log_s = np.log(to_numpy(dac._sample_temperatures(self.logits, scores)).astype(np.float64))
        self.log_s, self.clean_log_s = log_s.clip(None, LARGEST_LOG_S), learned["clean_log_s"]
        temperatures, plain = np.exp(self.log_s), learned["plain_temperature"]
        self.predictors, self.plain_confidence = _predictors(self.logits, temperatures, plain)
        self.drift = to_numpy(dac.residuals(self.logits, scores))
        self.model = AccuracyModel.from_state(learned["regression"])

    def signals(self) -> SampleSignals:
        """Return the values that the estimates use."""
        is_fit = self.calibrator is self.dac and self.dac.adaptation_ is None
        own = self.predictors[:, 0] if is_fit else to_numpy(self.calibrator._confidence(self.samples))
        is_far = self.log_s > self.clean_log_s[2]
        return SampleSignals(self.predictors, own, self.plain_confidence, is_far, self.drift)

    def estimate(self) -> AccuracyEstimate:
        """Return the estimated accuracy of the classifier."""
        found = self.signals().estimate(self.model, self.dac.layers_)
        n_samples, n_classes = self.logits.shape
        if n_samples < SAMPLES_PER_CLASS * n_classes:
            return found
        return replace(found, confusion=self._confusion(found.accuracy))

    def adapted_calibrator(self) -> Calibrator:
        """Return a copy of the calibrator with temperatures for this batch."""
        from densecal.calibrators.registry import join_stages

        following = list(self.calibrator.stages[1:])

        def mean_confidence(rescaled: Array) -> float:
            confidence = join_stages(following)._confidence(self.samples._replace(logits=rescaled))
            return float(namespace(confidence).mean(confidence))

        if self.model.extrapolation(self.drift) > 1:
            warn_user(f"The batch is {EXTRAPOLATED}. Nothing supports the confidences of the adapted copy.")
        adapted = copy(self.dac)
        adapted.adaptation_ = self._adaptation(self.logits, mean_confidence) if following else self._own_adaptation
        return join_stages([adapted, *following])

    @cached_property
    def _below_top(self) -> Array:
        return self.logits - namespace(self.logits).max(self.logits, axis=1, keepdims=True)

    @property
    def _own_adaptation(self) -> Any:
        return self._adaptation(self._below_top, _mean_confidence)

    def _adaptation(self, logits: Array, mean_confidence_of: Callable[[Array], float]) -> Any:
        """Return the knots and log temperatures of the batch, given the mean confidence of rescaled logits."""
        cost = self.dac.clean_cost_
        is_costly = cost is None or cost["nll"] > 0
        return adapt_to_batch(
            self.model,
            self.log_s,
            self.predictors,
            lambda rows, log_temperature: mean_confidence_of(logits[rows] * float(np.exp(-log_temperature))),
            # A fit with a lower NLL on clean data than temperature scaling keeps its own confidences there.
            plain_confidence=float(self.plain_confidence.mean()) if is_costly else None,
            clean_quartiles=self.clean_log_s[:2],
        )

    def _confusion(self, accuracy: float) -> Any:
        """Return the expected confusion matrix, whose diagonal sums to the expected number of correct predictions."""
        log_t = map_log_temperatures(self.log_s, self._own_adaptation)
        rescaled = self._below_top / asarray_like(np.exp(log_t), self.logits)[:, None]

        def mean_confidence(rows: Any, level: float) -> float:
            return _mean_confidence(rescaled[rows] * float(np.exp(-level)))

        level = solve_level(np.arange(len(log_t)), accuracy, mean_confidence, start=0.0)
        predicted = to_numpy(namespace(self.logits).argmax(self.logits, axis=1))
        return expected_confusion(to_numpy(softmax(rescaled * float(np.exp(-level)))), predicted)


def _predictors(logits: Array, temperatures: Any, plain_temperature: float) -> tuple[Any, Any]:
    """Return the predictors of the accuracy model, and the confidence of temperature scaling."""
    xp = namespace(logits)
    columns = np.empty((3, len(logits)))
    for rows in row_blocks(len(logits), logits.shape[1] * logits.itemsize, BLOCK_BYTES):
        below_top = (logits[rows] - xp.max(logits[rows], axis=1, keepdims=True)).clip(-MASKED, None)
        own = xp.exp(below_top / asarray_like(temperatures[rows], below_top)[:, None])
        below_top = below_top / plain_temperature
        plain = xp.exp(below_top)
        total = _row_sums(plain)
        entropy = xp.log(total) - _row_sums(plain * below_top) / total
        columns[:, rows] = np.stack([to_numpy(column) for column in (1 / _row_sums(own), entropy, 1 / total)])
    return columns[:2].T, columns[2]


def _row_sums(values: Array) -> Array:
    """Return the sum of each row; a product is several times faster than a sum over short rows."""
    return values @ namespace(values).ones_like(values[0])


def _mean_confidence(below_top: Array) -> float:
    """Return the mean top-1 confidence of logits whose largest is zero in each row."""
    xp = namespace(below_top)
    return float(xp.mean(1 / _row_sums(xp.exp(below_top))))


def _learned(calibrator: Calibrator) -> tuple[DAC, dict[str, Any]]:
    """Return a calibrator's DAC and what `learn_accuracy` returned in its fit; raise if there is none."""
    dac = calibrator.density_stage
    if dac is None:
        raise ValueError(
            f"{calibrator.short_name!r} cannot estimate accuracies: it does not measure distances. Use 'dac' or "
            f"'dac+{calibrator.short_name}', fitted with shifted=."
        )
    if dac.accuracy_model_ is not None:
        return dac, dac.accuracy_model_
    was_rejected = "its shift fit was rejected, see max_clean_cost and the warning of fit"
    why = "it was fitted without shifted data" if dac.clean_cost_ is None else was_rejected
    raise ValueError(
        f"This DAC cannot estimate accuracies: {why}. The estimate is learned from labelled data under several shifts: "
        "pass fit(..., shifted={name: Outputs, ...}), to a CalibratedClassifier X_shifted= and y_shifted=. For images, "
        "calibrate(..., perturb=True) makes them, for texts and tables densecal.shift.token_domains and table_domains."
    )
