"""One image under all 18 corruptions at all five severities, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from densecal.shift.corruptions.constants import CORRUPTIONS, SEVERITIES, Corruption

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

_FAMILIES = ("noise", "blur", "weather", "digital")
_COLOURS = {"noise": "#7a5195", "blur": "#2f6f9f", "weather": "#2a8c6a", "digital": "#b5651d"}
_CELL = 0.82  # inches
_LABEL = 1.35
_LARGEST = 224


def corruption_grid(image: np.ndarray | Tensor, seed: int = 0, *, index: int = 0) -> Figure:
    """Draw one image under every corruption and severity.

    Parameters
    ----------
    image
        One uint8 image: (H, W, 3), (3, H, W) or grey (H, W). A larger one is first scaled to a shorter side of 224
        pixels, the size the published constants are made for.
    seed, index
        As in `corrupt`: the figure shows what a data set's sample `index` looks like.

    Returns
    -------
    figure
        A matplotlib figure with two blocks of nine rows; save it with `figure.savefig("grid.png")`.

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift import corruption_grid
    >>> figure = corruption_grid(np.full((32, 32, 3), 128, dtype=np.uint8))
    >>> len(figure.axes)
    91
    """
    from matplotlib.figure import Figure

    picture = _shrunk(_as_array(image))
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
    note = f"left: the image itself ({picture.shape[1]} x {picture.shape[0]} pixels); seed {seed}"
    figure.text(1.4 / width, 1 - 0.75 / height, note, size=8.5, color="#555555")
    for number, corruption in enumerate(rows):
        left = 0.1 + (number // half) * (block + 0.1)
        top = 1.6 + (number % half) * _CELL
        _label(figure, left / width, 1 - (top + _CELL / 2) / height, corruption)
        for column, changed in enumerate(_all_severities(picture, corruption.name, seed, index)):
            start = left + _LABEL + column * _CELL
            _show(cell(start, top, _CELL * 0.96), changed)
            if number % half == 0:
                place = (start + _CELL * 0.48) / width, 1 - (top - 0.06) / height
                figure.text(*place, str(column + 1), ha="center", size=8)
    return figure


def _label(figure: Figure, x: float, y: float, corruption: Corruption) -> None:
    figure.text(x, y, corruption.name.replace("_", " "), size=8, va="bottom")
    figure.text(x, y, corruption.family, size=6.5, va="top", color=_COLOURS[corruption.family])


def _all_severities(picture: np.ndarray, name: str, seed: int, index: int) -> list[np.ndarray]:
    from densecal.shift.corruptions.apply import corrupt

    place = np.array([index])
    return [corrupt(picture[None], name, severity, seed, index=place)[0] for severity in SEVERITIES]


def _show(axes: Axes, picture: np.ndarray) -> None:
    smooth = "nearest" if min(picture.shape[:2]) < 100 else "antialiased"
    axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation=smooth)


def _shrunk(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    factor = _LARGEST / min(height, width)
    if factor >= 1:
        return picture
    from PIL import Image

    size = round(width * factor), round(height * factor)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _as_array(image: np.ndarray | Tensor) -> np.ndarray:
    picture = image if isinstance(image, np.ndarray) else image.detach().cpu().numpy()
    if picture.ndim == 3 and picture.shape[-1] not in (1, 3) and picture.shape[0] in (1, 3):
        picture = np.moveaxis(picture, 0, -1)
    if picture.ndim == 3 and picture.shape[-1] == 1:
        picture = picture[..., 0]
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3) or (picture.ndim == 3 and picture.shape[-1] != 3):
        raise ValueError(
            f"image must be one uint8 image (H, W, 3), (3, H, W) or (H, W); got shape {tuple(picture.shape)} and "
            f"dtype {picture.dtype}."
        )
    return picture
