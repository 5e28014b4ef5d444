"""The loss of tempered logits, its derivatives with respect to the temperature, and the optimal temperature.

With u = 1 / temperature and p = softmax(u z), the loss of a sample and its derivative with respect to u are

    squared error:  L = sum_c (p_c - I_c)^2       dL/du = 2 sum_c (p_c - I_c) p_c (z_c - m),   m = sum_c p_c z_c
    NLL:            L = -log p_y                  dL/du = m - z_y

so an iteration of a fit costs one pass over the logits, for any number of temperature parameters. The second derivative
needs two more sums in the same pass.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from densecal.arrays import TORCH_BLOCK_BYTES, Array, is_torch, namespace, row_blocks, to_numpy
from densecal.errors import warn_user

Loss = Literal["brier", "nll"]
LOSSES = ("brier", "nll")

LOG_TEMPERATURE_BOUND = float(np.log(1e4))
LOWEST_LOGIT = -1e15
"""Lower logits, such as those of masked classes, are treated as equal to it: their exponentials are zero."""
PILOT_ROWS = 2000
TRAINING_TEMPERATURE, TRAINING_MISTAKES = 0.5, 0.01
"""A temperature this low with mistakes this rare is what training data give: the classifier has memorised them. An
under-confident classifier on new data has either a higher temperature or more mistakes."""
CERTAIN = 1e-6
"""Tolerance for equality with the squared error at which all confidences are 1: 2 per mistake."""
NUMPY_BLOCK_BYTES = 1 << 19
"""Blocks of this size stay in the cache with all temporary arrays."""


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that share a pass. NumPy releases the GIL in its loops."""
    return ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="densecal")


if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's threads, and would wait for them forever.
    os.register_at_fork(after_in_child=_threads.cache_clear)


def check_loss(loss: str) -> None:
    """Raise if the loss is unknown."""
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {LOSSES}, got {loss!r}.")


class TemperedLoss:
    """The loss and slope of each sample at given inverse temperatures, for logits prepared once."""

    def __init__(self, logits: Array, labels: Array, loss: Loss) -> None:
        check_loss(loss)
        self.loss = loss
        # With a row maximum of zero, the exponential does not overflow at any temperature.
        if is_torch(logits):
            self._logits = (logits - logits.max(dim=1, keepdim=True).values).clamp_min(LOWEST_LOGIT)
        else:
            with np.errstate(over="ignore"):
                shifted = np.ascontiguousarray(logits - logits.max(axis=1, keepdims=True))
            self._logits = np.maximum(shifted, LOWEST_LOGIT, out=shifted)
        self._of_label = take_label(self._logits, labels)
        self.samples, self.classes = self._logits.shape

    def subset(self, rows: slice, loss: Loss | None = None) -> TemperedLoss:
        """Return the same loss, or another one, on some rows, without preparing them again."""
        part = object.__new__(TemperedLoss)
        part.loss, part._logits, part._of_label = loss or self.loss, self._logits[rows], self._of_label[rows]
        part.samples, part.classes = part._logits.shape
        return part

    def share_of_mistakes(self) -> float:
        """Return the error rate of the classifier."""
        return float(to_numpy(self._of_label < 0).mean())

    def __call__(self, inverse_temperature: Any) -> tuple[Any, Any]:
        """Return the loss and its slope in the inverse temperature, float64 NumPy arrays of shape (n_samples,)."""
        loss, slope, _ = self._pass(inverse_temperature, curved=False)
        return loss, slope

    def mean(self, temperature: float) -> float:
        """Return the mean loss at one temperature."""
        return float(self(1 / temperature)[0].mean())

    def with_curvature(self, inverse_temperature: Any) -> tuple[Any, Any, Any]:
        """Return the loss and its first and second derivative in the inverse temperature, in the same single pass."""
        return self._pass(inverse_temperature, curved=True)

    def _pass(self, inverse_temperature: Any, *, curved: bool) -> tuple[Any, Any, Any]:
        answers = np.empty((3, self.samples))
        inverse = np.broadcast_to(np.asarray(inverse_temperature, dtype=np.float64), (self.samples,))
        on_torch = is_torch(self._logits)
        sums = self._torch_sums if on_torch else self._numpy_sums

        def work(rows: slice) -> None:
            of_label = to_numpy(self._of_label[rows]).astype(np.float64)
            answers[:, rows] = self._from_sums(inverse[rows], of_label, *sums(rows, inverse[rows], curved))

        block_bytes = TORCH_BLOCK_BYTES if on_torch else NUMPY_BLOCK_BYTES
        blocks = list(row_blocks(self.samples, self.classes * self._logits.itemsize, block_bytes))
        if on_torch or len(blocks) == 1:
            for rows in blocks:
                work(rows)
        else:
            list(_threads().map(work, blocks))
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
        squares = (
            _row_dot(weights, weights),
            _row_dot(weights, weights_z),
            _row_dot(weights_z, weights_z) if curved else none,
        )
        return total, first, squares

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


