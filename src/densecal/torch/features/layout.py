"""Which axes of a layer's output are samples and channels, and the average over all the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

CHANNELS_FIRST = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)
"""Layers that define axis 1 as the channels; every other layer with a width (Linear, LayerNorm) means the last."""
WIDTHS = ("out_channels", "out_features", "num_features", "num_channels", "embedding_dim", "hidden_size")


@dataclass(frozen=True)
class Layout:
    """Where a layer's output keeps its samples and its channels.

    Parameters
    ----------
    channels : {"first", "last"}
        Axis 1, as convolutions have it, or the last axis, as transformers have it.
    samples : int, default 0
        The samples' axis: 0, or 1 for recurrent and transformer layers that put time first.

    Examples
    --------
    >>> Layout("first").pool(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3])
    >>> Layout("last").pool(torch.ones(2, 7, 5)).shape
    torch.Size([2, 5])
    """

    channels: Literal["first", "last"]
    samples: Literal[0, 1] = 0

    def pool(self, output: Tensor, mask: Tensor | None = None) -> Tensor:
        """Average over space or tokens: (samples, channels), in float32, in memory of its own.

        Parameters
        ----------
        output : Tensor
            The layer's output, of two or more axes.
        mask : Tensor of shape (samples, tokens), optional
            Tokens to count; padding must not change a text's feature. A nested output knows its own.
        """
        if output.is_nested:
            output, mask = padded(output)
        if output.ndim == 2:
            # The next layer may work in place, and then the output is no longer what this one gave.
            return output.to(torch.float32, copy=True)
        if self.samples == 1:
            output = output.transpose(0, 1)
        last = self.channels == "last"
        if mask is not None and last and output.ndim == 3 and mask.shape == output.shape[:2]:
            weights = mask.to(output.dtype)[:, :, None]
            total = (output * weights).sum(dim=1, dtype=torch.float32)
            return total / weights.sum(dim=1, dtype=torch.float32).clamp_min(1)
        axes = list(range(1, output.ndim - 1)) if last else list(range(2, output.ndim))
        return output.mean(dim=axes, dtype=torch.float32)


def padded(output: Tensor) -> tuple[Tensor, Tensor]:
    """Return a nested tensor, as a TransformerEncoder's layers give it, as a padded one and the mask of its tokens.

    Examples
    --------
    >>> texts = [torch.ones(2, 4), torch.ones(1, 4)]
    >>> values, mask = padded(torch.nested.nested_tensor(texts, layout=torch.jagged))
    >>> values.shape, mask
    (torch.Size([2, 2, 4]), tensor([[ True,  True],
            [ True, False]]))
    """
    values = torch.nested.to_padded_tensor(output, 0.0)
    tokens = torch.tensor([len(rows) for rows in output.unbind()], device=values.device)
    return values, torch.arange(values.shape[1], device=values.device) < tokens[:, None]


def width_of(module: nn.Module) -> tuple[int, Literal["first", "last"]] | None:
    """Return how many channels a single layer gives and where, if it says so."""
    if next(module.children(), None) is not None:
        return None
    # A LayerNorm2d of one library or another norms axis 1, though it inherits from LayerNorm.
    first = isinstance(module, CHANNELS_FIRST) or type(module).__name__.endswith(("1d", "2d", "3d"))
    side: Literal["first", "last"] = "first" if first else "last"
    for attribute in WIDTHS:
        width = getattr(module, attribute, None)
        if isinstance(width, int):
            return width, side
    shape = getattr(module, "normalized_shape", None)
    return (int(shape[-1]), side) if shape else None


def find_layout(
    shape: tuple[int, ...], samples: int, last_width: tuple[int, Literal["first", "last"]] | None
) -> Layout | None:
    """Work out the layout of an output from its shape and the last layer with a known width before it.

    Returns None for an output that cannot be pooled: no axis is the batch, or there is only one axis.

    Examples
    --------
    >>> find_layout((2, 56, 56, 96), 2, (96, "last"))
    Layout(channels='last', samples=0)
    >>> find_layout((2, 64, 28, 28), 2, (64, "first"))
    Layout(channels='first', samples=0)
    """
    if len(shape) < 2 or samples not in shape[:2] or (shape[0] != samples and len(shape) != 3):
        return None
    if shape[0] != samples:
        return Layout("last", samples=1)
    if len(shape) == 2:
        return Layout("last")
    first, last = shape[1], shape[-1]
    if last_width is not None and last_width[0] in (first, last):
        width, side = last_width
        if first != last:
            return Layout("first" if width == first else "last")
        return Layout(side)
    if len(shape) == 3:
        return Layout("last")
    # Without a width to go by, the two equal axes of a square feature map are its height and width.
    return Layout("last" if shape[1] == shape[2] != shape[3] else "first")


def first_tensor(output: Any) -> Tensor | None:
    """Return the tensor that a layer's output is, holds under its usual name, or holds first.

    Examples
    --------
    >>> first_tensor((torch.ones(1), None))
    tensor([1.])
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        named = output.get("last_hidden_state")
        values = [named] if isinstance(named, Tensor) else list(output.values())
    elif isinstance(output, (tuple, list)):
        values = list(output)
    else:
        values = [getattr(output, "last_hidden_state", None)]
    return next((value for value in values if isinstance(value, Tensor)), None)


def _refuse_features_first(first: Tensor | None, outputs: Sequence[Any]) -> None:
    """Refuse (features, logits): a first item that is wider than another that could be the logits."""
    if first is None or first.ndim != 2:
        return
    for item in outputs:
        is_like = isinstance(item, Tensor) and item.is_floating_point() and item.ndim == 2 and len(item) == len(first)
        if is_like and 1 < item.shape[1] < first.shape[1]:
            raise TypeError(
                f"The classifier returned several tensors, of shapes {tuple(first.shape)} and {tuple(item.shape)}, and "
                "only one of them can be the logits. Return the logits first, alone, or in a dict as 'logits'."
            )


def logits_of(output: Any) -> Tensor:
    """Return the logits in whatever a classifier returned: a tensor, a tuple, a dict, an object with ``.logits``.

    Examples
    --------
    >>> logits_of({"loss": None, "logits": torch.zeros(1, 3)}).shape
    torch.Size([1, 3])
    """
    found: Any = output
    if isinstance(output, Mapping):
        found = output.get("logits")
        if found is None:
            tensors = [value for value in output.values() if isinstance(value, Tensor) and value.ndim == 2]
            found = tensors[0] if len(tensors) == 1 else None
    elif not isinstance(output, Tensor):
        found = getattr(output, "logits", None)
        if found is None and isinstance(output, (tuple, list)):
            found = first_tensor(output)
            _refuse_features_first(found, output)
    if not isinstance(found, Tensor):
        held = f" with the keys {list(output)}" if isinstance(output, Mapping) else ""
        raise TypeError(
            f"The classifier returned {type(output).__name__}{held}, in which no logits can be found. Return a "
            "tensor of shape (samples, classes), a dict with 'logits', or an object with .logits."
        )
    if found.ndim != 2 or found.shape[1] < 2:
        raise ValueError(
            f"The classifier's output must have shape (samples, classes) with at least 2 classes, got "
            f"{tuple(found.shape)}."
        )
    return found
