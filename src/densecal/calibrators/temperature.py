"""Temperature scaling, and its ensemble with the uncalibrated and the uniform distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from densecal.arrays import Array, asarray_like, namespace, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import Citation
from densecal.calibrators.solvers.tempering import Loss, TemperedLoss, check_loss, solve_temperature, take_label


class TemperatureScaling(Calibrator):
    """Divide the logits by one temperature: softmax(z / T).

    T > 1 lowers the confidence of an over-confident classifier, T < 1 raises that of an under-confident one. The order
    of the classes, and therefore the accuracy, does not change.

    Parameters
    ----------
    loss : {"nll", "brier"}, default "nll"
        The loss to minimise on the validation set: the negative log-likelihood (as in Guo et al.) or the squared error
        (as in the DAC paper). The squared error hardly counts confident mistakes, so it can sharpen an over-confident
        classifier.

    Attributes
    ----------
    temperature_ : float
        The fitted temperature.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)
    >>> calibrator = TemperatureScaling().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "ts"
    full_name: ClassVar[str] = "Temperature scaling"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("temperature_",)
    citation: ClassVar[Citation] = Citation(
        "On Calibration of Modern Neural Networks", "Guo, Pleiss, Sun, Weinberger", "ICML", 2017
    )

    temperature_: float

    def __init__(self, loss: Loss = "nll") -> None:
        self.loss = loss

    @property
    def fit_loss(self) -> str:  # type: ignore[override]
        """The loss that the fit minimises."""
        return self.loss

    def _fit(self, logits: Array, labels: Array) -> None:
        check_loss(self.loss)
        self.temperature_ = solve_temperature(TemperedLoss(logits, labels, self.loss))

    def _probabilities(self, logits: Array) -> Array:
        return softmax(logits, self.temperature_)


class EnsembleTemperatureScaling(Calibrator):
    """Mix three distributions: w1 softmax(z / T) + w2 softmax(z) + w3 / C.

    The temperature is that of temperature scaling. The weights lie on the simplex and minimise the squared error, a
    convex quadratic program in three variables that is solved exactly.

    Parameters
    ----------
    loss : {"nll", "brier"}, default "nll"
        The loss that the temperature minimises, as in temperature scaling.

    Attributes
    ----------
    temperature_ : float
        Temperature of the first component.
    mixture_ : ndarray of shape (3,)
        Weights of the tempered, the uncalibrated and the uniform distribution.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0, 0.0]] * 4)
    >>> calibrator = EnsembleTemperatureScaling().fit(logits, [0, 0, 0, 1])
    >>> calibrator.mixture_.sum().round(6)
    np.float64(1.0)
    """

    short_name: ClassVar[str] = "ets"
    full_name: ClassVar[str] = "Ensemble temperature scaling"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("temperature_", "mixture_")
    citation: ClassVar[Citation] = Citation(
        "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
        "Zhang, Kailkhura, Han",
        "ICML",
        2020,
    )

    temperature_: float
    mixture_: Any

    def __init__(self, loss: Loss = "nll") -> None:
        self.loss = loss

    def _fit(self, logits: Array, labels: Array) -> None:
        self.temperature_ = solve_temperature(TemperedLoss(logits, labels, self.loss))
        gram, target = _quadratic(self._components(logits), labels)
        self.mixture_ = _least_squares_on_simplex(gram, target)

    def _probabilities(self, logits: Array) -> Array:
        tempered, plain = self._components(logits)
        w1, w2, w3 = asarray_like(self.mixture_, logits)
        return w1 * tempered + w2 * plain + w3 / logits.shape[1]

    def _components(self, logits: Array) -> tuple[Array, Array]:
        return softmax(logits, self.temperature_), softmax(logits)


def _quadratic(components: tuple[Array, Array], labels: Array) -> tuple[Any, Any]:
    """Return G and t of the mean squared error w' G w - 2 w' t + 1 of the three distributions."""
    samples, classes = components[0].shape
    gram, target = np.full((3, 3), 1 / classes), np.full(3, 1 / classes)
    for i, left in enumerate(components):
        target[i] = float(to_numpy(take_label(left, labels)).mean(dtype=np.float64))
        for j, right in enumerate(components):
            gram[i, j] = float(namespace(left).sum(left * right)) / samples
    return gram, target


def _least_squares_on_simplex(gram: Any, target: Any) -> Any:
    """Minimise w' G w - 2 w' t subject to w >= 0 and sum(w) = 1, by trying every set of positive weights."""
    best, best_value = np.array([1.0, 0.0, 0.0]), float(gram[0, 0] - 2 * target[0])
    for members in ([0, 1, 2], [0, 1], [0, 2], [1, 2], [1], [2]):
        size = len(members)
        # The KKT conditions of the equality-constrained problem; lstsq because T = 1 makes two columns equal.
        system = np.zeros((size + 1, size + 1))
        system[:size, :size] = gram[np.ix_(members, members)]
        system[:size, size] = system[size, :size] = 1
        solution = np.linalg.lstsq(system, np.append(target[members], 1.0), rcond=None)[0][:size]
        weights = np.zeros(3)
        weights[members] = solution
        value = float(weights @ gram @ weights - 2 * weights @ target)
        if weights.min() >= 0 and value < best_value - 1e-12:
            best, best_value = weights, value
    return best / best.sum()
