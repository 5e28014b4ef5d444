"""Temperature scaling, alone and in an ensemble with two other distributions, and the loss that it minimises.

With u = 1 / temperature and p = softmax(u z), the loss of a sample and its derivative with respect to u are

    squared error:  L = sum_c (p_c - I_c)^2       dL/du = 2 sum_c (p_c - I_c) p_c (z_c - m),   m = sum_c p_c z_c
    NLL:            L = -log p_y                  dL/du = m - z_y

so an iteration of a fit costs one pass over the logits, for any number of temperature parameters.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np

from densecal.arrays import (
    TORCH_BLOCK_BYTES,
    Array,
    asarray_like,
    is_torch,
    row_blocks,
    softmax,
    take_classes,
    to_numpy,
)
from densecal.arrays.checks import check_choice
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.temperature_fit import solve_temperature

Loss = Literal["brier", "nll"]
LOWEST_LOGIT = -1e15
"""Lower logits, such as those of masked classes, are treated as equal to it: their exponentials are zero."""
NUMPY_BLOCK_BYTES = 1 << 19
"""Blocks of this size stay in the cache with all temporary arrays."""


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that share a pass over the logits. NumPy releases the GIL in its loops."""
    return ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="densecal")


if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's threads, and would wait for them forever.
    os.register_at_fork(after_in_child=_threads.cache_clear)


class TemperedLoss:
    """The loss and slope of each sample at given inverse temperatures, for logits prepared once."""

    def __init__(self, logits: Array, labels: Array, loss: Loss) -> None:
        check_choice("loss", loss, Loss)
        self.loss = loss
        # With a row maximum of zero, the exponential does not overflow at any temperature.
        if is_torch(logits):
            self._logits = (logits - logits.max(dim=1, keepdim=True).values).clamp_min(LOWEST_LOGIT)
        else:
            with np.errstate(over="ignore"):
                shifted = np.ascontiguousarray(logits - logits.max(axis=1, keepdims=True))
            self._logits = np.maximum(shifted, LOWEST_LOGIT, out=shifted)
        self._of_label = take_classes(self._logits, labels)

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self._of_label)

    def subset(self, rows: slice, loss: Loss | None = None) -> TemperedLoss:
        """Return the same loss, or another one, on some rows, without preparing them again."""
        part = copy(self)
        part.loss, part._logits, part._of_label = loss or self.loss, self._logits[rows], self._of_label[rows]
        return part

    def share_of_mistakes(self) -> float:
        """Return the error rate of the classifier."""
        return float(to_numpy(self._of_label < 0).mean())

    def mean(self, temperature: Any) -> float:
        """Return the mean loss at one temperature, or one for each sample."""
        return float(self(1 / temperature)[0].mean())

    def __call__(self, inverse_temperature: Any) -> tuple[Any, Any]:
        """Return the loss and its slope in the inverse temperature, float64 NumPy arrays of shape (n_samples,)."""
        return self.with_curvature(inverse_temperature, curved=False)[:2]

    def with_curvature(self, inverse_temperature: Any, *, curved: bool = True) -> tuple[Any, Any, Any]:
        """Return the loss and its first and second derivative in the inverse temperature, in one pass."""
        answers = np.empty((3, self.samples))
        inverse = np.broadcast_to(np.asarray(inverse_temperature, dtype=np.float64), (self.samples,))
        on_torch = is_torch(self._logits)
        sums = self._torch_sums if on_torch else self._numpy_sums

        def work(rows: slice) -> None:
            of_label = to_numpy(self._of_label[rows]).astype(np.float64)
            answers[:, rows] = self._from_sums(inverse[rows], of_label, *sums(rows, inverse[rows], curved))

        block_bytes = TORCH_BLOCK_BYTES if on_torch else NUMPY_BLOCK_BYTES
        blocks = list(row_blocks(self.samples, self._logits.shape[1] * self._logits.itemsize, block_bytes))
        list((map if on_torch or len(blocks) == 1 else _threads().map)(work, blocks))
        return answers[0], answers[1], answers[2]

    def _from_sums(self, inverse: Any, of_label: Any, total: Any, first: Any, squares: Any) -> tuple[Any, Any, Any]:
        """Compute the loss and its derivatives from the sums of e z^i and e^2 z^i over the classes, i = 0, 1, 2."""
        mean = first[0] / total
        variance = first[1] / total - mean**2
        if self.loss == "nll":
            return np.log(total) - inverse * of_label, mean - of_label, variance
        label_probability = np.exp(inverse * of_label) / total
        p2, p2_z, p2_zz = (part / total**2 for part in squares)
        offset = of_label - mean
        loss = p2 - 2 * label_probability + 1
        slope = 2 * (p2_z - mean * p2 - label_probability * offset)
        spread = p2_zz - 2 * mean * p2_z + mean**2 * p2
        curvature = 4 * spread - 2 * variance * p2 - 2 * label_probability * (offset**2 - variance)
        return loss, slope, curvature

    def _numpy_sums(self, rows: slice, inverse: Any, curved: bool) -> tuple[Any, Any, Any]:
        z = self._logits[rows]
        weights = z * inverse.astype(z.dtype)[:, None]
        np.exp(weights, out=weights)
        weights_z = weights * z
        total = weights.sum(axis=1).astype(np.float64)
        none = np.zeros_like(total)
        first = (weights_z.sum(axis=1).astype(np.float64), _row_dot(weights_z, z) if curved else none)
        if self.loss == "nll":
            return total, first, None
        last = _row_dot(weights_z, weights_z) if curved else none
        return total, first, (_row_dot(weights, weights), _row_dot(weights, weights_z), last)

    def _torch_sums(self, rows: slice, inverse: Any, curved: bool) -> tuple[Any, Any, Any]:
        import torch

        z = self._logits[rows]
        weights = torch.exp(z * torch.tensor(inverse, dtype=z.dtype, device=z.device)[:, None])
        weights_z = weights * z
        parts = [weights, weights_z, weights_z * z]
        if self.loss == "brier":
            parts += [weights**2, weights * weights_z, weights_z**2]
        total, *rest = to_numpy(torch.stack([part.sum(1) for part in parts])).astype(np.float64)
        return total, rest[:2], rest[2:]


