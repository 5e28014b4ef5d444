"""The channel axis of every output in a trace, from the kinds of the modules that ran."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import nn

from densecal.torch.features.layout import Layout

Side = Literal["first", "last"]

CHANNELS_FIRST = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)
CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.RNNBase)
EITHER_SIDE = (nn.modules.dropout._DropoutNd,)
WIDTHS = ("out_channels", "out_features", "num_features", "num_channels", "embedding_dim", "hidden_size")


class Axes(NamedTuple):
    """A shape and the side of its channels."""

    shape: tuple[int, ...]
    side: Side

    def permuted(self) -> tuple[int, ...]:
        """Return the shape with its channels on the other side."""
        samples, *rest = self.shape
        return (samples, *rest[1:], rest[0]) if self.side == "first" else (samples, rest[-1], *rest[:-1])


class ChannelAxes:
    """Finds the layouts of a trace's outputs in the order in which the modules finish.

    A convolution has its channels in axis 1 and a Linear in the last axis. A module of no such kind that keeps the
    shape of its input, such as an activation or a residual block, also keeps its layout. Any other output has the side
    of the latest output with as many axes, or the other one if its shape is that shape permuted. Before there is such
    an output, the width of the latest layer determines the side.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self._latest: dict[int, Axes] = {}
        self._width: int | None = None

    def of_input(self, shape: tuple[int, ...]) -> Axes | None:
        """Return the axes of a tensor that enters a module, or None if no output yet has as many axes."""
        latest = self._latest.get(len(shape))
        return None if latest is None or shape[0] != self.samples else Axes(shape, _side_after(latest, shape))

    def of_output(self, module: nn.Module, shape: tuple[int, ...], entered: Axes | None) -> tuple[Layout | None, bool]:
        """Return the layout of an output, and whether it is a guess.

        The layout is None if the output cannot be pooled: it has no batch axis, or only one axis.
        """
        self._width = _width_of(module) or self._width
        if len(shape) < 2 or self.samples not in shape[:2] or (shape[0] != self.samples and len(shape) != 3):
            return None, False
        if len(shape) == 2 or shape[0] != self.samples:
            return Layout("last", samples=0 if shape[0] == self.samples else 1), False
        side, is_guess = _side_of(module), False
        if side is None and entered is not None and entered.shape == shape:
            side = entered.side
        if side is None:
            latest = self._latest.get(len(shape))
            side, is_guess = self._side_from_width(shape) if latest is None else (_side_after(latest, shape), False)
        self._latest[len(shape)] = Axes(shape, side)
        return Layout(side), is_guess

    def _side_from_width(self, shape: tuple[int, ...]) -> tuple[Side, bool]:
        first, last = shape[1], shape[-1]
        if first != last and self._width in (first, last):
            return "first" if self._width == first else "last", False
        # The two equal axes of a square feature map are its height and width.
        return "last" if len(shape) == 3 or shape[1] == shape[2] != shape[3] else "first", True


def _side_after(latest: Axes, shape: tuple[int, ...]) -> Side:
    """Return the side of the channels in an output that follows another with as many axes."""
    if shape == latest.shape or shape != latest.permuted():
        return latest.side
    return "first" if latest.side == "last" else "last"


def _side_of(module: nn.Module) -> Side | None:
    """Return the side of the channels in the output of a module of known kind, or None."""
    if next(module.children(), None) is not None or isinstance(module, EITHER_SIDE):
        return None
    # Pooling, and the LayerNorm2d over axis 1 that inherits from LayerNorm in several libraries.
    if isinstance(module, CHANNELS_FIRST) or type(module).__name__.endswith(("1d", "2d", "3d")):
        return "first"
    if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) > 1:
        return None
    return "last" if isinstance(module, CHANNELS_LAST) else None


def _width_of(module: nn.Module) -> int | None:
    """Return the number of channels of a leaf module, or None if it has no width."""
    if next(module.children(), None) is not None:
        return None
    for attribute in WIDTHS:
        width = getattr(module, attribute, None)
        if isinstance(width, int):
            return width
    shape = getattr(module, "normalized_shape", None)
    return int(shape[-1]) if shape else None
