"""The loss of logits divided by a temperature, and its slope: the one costly pass inside every temperature fit.

With u = 1 / temperature and p = softmax(u z), each sample's loss and its derivative by u are

    squared error:  L = sum_c (p_c - I_c)^2       dL/du = 2 sum_c (p_c - I_c) p_c (z_c - m),   m = sum_c p_c z_c
    NLL:            L = -log p_y                  dL/du = m - z_y

so a fit of any number of temperature parameters costs one pass over the logits an iteration.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from densecal.arrays import Array, is_torch, row_blocks, to_numpy
from densecal.calibrators.base import take_label

Loss = Literal["brier", "nll"]
LOSSES = ("brier", "nll")

# Cache-sized blocks for NumPy; large ones for a GPU, whose cost is a kernel's launch.
NUMPY_BLOCK_BYTES = 1 << 19
TORCH_BLOCK_BYTES = 1 << 28


def check_loss(loss: str) -> None:
    """Refuse a loss that does not exist."""
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {LOSSES}, got {loss!r}.")


class TemperedLoss:
    """Each sample's loss and slope at given inverse temperatures, for logits prepared once.

    Examples
    --------
    >>> tempered = TemperedLoss(np.array([[2.0, 0.0]]), np.array([0]), "nll")
    >>> loss, slope = tempered(np.array([1.0]))
    >>> print(loss.round(4), slope.round(4))
    [0.1269] [-0.2384]
    """

    def __init__(self, logits: Array, labels: Array, loss: Loss) -> None:
        check_loss(loss)
        self.loss = loss
        # A row's maximum at zero makes the exponential safe at every temperature.
        if is_torch(logits):
            self._logits = logits - logits.max(dim=1, keepdim=True).values
        else:
            self._logits = np.ascontiguousarray(logits - logits.max(axis=1, keepdims=True))
        self._of_label = take_label(self._logits, labels)
        self.samples, self.classes = self._logits.shape

    def subset(self, rows: slice) -> TemperedLoss:
        """Return the loss of some rows alone, without preparing them again."""
        part = object.__new__(TemperedLoss)
        part.loss, part._logits, part._of_label = self.loss, self._logits[rows], self._of_label[rows]
        part.samples, part.classes = part._logits.shape
        return part

    def __call__(self, inverse_temperature: Any) -> tuple[Any, Any]:
        """Return loss and slope by the inverse temperature, each a float64 NumPy array of shape (samples,)."""
        loss, slope = np.empty(self.samples), np.empty(self.samples)
        inverse = np.broadcast_to(np.asarray(inverse_temperature, dtype=np.float64), (self.samples,))
        if is_torch(self._logits):
            for rows in row_blocks(self.samples, self.classes * 4, TORCH_BLOCK_BYTES):
                loss[rows], slope[rows] = self._torch_block(rows, inverse[rows])
            return loss, slope

        def work(rows: slice) -> None:
            loss[rows], slope[rows] = self._numpy_block(rows, inverse[rows])

        blocks = list(row_blocks(self.samples, self._logits.strides[0], NUMPY_BLOCK_BYTES))
        if len(blocks) == 1:
            work(blocks[0])
        else:
            with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
                list(pool.map(work, blocks))
        return loss, slope

    def _numpy_block(self, rows: slice, inverse: Any) -> tuple[Any, Any]:
        z, of_label = self._logits[rows], self._of_label[rows].astype(np.float64)
        weights = z * inverse.astype(z.dtype)[:, None]
        np.exp(weights, out=weights)
        total = _row_dot(weights)
        mean = _row_dot(weights, z) / total
        if self.loss == "nll":
            return np.log(total) - inverse * of_label, mean - of_label
        label_probability = np.exp(inverse * of_label) / total
        weights *= weights
        squares = _row_dot(weights) / total**2
        squares_times_z = _row_dot(weights, z) / total**2
        return _brier_from_sums(label_probability, squares, squares_times_z, mean, of_label)

    def _torch_block(self, rows: slice, inverse: Any) -> tuple[Any, Any]:
        import torch

        z = self._logits[rows]
        u = torch.as_tensor(np.ascontiguousarray(inverse), dtype=z.dtype, device=z.device)[:, None]
        weights = torch.exp(z * u)
        total = weights.sum(1)
        probabilities = weights / total[:, None]
        mean = (probabilities * z).sum(1)
        of_label = self._of_label[rows]
        if self.loss == "nll":
            return to_numpy(torch.log(total) - u[:, 0] * of_label), to_numpy(mean - of_label)
        label_probability = torch.exp(u[:, 0] * of_label) / total
        squared = probabilities * probabilities
        loss, slope = _brier_from_sums(
            label_probability, squared.sum(1), (squared * z).sum(1), mean, of_label
        )
        return to_numpy(loss), to_numpy(slope)


def _brier_from_sums(
    label_probability: Array, squares: Array, squares_times_z: Array, mean: Array, of_label: Array
) -> tuple[Array, Array]:
    loss = squares - 2 * label_probability + 1
    slope = 2 * (squares_times_z - mean * squares - label_probability * (of_label - mean))
    return loss, slope


def _row_dot(left: Any, right: Any | None = None) -> Any:
    """Sum each row of a product without building it."""
    if right is None:
        return left.sum(axis=1, dtype=left.dtype).astype(np.float64)
    return np.einsum("ij,ij->i", left, right).astype(np.float64)
