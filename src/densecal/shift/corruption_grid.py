"""Figure of one image under all 18 corruptions at all five severities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from densecal.errors import require
from densecal.shift.corruptions.constants import CORRUPTIONS, SEVERITIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

_FAMILIES = ("noise", "blur", "weather", "digital")
_COLOURS = {"noise": "#7a5195", "blur": "#2f6f9f", "weather": "#2a8c6a", "digital": "#b5651d"}
_CELL = 0.82  # inches
_LABEL = 1.35
_LARGEST = 224


def corruption_grid(image: NDArray[np.uint8] | Tensor, seed: int = 0, *, index: int = 0) -> Figure:
    """Draw one image under every corruption and severity.

    Parameters
    ----------
    image
        One uint8 image: (H, W, 3), (3, H, W) or grey (H, W). If its shorter side exceeds 224 pixels, the larger
        published size, the image is first scaled down to 224.
    seed, index
        As in `corrupt`; `index` is the image's position in its data set.

    Returns
    -------
    matplotlib.figure.Figure
        A figure with two blocks of nine rows. Save it with `figure.savefig("grid.png")`.

    Examples
    --------
    >>> from densecal.shift import corruption_grid
    >>> figure = corruption_grid(np.full((32, 32, 3), 128, dtype=np.uint8))
    >>> len(figure.axes)
    91
    """
    require("matplotlib", "plots", "corruption_grid")
    from matplotlib.figure import Figure

    from densecal.shift.corruptions.apply import corrupt

    picture = _as_picture(image)
    rows = sorted(CORRUPTIONS.values(), key=lambda each: _FAMILIES.index(each.family))
    half = len(rows) // 2
    block = _LABEL + len(SEVERITIES) * _CELL
    width, height = 2 * block + 0.25, half * _CELL + 1.75
    figure = Figure(figsize=(width, height), dpi=150, facecolor="white")

    def cell(x: float, y: float, size: float) -> Axes:
        axes: Axes = figure.add_axes((x / width, 1 - (y + size) / height, size / width, size / height))
        axes.set_axis_off()
        return axes

    _show(cell(0.1, 0.1, 1.1), picture)
    figure.text(1.4 / width, 1 - 0.45 / height, "18 corruptions at severities 1 to 5", size=13, weight="bold")
    note = f"left: the original image ({picture.shape[1]} x {picture.shape[0]} pixels); seed {seed}"
    figure.text(1.4 / width, 1 - 0.75 / height, note, size=8.5, color="#555555")
    for number, corruption in enumerate(rows):
        left = 0.1 + (number // half) * (block + 0.1)
        top = 1.6 + (number % half) * _CELL
        x, y = left / width, 1 - (top + _CELL / 2) / height
        figure.text(x, y, corruption.name.replace("_", " "), size=8, va="bottom")
        figure.text(x, y, corruption.family, size=6.5, va="top", color=_COLOURS[corruption.family])
        for column, severity in enumerate(SEVERITIES):
            start = left + _LABEL + column * _CELL
            corrupted = corrupt(picture[None], corruption.name, severity, seed, index=[index])
            _show(cell(start, top, _CELL * 0.96), corrupted[0])
            if number % half == 0:
                place = (start + _CELL * 0.48) / width, 1 - (top - 0.06) / height
                figure.text(*place, str(severity), ha="center", size=8)
    return figure


def _show(axes: Axes, picture: NDArray[np.uint8]) -> None:
    smooth = "nearest" if min(picture.shape[:2]) < 100 else "antialiased"
    axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation=smooth)


def _as_picture(image: NDArray[np.uint8] | Tensor) -> NDArray[np.uint8]:
    """Return one image as (H, W, 3) or (H, W), with a shorter side of at most 224 pixels."""
    from PIL import Image

    from densecal.shift.batches import Batch

    try:
        plane = Batch.of(image[None], None).planes[0]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"image must be one uint8 image (H, W, 3), (3, H, W) or (H, W); got shape {tuple(image.shape)} and "
            f"dtype {image.dtype}."
        ) from error
    picture = (plane[0] if len(plane) == 1 else plane.permute(1, 2, 0)).cpu().numpy()
    factor = _LARGEST / min(picture.shape[:2])
    if factor >= 1:
        return picture
    size = round(picture.shape[1] * factor), round(picture.shape[0] * factor)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))