def _row_dot(left: Any, right: Any) -> Any:
    """Return the sum of each row of a product without computing the product as an array."""
    return np.einsum("ij,ij->i", left, right).astype(np.float64)


class TemperatureScaling(Calibrator):
    """Divide the logits by one temperature: softmax(z / T).

    T > 1 lowers the confidence of an overconfident classifier, T < 1 raises that of an underconfident one. The order of
    the classes, and therefore the accuracy, does not change.

    Parameters
    ----------
    loss : {"nll", "brier"}, default "nll"
        The loss to minimise on the validation set: the negative log-likelihood (as in Guo et al.) or the squared error
        (as in the DAC paper). The squared error gives little weight to confident mistakes, so it can sharpen an
        overconfident classifier.

    Attributes
    ----------
    temperature_ : float
        The fitted temperature.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 4
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

    def __init__(self, loss: Loss = "nll") -> None:
        self.loss = loss

    @property
    def fit_loss(self) -> str:  # type: ignore[override]
        """The loss that the fit minimises."""
        return self.loss

    def _fit(self, logits: Array, labels: Array) -> None:
        self.temperature_ = solve_temperature(TemperedLoss(logits, labels, self.loss))

    def _probabilities(self, logits: Array) -> Array:
        return softmax(logits, self.temperature_)


class EnsembleTemperatureScaling(TemperatureScaling):
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
    >>> logits = [[4.0, 0.0, 0.0]] * 4
    >>> calibrator = EnsembleTemperatureScaling().fit(logits, [0, 0, 0, 1])
    >>> calibrator.mixture_.sum().round(6)
    np.float64(1.0)
    """

    short_name: ClassVar[str] = "ets"
    full_name: ClassVar[str] = "Ensemble temperature scaling"
    learned: ClassVar[tuple[str, ...]] = ("temperature_", "mixture_")
    fit_loss: ClassVar[str] = "brier"
    citation: ClassVar[Citation] = Citation(
        "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
        "Zhang, Kailkhura, Han",
        "ICML",
        2020,
    )

    def _fit(self, logits: Array, labels: Array) -> None:
        super()._fit(logits, labels)
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
        target[i] = float(to_numpy(take_classes(left, labels)).mean(dtype=np.float64))
        for j, right in enumerate(components):
            gram[i, j] = float((left * right).sum()) / samples
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