def solve_temperature(tempered: TemperedLoss, *, warn: bool = True) -> float:
    """Return the temperature with the smallest mean loss, found on a logarithmic scale within bounds.

    The sign change of the slope is bracketed from T = 1 on a subset of the rows, then from the result on all rows, and
    located with Brent's method, which cannot diverge because no step leaves the bracket.
    """
    pilot_rows = slice(None, None, max(1, tempered.samples // PILOT_ROWS))
    start = _solve_log_temperature(tempered.subset(pilot_rows), 0.0, 0.5)
    log_temperature = _solve_log_temperature(tempered, start, 0.02)
    temperature = float(np.exp(log_temperature))
    if not warn:
        return temperature
    mistakes = tempered.share_of_mistakes()
    if mistakes == 0:  # the optimal temperature is zero
        _warn_of_bound(temperature, "smallest", "every validation sample is classified correctly")
    elif log_temperature >= LOG_TEMPERATURE_BOUND:
        _warn_of_bound(temperature, "largest", "the logits are not informative about the labels")
    elif tempered.loss == "brier" and abs(tempered.mean(temperature) - 2 * mistakes) < CERTAIN:
        likeliest = solve_temperature(tempered.subset(slice(None), "nll"))
        # The result must not be worse than the uncalibrated logits in squared error.
        temperature = min((likeliest, 1.0), key=tempered.mean)
        warn_user(
            f"The validation set has so few errors ({mistakes:.2%}) that the squared error is "
            "smallest if all confidences are 1. The temperature was fitted by likelihood instead and is "
            f"{temperature:.3g}. Use a larger validation set."
        )
    elif temperature < TRAINING_TEMPERATURE and mistakes < TRAINING_MISTAKES:
        warn_user(
            f"The temperature is {temperature:.3g}, which raises the confidences, and only "
            f"{mistakes:.2%} of the validation samples are misclassified. That is typical of data "
            "that the classifier was trained on, and confidences fitted on them are too high for new data. Check that "
            "the validation data are not training data."
        )
    return temperature


def _warn_of_bound(temperature: float, side: str, reason: str) -> None:
    warn_user(
        f"The temperature is at the {side} useful value, {temperature:g}, because {reason}. "
        "Use a larger validation set that the classifier was not trained on."
    )


def _solve_log_temperature(tempered: TemperedLoss, start: float, step: float) -> float:
    slopes: dict[float, float] = {}

    def slope(log_temperature: float) -> float:
        if log_temperature not in slopes:
            inverse = np.exp(-log_temperature)
            # d/d log T = -u d/du. The factor u keeps both ends of the bracket on the same scale.
            slopes[log_temperature] = -inverse * float(tempered(inverse)[1].mean())
        return slopes[log_temperature]

    # Go downhill with growing steps until the slope changes sign.
    here = float(np.clip(start, -LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND))
    direction = -np.sign(slope(here))
    if direction == 0:
        return here
    while abs(here) < LOG_TEMPERATURE_BOUND or direction * here < 0:
        there = float(np.clip(here + direction * step, -LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND))
        if slope(there) * direction >= 0:
            return float(brentq(slope, here, there, xtol=1e-5))
        here, step = there, step * 2
    return here


def mean_loss(probabilities: Array, labels: Array, loss: str) -> float:
    """Return the mean squared error summed over classes, or the mean negative log-likelihood."""
    xp = namespace(probabilities)
    true_class = take_label(probabilities, labels)
    if loss == "nll":
        return float(xp.mean(-xp.log(xp.clip(true_class, 1e-20, None))))
    return float(xp.mean(xp.sum(probabilities**2, axis=1) - 2 * true_class + 1))


def take_label(values: Array, labels: Array) -> Array:
    """Return the value of each row in the column of its label, of shape (n_samples,)."""
    if is_torch(values):
        return values.gather(1, labels[:, None])[:, 0]
    return values[namespace(values).arange(values.shape[0]), labels]
