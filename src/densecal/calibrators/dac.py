"""Density-aware calibration: each input's temperature grows with its distance from the training data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np

from densecal.arrays import Array, as_array, like, namespace, softmax, to_numpy
from densecal.bank import FeatureBank
from densecal.calibrators.base import Calibrator
from densecal.calibrators.bounded_newton import Descent, bounded_newton
from densecal.calibrators.temperature import solve_temperature
from densecal.calibrators.tempered_loss import Loss, TemperedLoss, check_loss
from densecal.calibrators.top_class import keep_top_class
from densecal.checks import check_distances, check_labels, check_logits
from densecal.errors import CalibrationWarning
from densecal.papers import Paper

Scores = Literal["paper", "published_code"]
SCORES = ("paper", "published_code")
SMALLEST_BIAS = 1e-3
"""w_0 stays above this share of the plain temperature, so that S > 0 for every input, however near."""
PILOT_ROWS = 2000
NEGLIGIBLE = 1e-3
"""A layer that adds less than this share of the mean temperature counts as unused."""


class DAC(Calibrator):
    """Divide each input's logits by a temperature that grows with its distance from the training data.

    S(x) = sum_l w_l s_l(x) + w_0 with w_l >= 0, where s_l(x) is the Euclidean distance from the input's normalised
    feature in layer l to its k-th nearest training feature. The weights minimise the loss of softmax(z / S) on the
    validation set (Newton's method within the bounds, analytic derivatives). The rescaled logits z / S feed any other
    method.

    Parameters
    ----------
    bank : FeatureBank, optional
        Training features; without it ``fit`` and ``predict_proba`` take ``distances=``.
    loss : {"brier", "nll"}, default "brier"
        The paper's squared error, or the negative log-likelihood.
    scores : {"paper", "published_code"}, default "paper"
        ``"paper"`` uses the distance to the bank's k-th neighbour. ``"published_code"`` reproduces what the research
        scripts compute instead: the *squared* distance to the *first* neighbour. With ``distances=`` pass
        first-neighbour distances yourself; they are squared here.

    Attributes
    ----------
    weights_ : ndarray of shape (layers,)
        w_1 ... w_L, in the order of ``layers_``.
    bias_ : float
        w_0.
    layers_ : list of str
        Names of the layers.
    layer_importance_ : dict of str to float
        Each layer's share of the distance-dependent part of the mean temperature, sums to 1 (or all 0).
    loss_, temperature_scaling_loss_, uncalibrated_loss_ : float
        Mean validation loss of the fit, of a plain temperature, and of the logits as they are.
    n_iterations_, converged_ :
        The optimiser's state.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> distances = rng.uniform(0.2, 1.0, (500, 1))
    >>> labels = (rng.random(500) < 1 / (1 + np.exp(-2 / distances[:, 0]))).astype(int)
    >>> logits = np.stack([np.zeros(500), np.full(500, 4.0)], axis=1)
    >>> dac = DAC().fit(logits, labels, distances=distances)
    >>> near, far = dac.temperatures(distances=np.array([[0.2], [1.0]]))
    >>> bool(near < far)
    True
    """

    short_name: ClassVar[str] = "dac"
    full_name: ClassVar[str] = "Density-aware calibration"
    accuracy_preserving: ClassVar[bool] = True
    paper: ClassVar[Paper] = Paper(
        "Beyond In-Domain Scenarios: Robust Density-Aware Calibration",
        "Tomani, Waseda, Shen, Cremers",
        "ICML",
        2023,
    )

    weights_: Any
    bias_: float
    layers_: list[str]
    layer_importance_: dict[str, float]

    def __init__(self, bank: FeatureBank | None = None, loss: Loss = "brier", scores: Scores = "paper") -> None:
        self.bank = bank
        self.loss = loss
        self.scores = scores

    def fit(
        self,
        logits: Array,
        labels: Array,
        *,
        features: Mapping[str, Array] | None = None,
        distances: Array | None = None,
    ) -> Self:
        """Learn the weights on a validation set.

        Parameters
        ----------
        logits, labels :
            As for every calibrator.
        features : mapping of str to array
            The validation set's layer features, measured against the bank. Or
        distances : array of shape (samples, layers)
            ... the distances themselves; (samples, 0) fits plain temperature scaling.
        """
        check_loss(self.loss)
        if self.scores not in SCORES:
            raise ValueError(f"scores must be one of {SCORES}, got {self.scores!r}.")
        logits = check_logits(logits)
        labels = check_labels(labels, logits.shape[0], logits.shape[1], like=logits)
        scores = self._scores(logits.shape[0], features, distances)
        self.n_classes_ = int(logits.shape[1])
        self.layers_ = self._layer_names(scores.shape[1], features, distances)
        self._fit_weights(TemperedLoss(logits, labels, self.loss), to_numpy(scores).astype(np.float64))
        self._describe_fit(scores)
        return self

    def temperatures(self, *, features: Mapping[str, Array] | None = None, distances: Array | None = None) -> Array:
        """Return S(x) of each input, of shape (samples,)."""
        self._require_fit()
        scores = self._scores(None, features, distances)
        if scores.shape[1] != len(self.layers_):
            raise ValueError(
                f"distances have {scores.shape[1]} layers, but this DAC was fitted on {len(self.layers_)}: "
                f"{self.layers_}."
            )
        xp = namespace(scores)
        return xp.sum(scores * like(self.weights_, scores), axis=1) + self.bias_

    def transform(
        self,
        logits: Array,
        *,
        features: Mapping[str, Array] | None = None,
        distances: Array | None = None,
    ) -> Array:
        """Return the rescaled logits z / S, which any other calibrator may take further."""
        self._require_fit()
        logits = self._check_apply(logits)
        if distances is None and not self.layers_:
            return logits / self.bias_  # reduced to no layer, as served models are: there is nothing to measure
        temperatures = self.temperatures(features=features, distances=distances)
        if temperatures.shape[0] != logits.shape[0]:
            raise ValueError(
                f"logits have {logits.shape[0]} samples, but the features or distances have {temperatures.shape[0]}."
            )
        return logits / like(temperatures, logits)[:, None]

    def predict_proba(
        self,
        logits: Array,
        *,
        features: Mapping[str, Array] | None = None,
        distances: Array | None = None,
    ) -> Array:
        """Return softmax(z / S), of shape (samples, classes)."""
        rescaled = self.transform(logits, features=features, distances=distances)
        return keep_top_class(softmax(rescaled), as_array(logits))

    def _scores(self, samples: int | None, features: Mapping[str, Array] | None, distances: Array | None) -> Array:
        """Return the density proxies s_l(x), from features and the bank or from distances as they are given."""
        published = self.scores == "published_code"
        if distances is None:
            if features is None or self.bank is None:
                raise ValueError(
                    "DAC needs to know how far each input is from the training data: pass features= (with "
                    "DAC(bank=...)) or distances= of shape (samples, layers)."
                )
            distances = self.bank.distances(features, k=1 if published else None)
        distances = check_distances(distances, samples if samples is not None else len(distances))
        return distances**2 if published else distances

    def _layer_names(self, count: int, features: Mapping[str, Array] | None, distances: Array | None) -> list[str]:
        if self.bank is not None and len(self.bank.layers) == count:
            return list(self.bank.layers)
        return [f"layer {number}" for number in range(count)]

    def _fit_weights(self, tempered: TemperedLoss, scores: Any) -> None:
        temperature = solve_temperature(tempered)
        self.uncalibrated_loss_ = float(tempered(1.0)[0].mean())
        self.temperature_scaling_loss_ = float(tempered(1 / temperature)[0].mean())
        # In units of the plain temperature and of each layer's mean distance all parameters are of order one.
        scale = scores.mean(axis=0)
        scale[scale == 0] = 1.0
        design = np.column_stack([scores / scale, np.ones(len(scores))])
        best = _minimise_over_weights(tempered, design, temperature)
        if best.value > self.temperature_scaling_loss_ or scores.shape[1] == 0:
            weights, self.loss_ = np.append(np.zeros(scores.shape[1]), 1.0), self.temperature_scaling_loss_
        else:
            weights, self.loss_ = best.point, best.value
        self.weights_ = temperature * weights[:-1] / scale
        self.bias_ = float(temperature * weights[-1])
        self.n_iterations_, self.converged_ = best.iterations, best.converged

    def _describe_fit(self, scores: Array) -> None:
        means = to_numpy(scores).mean(axis=0, dtype=np.float64) if scores.shape[1] else np.zeros(0)
        parts = self.weights_ * means
        total = float(parts.sum())
        shares = parts / total if total > 0 else np.zeros_like(parts)
        self.layer_importance_ = dict(zip(self.layers_, map(float, shares), strict=True))
        self.is_identity_ = False
        if scores.shape[1] and total < NEGLIGIBLE * (total + self.bias_):
            warnings.warn(
                "DAC found no use for the distances: all layer weights are (almost) zero, so it acts as temperature "
                f"scaling with T = {self.bias_:.3g}. On clean validation data a good classifier's mistakes hardly "
                "depend on its distances. Fit it for where the data will go: pass shifted= outputs of perturbed validation "
                "inputs (calibrate(..., perturb=True) makes them for images).",
                CalibrationWarning,
                stacklevel=3,
            )

    def _require_fit(self) -> None:
        if not hasattr(self, "weights_"):
            raise ValueError("This DAC is not fitted: call fit(logits, labels, features=...) first.")

    def _fit(self, logits: Array, labels: Array) -> None:
        raise NotImplementedError("DAC.fit does the work, since it needs the distances as well.")

    def _probabilities(self, logits: Array) -> Array:
        raise NotImplementedError("DAC.predict_proba does the work, since it needs the distances as well.")


def _minimise_over_weights(tempered: TemperedLoss, design: Any, temperature: float) -> Descent:
    """Minimise the mean loss over w >= 0 and w_0 > 0.

    A pilot on some of the rows starts from the plain temperature and from an even share of the layers; the better
    end is where all rows start from.
    """
    columns = design.shape[1]
    plain = np.append(np.zeros(columns - 1), 1.0)
    shared = np.append(np.full(columns - 1, 0.5 / max(1, columns - 1)), 0.5 if columns > 1 else 1.0)
    lowest = np.append(np.zeros(columns - 1), SMALLEST_BIAS)

    def descend(rows: slice, start: Any) -> Descent:
        part, matrix = tempered.subset(rows), temperature * design[rows]

        def derivatives(weights: Any) -> tuple[float, Any, Any]:
            inverse = 1 / (matrix @ weights)
            loss, slope, curvature = part.with_curvature(inverse)
            # With S = 1 / u: dL/dS = -u^2 dL/du and d2L/dS2 = u^4 d2L/du2 + 2 u^3 dL/du.
            by_s = -(inverse**2) * slope
            by_ss = inverse**4 * curvature + 2 * inverse**3 * slope
            count = len(matrix)
            return float(loss.mean()), matrix.T @ by_s / count, (matrix.T * by_ss) @ matrix / count

        return bounded_newton(derivatives, start, lowest)

    stride = max(1, len(design) // PILOT_ROWS)
    pilots = [descend(slice(None, None, stride), start) for start in (plain, shared)]
    best = min(pilots, key=lambda fit: fit.value)
    return best if stride == 1 else descend(slice(None), best.point)
