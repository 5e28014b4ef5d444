"""Density-aware calibration: the temperature of an input grows with its distance from the training data."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, asarray_like, namespace, softmax, to_numpy
from densecal.arrays.checks import check_choice, check_distances
from densecal.calibrators import DAC_NAME, SHIFT_FITTED
from densecal.calibrators.base import Calibrator, Features, Samples
from densecal.calibrators.citation import Citation
from densecal.calibrators.dac.excess import measure_residuals
from densecal.calibrators.dac.guard import CleanCost
from densecal.calibrators.dac.shift_fit import Shifted, collect_shifted, fit_shift
from densecal.calibrators.dac.unlabelled_batch import learn_accuracy
from densecal.calibrators.solvers.masks import fill_masked, mask_gap
from densecal.calibrators.solvers.temperature_fit import describe_clean_fit, fit_clean
from densecal.calibrators.temperature import Loss, TemperedLoss
from densecal.calibrators.validation_warnings import warn_of_other_rows
from densecal.density.bank import FeatureBank
from densecal.estimation.adaptation import map_log_temperatures
from densecal.outputs import Distances, Outputs

Scores = Literal["paper", "published_code"]
NO_DISTANCES = (
    "DAC needs the distances of the inputs from the training data: pass features= (with DAC(bank=...)) or distances= "
    "of shape (n_samples, n_layers)."
)


class DAC(Calibrator):
    r"""Divide the logits of each input by a temperature that grows with its distance from the training data.

    .. math:: p = \mathrm{softmax}(z / S(x)), \qquad S(x) = w_0 + \sum_l w_l \, s_l(x), \qquad w_l \geq 0

    Here :math:`s_l(x)` is the Euclidean distance between normalised features in layer l, from the input to the k-th
    nearest training sample or to the nearest centre of the bank. The weights minimise the loss on the validation set.

    **The shift fit.** On clean data the errors of an accurate classifier hardly depend on the distances. With
    ``shifted=`` data, ``fit`` learns

    .. math:: \log S(x) = \log w_0 + \sum_l w_l \, x_l(x), \qquad x_l(x) \geq 0

    instead, where :math:`x_l(x)` is the excess of the distance over that of clean inputs with the same confidence, or
    zero if it is lower. The weights are fitted on clean and shifted data together, :math:`w_0` mostly on the clean
    data. In both fits S never decreases with a distance, and the predicted class does not change.

    Parameters
    ----------
    bank : FeatureBank, optional
        The bank of training features. Without it, pass ``distances=`` to ``fit`` and ``predict_proba``.
    loss : {"brier", "nll"}, default "brier"
        The paper's squared error, or the negative log-likelihood.
    scores : {"paper", "published_code"}, default "paper"
        ``"paper"``: the distance to the k-th neighbour. ``"published_code"``: the *squared* distance to the *first*
        neighbour, as in the authors' scripts. ``distances=`` must then be those to the first; DAC squares them.
    require_shifted : bool, default False
        Whether ``fit`` raises an error without shifted data. ``make_calibrator("dac-shift")`` sets it.
    max_clean_cost : (float, float), default (0.01, 0.02)
        How much worse than temperature scaling a shift fit may be on the clean validation set, in ECE (as a fraction)
        and NLL, beyond two standard errors. Beyond it, or if the classifier is no better than chance on the shifted
        data, DAC warns and returns the clean fit. Domains whose labels seem permuted are left out. None: no checks.

    Attributes
    ----------
    weights_, layers_, bias_ : ndarray of shape (n_layers,), list of str, float
        w_1 ... w_L, the names of their layers, and w_0.
    layer_importance_ : dict of str to float
        Each layer's fraction of the distance-dependent part of the mean temperature. They sum to 1, or all are 0.
    loss_, temperature_scaling_loss_, uncalibrated_loss_ : float
        Mean loss on the validation set: of the fit, of temperature scaling and of the uncalibrated logits.
    clean_cost_ : dict or None
        Increase of ``ece`` and ``nll`` on the clean validation set by the shift fit, compared with temperature scaling,
        and the standard errors ``ece_error`` and ``nll_error``. None without shifted data.
    accuracy_model_, adaptation_ : dict or None, array or None
        The regression of ``estimate_accuracy``, and the temperatures of ``adapted_to``; None without them.
    n_iterations_, converged_ : int, bool
        Iterations of the optimiser, and whether it converged.

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

    short_name: ClassVar[str] = DAC_NAME
    full_name: ClassVar[str] = "Density-aware calibration"
    accuracy_preserving: ClassVar[bool] = True
    measures_distances: ClassVar[bool] = True
    citation: ClassVar[Citation] = Citation(
        "Beyond In-Domain Scenarios: Robust Density-Aware Calibration", "Tomani, Waseda, Shen, Cremers", "ICML", 2023
    )

    layers_: list[str]
    k_: int | None
    weights_: Any
    bias_: float
    layer_importance_: dict[str, float]
    plain_temperature_: float
    loss_: float
    temperature_scaling_loss_: float
    uncalibrated_loss_: float
    n_iterations_: int
    converged_: bool
    clean_cost_: dict[str, float] | None
    excess_knots_: Any
    excess_coefficients_: Any
    excess_spread_: Any
    accuracy_model_: dict[str, Any] | None
    adaptation_: Any
    learned: ClassVar[tuple[str, ...]] = tuple(name for name in __annotations__ if name.endswith("_"))

    def __init__(
        self,
        bank: FeatureBank | None = None,
        loss: Loss = "brier",
        scores: Scores = "paper",
        require_shifted: bool = False,
        max_clean_cost: tuple[float, float] | None = CleanCost(),
    ) -> None:
        self.bank = bank
        self.loss = loss
        self.scores = scores
        self.require_shifted = require_shifted
        self.max_clean_cost = max_clean_cost

    @property
    def method_name(self) -> str:
        """``dac``, or ``dac-shift`` after a fit with shifted data."""
        return SHIFT_FITTED if self.shift_fitted else DAC_NAME

    @property
    def shift_fitted(self) -> bool:
        """Whether the temperature was fitted with ``shifted=`` data."""
        return getattr(self, "excess_spread_", None) is not None

    def measure_features(self, features: Features, logits: Array | None = None) -> Distances:
        """Return the distances of features from the bank, with this DAC's k; warn if they do not fit the logits."""
        if self.bank is None:
            raise ValueError(NO_DISTANCES)
        if logits is not None:
            warn_of_other_rows(logits, features)
        return Distances(self.bank.distances(features, k=self.k), self.bank.layers, self.k, self.bank.fingerprint)

    def accepts(self, distances: Distances) -> bool:
        """Return whether distances were measured with this DAC's k, layers and bank."""
        measured = (distances.layers, distances.k)
        if self.bank is not None:
            return measured == (self.bank.layers, self.k) and distances.bank in (None, self.bank.fingerprint)
        if getattr(self, "k_", None) is not None and measured != (tuple(self.layers_), self.k_):
            return False
        return self.scores == "paper" or distances.k == 1

    def temperatures(
        self,
        logits: ArrayLike | Outputs | None = None,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
    ) -> ArrayOrTensor:
        """Return the temperature of each input, of shape (n_samples,). After a shift fit, pass the logits as well."""
        check_is_fitted(self)
        if logits is None:
            samples = self._measured(Samples(None, None, features, distances))
        else:
            samples = self._fitted_samples(logits, features, distances)
        return cast(ArrayOrTensor, self._temperatures(samples.logits, self._scores(samples)))

    def transform(
        self,
        logits: ArrayLike | Outputs,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
    ) -> ArrayOrTensor:
        """Return the rescaled logits z / S, the input of the next calibrator in a chain."""
        return cast(ArrayOrTensor, self._hand_on(self._fitted_samples(logits, features, distances)))

    def reduced_to(self, layers: Sequence[str]) -> DAC:
        """Return a copy with some of the layers and without the bank."""
        kept = [self.layers_.index(layer) for layer in layers]
        reduced = copy(self)
        reduced.bank, reduced.layers_ = None, list(layers)
        reduced.weights_ = self.weights_[kept]
        reduced.layer_importance_ = {layer: self.layer_importance_[layer] for layer in layers}
        if self.shift_fitted:
            reduced.excess_coefficients_ = self.excess_coefficients_[:, kept]
            reduced.excess_spread_ = self.excess_spread_[kept]
        if self.accuracy_model_ is not None:
            model = self.accuracy_model_["regression"]
            drifts = {name: [model[name][layer] for layer in kept] for name in ("nearest", "farthest")}
            reduced.accuracy_model_ = {**self.accuracy_model_, "regression": {**model, **drifts}}
        return reduced

    @property
    def k(self) -> int | None:
        """The neighbour to which distances are measured: the bank's k, or None for the nearest centre."""
        return 1 if self.scores == "published_code" else None if self.bank is None else self.bank.k

    def read_distances(self, samples: Samples) -> Array | Distances | None:
        """Return the checked distances of samples, measured with the bank if only features are given."""
        distances = samples.distances
        if distances is None and self.bank is not None and samples.features is not None:
            distances = self.measure_features(samples.features, samples.logits)
        n_samples = None if samples.logits is None else len(samples.logits)
        if isinstance(distances, Distances):
            return replace(distances, values=check_distances(distances.values, n_samples))
        return None if distances is None else check_distances(distances, n_samples)

    def _scores(self, samples: Samples) -> Array:
        """Return the density scores s_l(x) of measured samples."""
        distances = samples.distances
        if distances is None and samples.logits is not None and getattr(self, "layers_", None) == []:
            distances = samples.logits[:, :0]  # no layers are left, so there is nothing to measure
        if distances is None:
            raise ValueError(NO_DISTANCES)
        if isinstance(distances, Distances):
            if not self.accepts(distances):
                to = "centres" if distances.k is None else f"neighbour {distances.k}"
                raise ValueError(
                    f"distances to {to} in the layers {list(distances.layers)} were measured by "
                    "another calibrator or another bank. Measure them with measure(outputs) of this calibrator."
                )
            distances = distances.values
        return distances**2 if self.scores == "published_code" else distances

    def _temperatures(self, logits: Array | None, scores: Array) -> Array:
        temperatures = self._sample_temperatures(logits, scores)
        if self.adaptation_ is None:
            return temperatures
        xp = namespace(temperatures)
        return xp.exp(map_log_temperatures(xp.log(temperatures), self.adaptation_))

    def _sample_temperatures(self, logits: Array | None, scores: Array) -> Array:
        """Return the temperatures of the fit, before any adaptation to a batch."""
        if scores.shape[1] != len(self.layers_):
            expected = f"{len(self.layers_)}: {self.layers_}"
            raise ValueError(f"distances have {scores.shape[1]} layers, but this DAC was fitted on {expected}.")
        xp, weights = namespace(scores), asarray_like(self.weights_, scores)
        if not self.shift_fitted:
            return xp.sum(scores * weights, axis=1) + self.bias_
        if logits is None:
            raise ValueError("This DAC was fitted with shifted=, so its temperature depends on logits: pass them.")
        excess = self.residuals(logits, scores).clip(0.0, None)
        return self.bias_ * xp.exp((excess * weights).sum(1))

    def residuals(self, logits: Array, scores: Array) -> Array:
        """Return how far scores lie above those of clean inputs with the same confidence, in standard deviations."""
        filled, _ = fill_masked(logits, mask_gap(self.plain_temperature_))
        return measure_residuals(filled, scores, (self.excess_knots_, self.excess_coefficients_, self.excess_spread_))

    def _columns(self, samples: Samples) -> Array:
        return asarray_like(self._temperatures(samples.logits, self._scores(samples)), samples.logits)[:, None]

    def _hand_on(self, samples: Samples) -> Array:
        return samples.logits / self._columns(samples)

    def _apply(self, samples: Samples) -> Array:
        return softmax(samples.logits, self._columns(samples))

    def _learn(self, samples: Samples, shifted: Shifted | None) -> None:
        check_choice("scores", self.scores, Scores)
        if shifted is None and self.require_shifted:
            raise ValueError("'dac-shift' is fitted on shifted data: pass shifted=, or use 'dac' for the clean fit.")
        blank = clone(self)  # which distances are accepted must not depend on an earlier fit
        logits, labels, scores = samples.logits, samples.labels, blank._scores(samples)
        n_layers, wide_scores = scores.shape[1], to_numpy(scores).astype(np.float64)
        measured = samples.distances if isinstance(samples.distances, Distances) else None
        known = self.bank if measured is None else measured
        layers = [] if known is None else list(known.layers)
        if len(layers) != n_layers:
            layers = [f"layer {place}" for place in range(n_layers)]
        # Nothing is stored before everything is fitted: a fit that fails leaves the calibrator as it was.
        data = None if shifted is None else collect_shifted(blank, shifted, (*logits.shape, n_layers))
        learned: dict[str, Any] = dict.fromkeys(self.learned)
        learned |= {"layers_": layers, "k_": None if measured is None else measured.k}
        learned |= fit_clean(TemperedLoss(logits, labels, self.loss), wide_scores)
        temperatures = None
        if data is not None:
            of_shift, temperatures = fit_shift(self, layers, samples, scores, data, learned["plain_temperature_"])
            learned |= of_shift
        if temperatures is None:
            learned["layer_importance_"] = describe_clean_fit(learned, wide_scores)
        self.__dict__.update(learned, n_classes_=int(logits.shape[1]), is_identity_=False)
        if data is not None and temperatures is not None:
            self.accuracy_model_ = learn_accuracy(self, logits, labels, temperatures, data)
