"""DAC on unlabelled batches: the estimated accuracy of the classifier, and temperatures for the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from densecal.arrays import Array, asarray_like, namespace, row_blocks, softmax, to_numpy
from densecal.calibrators.dac.excess import measure_residuals
from densecal.calibrators.dac.shift_fit import ShiftedData
from densecal.calibrators.solvers.masks import fill_masked, mask_gap
from densecal.calibrators.solvers.temperature_fit import solve_temperature
from densecal.calibrators.temperature import TemperedLoss
from densecal.estimation.accuracy_model import AccuracyModel
from densecal.estimation.adaptation import adapt_to_batch, map_log_temperatures, solve_level
from densecal.estimation.estimate import SAMPLES_PER_CLASS, AccuracyEstimate, expected_confusion
from densecal.estimation.signals import SampleSignals

if TYPE_CHECKING:
    from densecal.calibrators.base import Samples
    from densecal.calibrators.dac.method import DAC

CLEAN_QUANTILES = (0.25, 0.75, 0.99)
"""Quantiles of log S on clean data: the quartiles, and the one above which an input counts as far."""
MASKED = 1e9
"""Logits this far below the largest count as masked: their probability is zero."""
LARGEST_LOG_S = 80.0
"""Beyond it the temperature of a very far input overflows in float32; its confidence is 1 / n_classes in any case."""
BLOCK_BYTES = 1 << 24
"""Bytes of logits for which signals are computed at once."""
MeanConfidenceOf = Callable[[Array], float]
"""The mean confidence of rescaled logits after the stages that follow DAC."""


def learn_accuracy(
    dac: DAC, logits: Array, labels: Array, clean_temperatures: Any, shifted: ShiftedData
) -> dict[str, Any]:
    """Return the state of the accuracy model of a shift-fitted DAC, learned on clean and shifted data."""
    plain = solve_temperature(TemperedLoss(logits, labels, "nll"), warn=False)
    shifted_temperatures = dac._sample_temperatures(shifted.logits, shifted.scores)
    temperatures = [np.asarray(clean_temperatures), to_numpy(shifted_temperatures)]
    parts = [(logits, labels), (shifted.logits, shifted.labels)]
    signals = np.concatenate([_signals(z, t, plain)[0] for (z, _), t in zip(parts, temperatures, strict=True)])
    correct = np.concatenate([to_numpy(namespace(z).argmax(z, axis=1) == y) for z, y in parts])
    model = AccuracyModel.learn(signals, correct, shifted.names, _drift(dac, shifted.logits, shifted.scores))
    quantiles = np.quantile(np.log(temperatures[0]), CLEAN_QUANTILES).tolist()
    return {"plain_temperature": plain, "clean_log_s": quantiles, "regression": model.state()}


def reduced_accuracy_model(dac: DAC, layers: Sequence[int]) -> dict[str, Any]:
    """Return the state of the accuracy model of a shift-fitted DAC for some of its layers."""
    learned = learned_accuracy(dac)
    regression = learned["regression"]
    kept = {name: [regression[name][layer] for layer in layers] for name in ("nearest", "farthest")}
    return {**learned, "regression": {**regression, **kept}}


def learned_accuracy(dac: DAC) -> dict[str, Any]:
    """Return the state that `learn_accuracy` returned in the fit; raise if there is none."""
    if dac.accuracy_model_ is None:
        raise ValueError(_why_absent(dac))
    return dac.accuracy_model_


@dataclass(frozen=True)
class Batch:
    """An unlabelled batch, and the values of each sample that the estimates need."""

    logits: Array
    scores: Array
    log_s: Any
    clean_log_s: Sequence[float]
    signals: Any
    plain_confidence: Any
    model: AccuracyModel
    fit_costs: bool
    """Whether the fit has a higher NLL on the clean validation data than temperature scaling."""

    @classmethod
    def of(cls, dac: DAC, samples: Samples) -> Self:
        """Measure a batch with a DAC that was fitted with shifted data."""
        learned = learned_accuracy(dac)
        logits, scores = samples.logits, dac._scores(samples)
        log_s = np.log(to_numpy(dac._sample_temperatures(logits, scores)).astype(np.float64)).clip(None, LARGEST_LOG_S)
        signals, plain = _signals(logits, np.exp(log_s), learned["plain_temperature"])
        model = AccuracyModel.from_state(learned["regression"])
        costs = dac.clean_cost_ is None or dac.clean_cost_["nll"] > 0
        return cls(logits, scores, log_s, learned["clean_log_s"], signals, plain, model, costs)

    def extrapolation_of(self, dac: DAC) -> float:
        """Return the largest drift of the batch relative to that of the shifted data of the fit."""
        return self.model.extrapolation(_drift(dac, self.logits, self.scores))

    @cached_property
    def below_top(self) -> Array:
        """The logits relative to the largest of each row."""
        return self.logits - namespace(self.logits).max(self.logits, axis=1, keepdims=True)

    def adaptation(self, mean_confidence_of: MeanConfidenceOf | None = None) -> Any:
        """Return the knots and log temperatures of the batch."""
        of, logits = (mean_confidence_of, self.logits) if mean_confidence_of else (_mean_confidence, self.below_top)

        def mean_confidence(rows: Any, log_temperature: float) -> float:
            return of(logits[rows] * float(np.exp(-log_temperature)))

        return adapt_to_batch(
            self.model,
            self.log_s,
            self.signals,
            mean_confidence,
            plain_confidence=float(self.plain_confidence.mean()) if self.fit_costs else None,
            clean_quartiles=self.clean_log_s[:2],
        )

    def confusion(self, accuracy: float) -> Any:
        """Return the expected confusion matrix, whose diagonal sums to the expected number of correct predictions."""
        log_t = map_log_temperatures(self.log_s, self.adaptation())

        def mean_confidence(rows: Any, level: float) -> float:
            return _mean_confidence(rescaled[rows] * float(np.exp(-level)))

        rescaled = self.below_top / asarray_like(np.exp(log_t), self.logits)[:, None]
        level = solve_level(np.arange(len(log_t)), accuracy, mean_confidence, start=0.0)
        predicted = to_numpy(namespace(self.logits).argmax(self.logits, axis=1))
        return expected_confusion(to_numpy(softmax(rescaled * float(np.exp(-level)))), predicted)


def sample_signals(dac: DAC, batch: Batch, confidence: Array | None) -> SampleSignals:
    """Return the signals of each sample; ``confidence`` is that of the calibrator, or None for that of the fit."""
    drift = _drift(dac, batch.logits, batch.scores)
    own = batch.signals[:, 0] if confidence is None else to_numpy(confidence)
    return SampleSignals(batch.signals, own, batch.plain_confidence, batch.log_s > batch.clean_log_s[2], drift)


def _drift(dac: DAC, logits: Array, scores: Array) -> Any:
    excess = (dac.excess_knots_, dac.excess_coefficients_, dac.excess_spread_)
    filled, _ = fill_masked(logits, mask_gap(dac.plain_temperature_))
    return to_numpy(measure_residuals(filled, scores, *excess))


def estimate_accuracy(dac: DAC, samples: Samples, confidence: Array | None) -> AccuracyEstimate:
    """Return the estimated accuracy of the classifier on a batch."""
    batch = Batch.of(dac, samples)
    found = sample_signals(dac, batch, confidence).estimate(batch.model, dac.layers_)
    n_samples, n_classes = batch.logits.shape
    if n_samples < SAMPLES_PER_CLASS * n_classes:
        return found
    return replace(found, confusion=batch.confusion(found.accuracy))


def _signals(logits: Array, temperatures: Any, plain_temperature: float) -> tuple[Any, Any]:
    """Return the signals of the accuracy model, and the confidence of temperature scaling."""
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


def _why_absent(dac: DAC) -> str:
    if dac.clean_cost_ is not None:
        why = "its shift fit was rejected, see max_clean_cost and the warning of fit"
    else:
        why = "it was fitted without shifted data"
    return (
        f"This DAC cannot estimate accuracies: {why}. The estimate is learned from labelled data under several shifts: "
        "pass fit(..., shifted={name: Outputs, ...}), to a CalibratedClassifier X_shifted= and y_shifted=. For images, "
        "calibrate(..., perturb=True) makes them, for texts and tables densecal.shift.token_domains and table_domains."
    )
