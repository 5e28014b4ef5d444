"""Data sets that move: corrupted or perturbed on the fly, reproducibly, a batch at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from densecal.shift.corruptions import CORRUPTIONS, SEVERITIES
from densecal.shift.datasets.base import Dataset, Wrapper
from densecal.shift.datasets.checks import Image, check_choice

if TYPE_CHECKING:
    import torch


class _Changed(Wrapper):
    """A data set whose images are changed together: what :class:`Shifted` and :class:`Perturbed` share."""

    def __init__(self, dataset: Dataset, device: str | torch.device | None) -> None:
        super().__init__(dataset)
        self.device = device

    @abstractmethod
    def _change(self, images: torch.Tensor, positions: NDArray[np.int64]) -> torch.Tensor:
        """Change a uint8 (B, H, W, 3) batch; sample j is the data set's sample ``positions[j]``."""

    def _read(self, position: int) -> Image:
        return cast("Image", self._stack(np.array([position]))[0])

    def _read_many(self, positions: NDArray[np.int64]) -> list[Image]:
        import torch

        images = self.dataset._read_many(positions)
        # Images of different sizes make no batch. A sample's result does not depend on its batch, so that one by one
        # gives the same, slower.
        alike = len({image.shape for image in images}) == 1
        parts = [slice(None)] if alike else [slice(i, i + 1) for i in range(len(images))]
        changed: list[Image] = []
        for part in parts:
            changed += list(self._on_device(torch.from_numpy(np.stack(images[part])), positions[part]).cpu().numpy())
        return changed

    def _stack(self, positions: NDArray[np.int64]) -> Image:
        return cast("Image", self._tensors(positions).cpu().numpy())

    def _tensors(self, positions: NDArray[np.int64]) -> torch.Tensor:
        images = self.dataset._tensors(positions)
        return self._on_device(images, positions) if len(positions) else images

    def _on_device(self, images: torch.Tensor, positions: NDArray[np.int64]) -> torch.Tensor:
        return self._change(images if self.device is None else images.to(self.device), positions)


class Shifted(_Changed):
    """A data set under one corruption at one severity, made on the fly.

    Sample i depends on (seed, corruption, severity, i) alone: it is the same on every run, in any order and
    in any batch size. Needs torch.

    Parameters
    ----------
    dataset : Dataset
        The clean data set. Take a :meth:`~Dataset.subset` of the shifted set, rather than shift a subset, to
        keep each image's corruption.
    corruption : str
        One of :data:`densecal.shift.CORRUPTIONS`.
    severity : int
        1 to 5; 0 leaves the images as they are.
    seed : int
        Another seed gives other noise.
    device : str or torch.device, optional
        Where to corrupt, "cuda" for instance; :meth:`~Dataset.as_torch` then yields tensors that lie there,
        so load it without worker processes.
    frost_dir : path, optional
        Folder with the published frost overlays; see :func:`densecal.shift.corrupt`.

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift.datasets import ImageArrays, Shifted
    >>> clean = ImageArrays(np.full((4, 32, 32, 3), 100, np.uint8), [0, 1, 0, 1])
    >>> noisy = Shifted(clean, "gaussian_noise", severity=3)
    >>> image, label = noisy[2]
    >>> image.shape, bool((image == noisy.batch([0, 1, 2])[0][2]).all())
    ((32, 32, 3), True)
    """

    def __init__(
        self,
        dataset: Dataset,
        corruption: str,
        severity: int,
        seed: int = 0,
        *,
        device: str | torch.device | None = None,
        frost_dir: str | PathLike[str] | None = None,
    ) -> None:
        super().__init__(dataset, device)
        check_choice(corruption, CORRUPTIONS, "corruption", "Shifted")
        if severity not in (0, *SEVERITIES):
            raise ValueError(f"severity must be 0 to 5, got {severity!r}")
        self.corruption, self.severity, self.seed, self.frost_dir = corruption, int(severity), seed, frost_dir
        self.name = f"{dataset.name}/{corruption}-{severity}"

    def _change(self, images: torch.Tensor, positions: NDArray[np.int64]) -> torch.Tensor:
        from densecal.shift.corruptions import corrupt

        return corrupt(images, self.corruption, self.severity, self.seed, index=positions, frost_dir=self.frost_dir)


