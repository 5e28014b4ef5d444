"""The mean loss of probabilities, and each row's value at its label."""

from __future__ import annotations

from densecal.arrays import Array, is_torch, namespace


def mean_loss(probabilities: Array, labels: Array, loss: str) -> float:
    """Return the mean squared error summed over classes, or the mean negative log-likelihood."""
    xp = namespace(probabilities)
    true_class = take_label(probabilities, labels)
    if loss == "nll":
        return float(xp.mean(-xp.log(xp.clip(true_class, 1e-20, None))))
    return float(xp.mean(xp.sum(probabilities**2, axis=1) - 2 * true_class + 1))


def take_label(values: Array, labels: Array) -> Array:
    """Return each row's value in the column of its label, of shape (n_samples,)."""
    if is_torch(values):
        return values.gather(1, labels[:, None])[:, 0]
    return values[namespace(values).arange(values.shape[0]), labels]
