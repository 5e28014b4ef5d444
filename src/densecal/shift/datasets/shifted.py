"""Data sets corrupted or perturbed on the fly, reproducibly, one batch at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from densecal.shift.corruptions.constants import CORRUPTIONS, SEVERITIES, check_corruption
from densecal.shift.datasets.base import Dataset, Wrapper
from densecal.shift.datasets.checks import Image

if TYPE_CHECKING:
    import torch

    from densecal.shift.datasets.cifar import CIFAR10C
    from densecal.shift.datasets.imagenet import ImageNetC
    from densecal.shift.perturbations.plan import PerturbationOptions


class _Changed(Wrapper):
    """A data set whose images are changed in batches: the base of :class:`Shifted` and :class:`Perturbed`."""

    def __init__(self, dataset: Dataset, device: str | torch.device | None) -> None:
        super().__init__(dataset)
        self.device = device

    @abstractmethod
    def _change(self, images: torch.Tensor, positions: NDArray[np.int64]) -> torch.Tensor:
        """Return a changed uint8 (B, H, W, 3) batch; image j is sample ``positions[j]`` of the data set."""

    def _read(self, positions: NDArray[np.int64]) -> list[Image] | Image:
        import torch

        def changed(images: Image, positions: NDArray[np.int64]) -> Image:
            return self._on_device(torch.from_numpy(images), positions).cpu().numpy()

        images = self.dataset._read(positions)
        if not len(positions):
            return images
        if len({image.shape for image in images}) == 1:
            return changed(np.asarray(images), positions)
        # Images of different sizes cannot be batched. Changing them one by one gives the same result.
        return [changed(image[None], positions[[i]])[0] for i, image in enumerate(images)]

    def _tensors(self, positions: NDArray[np.int64]) -> torch.Tensor:
        images = self.dataset._tensors(positions)
        return self._on_device(images, positions) if len(positions) else images

    def _on_device(self, images: torch.Tensor, positions: NDArray[np.int64]) -> torch.Tensor:
        return self._change(images if self.device is None else images.to(self.device), positions)


class Shifted(_Changed):
    """A data set under one corruption at one severity, corrupted on the fly.

    Sample i depends only on (seed, corruption, severity, i): it is the same in every run, order and batch size.
    Needs torch.

    Parameters
    ----------
    dataset : Dataset
        The clean data set. To keep the corruption of each image, take a :meth:`~Dataset.subset` of the shifted set
        instead of shifting a subset.
    corruption : str
        One of :data:`densecal.shift.CORRUPTIONS`.
    severity : int
        1 to 5; 0 leaves the images unchanged.
    seed : int
        Seed of the random numbers.
    device : str or torch.device, optional
        Device for the corruption, such as "cuda". :meth:`~Dataset.as_torch` then returns tensors on that device, so use
        a loader without worker processes.
    frost_dir : path, optional
        Folder with the published frost overlays; see :func:`densecal.shift.corrupt`.

    Examples
    --------
    >>> from densecal.shift import ImageArrays, Shifted
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
        check_corruption(corruption, severity)
        self.corruption, self.severity, self.seed, self.frost_dir = corruption, int(severity), seed, frost_dir
        self.name = f"{dataset.name}/{corruption}-{severity}"

    def _change(self, images: torch.Tensor, positions: NDArray[np.int64]) -> torch.Tensor:
        from densecal.shift.corruptions.apply import corrupt

        return corrupt(images, self.corruption, self.severity, self.seed, index=positions, frost_dir=self.frost_dir)


class Perturbed(_Changed):
    """A data set under random perturbations: the shifted data that a calibrator is fitted on.

    Sample i depends only on (seed, i) and the options; :func:`densecal.shift.plan_perturbations` returns its
    perturbations. Needs torch.

    Parameters
    ----------
    dataset : Dataset
        The clean data set.
    seed, device
        As in :class:`Shifted`.
    **options
        Passed to :func:`densecal.shift.perturb`.

    Examples
    --------
    >>> from densecal.shift import ImageArrays, Perturbed
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
        **options: Unpack[PerturbationOptions],
    ) -> None:
        super().__init__(dataset, device)
        self.seed, self.options = seed, options
        self.name = f"{dataset.name}/perturbed"

    def _change(self, images: torch.Tensor, positions: NDArray[np.int64]) -> torch.Tensor:
        from densecal.shift.perturbations.apply import perturb

        return perturb(images, self.seed, index=positions, **self.options)


def shifted_sets(
    dataset: Dataset,
    seed: int = 0,
    *,
    device: str | torch.device | None = None,
    frost_dir: str | PathLike[str] | None = None,
    published: str | PathLike[str] | None = None,
) -> Iterator[Shifted | CIFAR10C | ImageNetC]:
    """Iterate over the 90 shifted copies of a data set: 18 corruptions at 5 severities each.

    Each copy is opened when the iteration reaches it, and has the attributes ``corruption`` and ``severity``.

    Parameters
    ----------
    dataset : Dataset
        The clean data set.
    seed, device, frost_dir
        As in :class:`Shifted`.
    published : path, optional
        Folder with the published corrupted files (CIFAR-10-C, CIFAR-100-C, ImageNet-C), which are read instead of
        corrupting on the fly.

    Examples
    --------
    >>> from densecal.shift import ImageArrays, shifted_sets
    >>> clean = ImageArrays(np.zeros((4, 32, 32, 3), np.uint8), [0, 1, 0, 1])
    >>> names = [f"{each.corruption}-{each.severity}" for each in shifted_sets(clean)]
    >>> len(names), names[0]
    (90, 'gaussian_noise-1')
    """
    conditions = ((corruption, severity) for corruption in CORRUPTIONS for severity in SEVERITIES)
    if published is None:
        return (Shifted(dataset, *each, seed, device=device, frost_dir=frost_dir) for each in conditions)
    published_copy = getattr(dataset, "published", None)
    if published_copy is None:
        raise ValueError(
            f"published={published!r}: no corrupted copies of {dataset.name} are published; omit the argument to "
            "corrupt on the fly"
        )
    return (published_copy(published, *each) for each in conditions)