class Perturbed(_Changed):
    """A data set under random small perturbations, as a calibrator that must hold under shift is fitted on.

    Sample i depends on (seed, i) and the options alone. Needs torch.

    Parameters
    ----------
    dataset : Dataset
        The clean data set.
    seed : int
        Another seed gives other perturbations.
    device : str or torch.device, optional
        Where to perturb; see :class:`Shifted`.
    **options
        Passed to :func:`densecal.shift.perturb`.

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift.datasets import ImageArrays, Perturbed
    >>> clean = ImageArrays(np.full((4, 32, 32, 3), 100, np.uint8), [0, 1, 0, 1])
    >>> Perturbed(clean, seed=1)[3][0].shape
    (32, 32, 3)
    """

    def __init__(
        self,
        dataset: Dataset,
        seed: int = 0,
        *,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dataset, device)
        self.seed, self.options = seed, options
        self.name = f"{dataset.name}/perturbed"

    def _change(self, images: torch.Tensor, positions: NDArray[np.int64]) -> torch.Tensor:
        from densecal.shift.perturbations import perturb

        return perturb(images, self.seed, index=positions, **self.options)


@dataclass(frozen=True)
class Condition:
    """One condition to judge under: a corruption at a severity, or the clean set.

    Attributes
    ----------
    name : str
        "clean", or like "fog-3".
    corruption : str or None
        None for the clean set.
    severity : int
        0 for the clean set.
    dataset : Dataset
        The data set under this condition, opened when first asked for.

    Examples
    --------
    >>> Condition("fog-3", "fog", 3, open=lambda: None).name
    'fog-3'
    """

    name: str
    corruption: str | None
    severity: int
    open: Callable[[], Dataset] = field(repr=False, compare=False)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set under this condition."""
        return self.open()


@runtime_checkable
class _Published(Protocol):
    """A data set that has been published corrupted, too."""

    def published(self, root: str | PathLike[str], corruption: str, severity: int) -> Dataset: ...


def conditions(
    dataset: Dataset,
    seed: int = 0,
    *,
    device: str | torch.device | None = None,
    frost_dir: str | PathLike[str] | None = None,
    published: str | PathLike[str] | None = None,
) -> list[Condition]:
    """List the conditions of the paper's protocol: the clean set, then 18 corruptions at 5 severities each.

    Nothing is read or corrupted until a condition's data are asked for.

    Parameters
    ----------
    dataset : Dataset
        The clean data set.
    seed : int
        Seed of the corruptions.
    device : str or torch.device, optional
        Where to corrupt; see :class:`Shifted`.
    frost_dir : path, optional
        Folder with the published frost overlays; see :func:`densecal.shift.corrupt`.
    published : path, optional
        Read the published corrupted files in this folder (CIFAR-10-C, CIFAR-100-C, ImageNet-C) instead of
        corrupting on the fly.

    Returns
    -------
    list of Condition
        91 of them.

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift.datasets import ImageArrays, conditions
    >>> listed = conditions(ImageArrays(np.zeros((4, 32, 32, 3), np.uint8), [0, 1, 0, 1]))
    >>> len(listed), listed[0].name, listed[0].severity
    (91, 'clean', 0)
    """
    if published is not None and not isinstance(dataset, _Published):
        raise ValueError(
            f"published={published!r}: no corrupted files are published for {dataset.name}; leave it out to "
            "corrupt on the fly"
        )

    def opener(corruption: str, severity: int) -> Callable[[], Dataset]:
        if published is not None and isinstance(dataset, _Published):
            return lambda: dataset.published(published, corruption, severity)
        return lambda: Shifted(dataset, corruption, severity, seed, device=device, frost_dir=frost_dir)

    shifted = [
        Condition(f"{corruption}-{severity}", corruption, severity, opener(corruption, severity))
        for corruption in CORRUPTIONS
        for severity in SEVERITIES
    ]
    return [Condition("clean", None, 0, lambda: dataset), *shifted]
