"""Density-aware calibration: each input's temperature grows with its distance from the training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Literal, Self

import numpy as np

from densecal.arrays import Array, as_array, like, namespace, softmax, to_numpy
from densecal.arrays.checks import check_distances, check_labels, check_logits
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Paper
from densecal.calibrators.dac.clean_fit import minimise_over_weights
from densecal.calibrators.dac.excess import Excess
from densecal.calibrators.dac.findings import (
    NEARLY_CERTAIN,
    warn_of_certainty,
    warn_of_harmful_shift,
    warn_of_unused_distances,
)
from densecal.calibrators.dac.shift_fit import fit_slopes, settle_level
from densecal.calibrators.dac.shifted_data import Moved, Shifted, gather_moved
from densecal.calibrators.solvers.tempered_loss import Loss, TemperedLoss, check_loss
from densecal.calibrators.solvers.top_class import keep_top_class
from densecal.calibrators.temperature import solve_temperature
from densecal.density.bank import FeatureBank

Scores = Literal["paper", "published_code"]
SCORES = ("paper", "published_code")
NEGLIGIBLE = 1e-3
"""A layer that adds less than this share of the mean temperature counts as unused."""


class DAC(Calibrator):
    r"""Divide each input's logits by a temperature that grows with its distance from the training data.

    .. math:: p = \mathrm{softmax}(z / S(x)), \qquad S(x) = w_0 + \sum_l w_l \, s_l(x), \qquad w_l \geq 0

    Here s_l(x) is the Euclidean distance from the input's normalised feature in layer l to its k-th nearest training
    feature. The weights minimise the loss of softmax(z / S) on the validation set (Newton's method within the bounds,
    analytic derivatives). The rescaled logits z / S feed any other method.

    **The shift fit.** On clean data alone a good classifier's mistakes hardly depend on the distances. With
    ``shifted=`` data ``fit`` learns

    .. math:: \log S(x) = \log w_0 + \sum_l w_l \, x_l(x), \qquad x_l(x) \geq 0

    instead, where x_l(x) says how far beyond clean inputs of the same confidence the input lies. The slopes come from
    clean and moved data together, the level w_0 mostly from the clean data. S still grows with every distance, and the
    predicted class still stays.

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
    excess_knots_: Any
    excess_coefficients_: Any
    excess_spread_: Any

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
        shifted: Shifted | Sequence[Shifted] | None = None,
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
        shifted : Outputs or (logits, labels, distances), or a sequence of them, optional
            Labelled data that have moved, such as perturbed copies of the validation inputs. With them the temperature
            is fitted for where the data will go (the shift fit, see above); without them the fit is the paper's.
        """
        check_loss(self.loss)
        if self.scores not in SCORES:
            raise ValueError(f"scores must be one of {SCORES}, got {self.scores!r}.")
        logits = check_logits(logits)
        labels = check_labels(labels, logits.shape[0], logits.shape[1], like=logits)
        scores = self._scores(logits.shape[0], features, distances)
        self.n_classes_ = int(logits.shape[1])
        self.layers_ = self._layer_names(scores.shape[1])
        self.excess_knots_ = self.excess_coefficients_ = self.excess_spread_ = None
        self.is_identity_ = False
        self._fit_weights(TemperedLoss(logits, labels, self.loss), to_numpy(scores).astype(np.float64))
        if shifted is None:
            self._describe_fit(scores)
        else:
            moved = gather_moved(shifted, self.n_classes_, len(self.layers_), self._scores)
            self._fit_for_shift(logits, labels, scores, moved)
        return self

    @property
    def shift_fitted(self) -> bool:
        """Whether the temperature was fitted with ``shifted=`` data."""
        return getattr(self, "excess_spread_", None) is not None

    def temperatures(
        self,
        *,
        features: Mapping[str, Array] | None = None,
        distances: Array | None = None,
        logits: Array | None = None,
    ) -> Array:
        """Return S(x) of each input, of shape (samples,); after a shift fit it depends on the logits as well."""
        self._require_fit()
        return self._temperatures(logits, self._scores(None, features, distances))

    def _temperatures(self, logits: Array | None, scores: Array) -> Array:
        if scores.shape[1] != len(self.layers_):
            raise ValueError(
                f"distances have {scores.shape[1]} layers, but this DAC was fitted on {len(self.layers_)}: "
                f"{self.layers_}."
            )
        xp = namespace(scores)
        if not self.shift_fitted:
            return xp.sum(scores * like(self.weights_, scores), axis=1) + self.bias_
        if logits is None:
            raise ValueError("This DAC was fitted with shifted=, so its temperature needs logits= as well.")
        excess = self._excess()(logits, scores)
        return self.bias_ * xp.exp(xp.sum(excess * like(self.weights_, excess), axis=1))

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
        scores = self._scores(None, features, distances)
        if scores.shape[0] != logits.shape[0]:
            raise ValueError(
                f"logits have {logits.shape[0]} samples, but the features or distances have {scores.shape[0]}."
            )
        temperatures = self._temperatures(logits, scores)
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

    def _layer_names(self, count: int) -> list[str]:
        if self.bank is not None and len(self.bank.layers) == count:
            return list(self.bank.layers)
        return [f"layer {number}" for number in range(count)]

    def _fit_weights(self, tempered: TemperedLoss, scores: Any) -> None:
        self.plain_temperature_ = temperature = float(solve_temperature(tempered))
        self.uncalibrated_loss_ = float(tempered(1.0)[0].mean())
        self.temperature_scaling_loss_ = float(tempered(1 / temperature)[0].mean())
        # In units of the plain temperature and of each layer's mean distance all parameters are of order one.
        scale = scores.mean(axis=0)
        scale[scale == 0] = 1.0
        design = np.column_stack([scores / scale, np.ones(len(scores))])
        best = minimise_over_weights(tempered, design, temperature)
        is_worse = best.value > self.temperature_scaling_loss_ or scores.shape[1] == 0
        # The squared error likes certainty where mistakes are few; nobody is served by a confidence of 1.
        if is_worse or (design @ best.point < NEARLY_CERTAIN).mean() > 0.5:
            weights, self.loss_ = np.append(np.zeros(scores.shape[1]), 1.0), self.temperature_scaling_loss_
        else:
            weights, self.loss_ = best.point, best.value
        self.weights_ = temperature * weights[:-1] / scale
        self.bias_ = float(temperature * weights[-1])
        self.n_iterations_, self.converged_ = best.iterations, best.converged

    def _describe_fit(self, scores: Array, *, tried_shift: bool = False) -> None:
        means = to_numpy(scores).mean(axis=0, dtype=np.float64) if scores.shape[1] else np.zeros(0)
        parts = self.weights_ * means
        total = float(parts.sum())
        shares = parts / total if total > 0 else np.zeros_like(parts)
        self.layer_importance_ = dict(zip(self.layers_, map(float, shares), strict=True))
        if scores.shape[1] and total < NEGLIGIBLE * (total + self.bias_):
            warn_of_unused_distances(self.bias_, tried_shift=tried_shift)
        temperatures = to_numpy(scores) @ self.weights_ + self.bias_
        warn_of_certainty(temperatures, self.plain_temperature_, self.layer_importance_)

    def _fit_for_shift(self, logits: Array, labels: Array, scores: Array, moved: Moved) -> None:
        excess = Excess.learn(logits, scores)
        clean = to_numpy(excess(logits, scores)).astype(np.float64)
        far = to_numpy(excess(moved.logits, moved.scores)).astype(np.float64)
        moved_loss = TemperedLoss(moved.logits, moved.labels, "nll")
        found = fit_slopes(TemperedLoss(logits, labels, "nll"), clean, moved_loss, far)
        weights = np.array(found.point[:-1])
        rise = clean @ weights
        level = settle_level(logits, labels, rise + found.point[-1], float(found.point[-1]), self.loss)
        loss = float(TemperedLoss(logits, labels, self.loss)(np.exp(-level - rise))[0].mean())
        if loss > self.uncalibrated_loss_:
            warn_of_harmful_shift(self.loss, loss, self.uncalibrated_loss_)
            self._describe_fit(scores, tried_shift=True)
            return
        self.weights_, self.bias_, self.loss_ = weights, float(np.exp(level)), loss
        self.excess_knots_, self.excess_coefficients_ = excess.knots, excess.coefficients
        self.excess_spread_ = excess.spread
        self.n_iterations_, self.converged_ = found.iterations, found.converged
        parts = self.weights_ * far.mean(axis=0)
        shares = parts / max(float(parts.sum()), 1e-300)
        self.layer_importance_ = dict(zip(self.layers_, map(float, shares), strict=True))

    def _excess(self) -> Excess:
        return Excess(self.excess_knots_, self.excess_coefficients_, self.excess_spread_)

    def reduced_to(self, layers: Sequence[str]) -> DAC:
        """Return a copy that knows only some of its layers, and no bank; for layers without weight it acts alike."""
        kept = [self.layers_.index(layer) for layer in layers]
        reduced = copy(self)
        reduced.bank, reduced.layers_ = None, list(layers)
        reduced.weights_ = self.weights_[kept]
        reduced.layer_importance_ = {layer: self.layer_importance_[layer] for layer in layers}
        if self.shift_fitted:
            reduced.excess_coefficients_ = self.excess_coefficients_[:, kept]
            reduced.excess_spread_ = self.excess_spread_[kept]
        return reduced

    def _require_fit(self) -> None:
        if not hasattr(self, "weights_"):
            raise ValueError("This DAC is not fitted: call fit(logits, labels, features=...) first.")

    def _fit(self, logits: Array, labels: Array) -> None:
        raise NotImplementedError("DAC.fit does the work, since it needs the distances as well.")

    def _probabilities(self, logits: Array) -> Array:
        raise NotImplementedError("DAC.predict_proba does the work, since it needs the distances as well.")
