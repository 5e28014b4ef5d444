"""CIFAR-10 and CIFAR-100 as official Python files or as PNG files, and the published CIFAR-10-C and CIFAR-100-C."""

from __future__ import annotations

import io
import pickle
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from densecal.shift.datasets.base import ImageArrays
from densecal.shift.datasets.checks import (
    DatasetError,
    Image,
    Labels,
    MissingDatasetError,
    check_choice,
    check_severity,
    find_first,
    published_file,
    read_class_names,
    seeded_split,
)
from densecal.shift.datasets.files import ImageFolder, list_folders

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class CIFAR10(ImageArrays):
    """CIFAR-10, from the official Python files or from PNG files in one folder per class.

    Parameters
    ----------
    root : path
        The folder that holds ``cifar-10-batches-py``, or that folder itself, or a folder with ``train/CLASS/*.png`` and
        ``test/CLASS/*.png``. PNG files are read in a fixed random order, because their names do not contain the
        official one; the split into "train" and "val" therefore differs from that of the official files.
    split : {"train", "val", "train+val", "test"}
        "train" and "val" are a fixed seeded split of the official 50,000 training images into 45,000 and
        5,000; "train+val" is all of them; "test" is the official test set.

    Attributes
    ----------
    images : ndarray of uint8, shape (N, 32, 32, 3)
    indices : ndarray of int64
        Position of each image in the official training or test set.
    """

    splits = ("train", "val", "train+val", "test")
    mean = (0.4914, 0.4822, 0.4465)
    std = (0.2470, 0.2435, 0.2616)

    title: ClassVar[str] = "CIFAR-10"
    class_names: ClassVar[tuple[str, ...]] = CIFAR10_CLASSES
    folder: ClassVar[str] = "cifar-10-batches-py"
    label_key: ClassVar[bytes] = b"labels"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{i}" for i in range(1, 6))
    test_file: ClassVar[str] = "test_batch"
    train_size: ClassVar[int] = 50_000
    test_size: ClassVar[int] = 10_000

    def __init__(self, root: str | PathLike[str], split: str = "test") -> None:
        check_choice(split, self.splits, "split", self.title)
        images, labels = self._read_all(Path(root), split)
        self.indices = self._split_indices(split)
        if len(self.indices) < len(images):  # indexing with all positions would copy 150 MB
            images, labels = images[self.indices], labels[self.indices]
        super().__init__(images, labels, self.class_names, name=self.title, split=split)

    @classmethod
    def _read_all(cls, root: Path, split: str) -> tuple[Image, Labels]:
        """Return all official training or test images and their labels."""
        rows = cls.test_size if split == "test" else cls.train_size
        folders = root / ("test" if split == "test" else "train")
        if folders.is_dir() and not (root / cls.folder).exists():
            return _read_class_folders(folders, cls.class_names, rows)
        files = (cls.test_file,) if split == "test" else cls.train_files
        archive = (
            f"{cls.title.lower()}-python.tar.gz ('{cls.title} python version') from the CIFAR home page of the "
            "University of Toronto"
        )
        folder = find_first(
            [root / cls.folder / files[0], root / files[0]],
            cls.title,
            f"Download {archive} and unpack it in {root}, so that {root / cls.folder / files[0]} exists. "
            f"PNG files are read from {root / 'train' / cls.class_names[0]} and so on.",
        ).parent
        parts = [_read_batch(folder / name, archive, cls.label_key, rows // len(files)) for name in files]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return images, labels

    @classmethod
    def _split_indices(cls, split: str) -> NDArray[np.int64]:
        if split in ("train", "val"):
            val, train = seeded_split(cls.train_size, cls.train_size // 10)
            return val if split == "val" else train
        return np.arange(cls.test_size if split == "test" else cls.train_size, dtype=np.int64)

    def published(self, root: str | PathLike[str], corruption: str, severity: int) -> CIFAR10C:
        """Open the published corrupted copy of this test set; see :class:`CIFAR10C` and :class:`CIFAR100C`."""
        if self.split != "test":
            raise ValueError(f"{self.title}-C is available for the split 'test' only, got {self.split!r}")
        return (CIFAR100C if isinstance(self, CIFAR100) else CIFAR10C)(root, corruption, severity)


class CIFAR100(CIFAR10):
    """CIFAR-100 with its 100 fine labels, from ``cifar-100-python`` or PNG files; see :class:`CIFAR10`."""

    mean = (0.5071, 0.4865, 0.4409)
    std = (0.2673, 0.2564, 0.2762)

    title = "CIFAR-100"
    class_names = read_class_names("cifar100_classes.txt")
    folder = "cifar-100-python"
    label_key = b"fine_labels"
    train_files = ("train",)
    test_file = "test"


class CIFAR10C(ImageArrays):
    """The published CIFAR-10-C: the test set under one corruption at one severity, memory-mapped.

    Parameters
    ----------
    root : path
        The folder that holds ``CIFAR-10-C``, or that folder itself.
    corruption : str
        The name of a file in it, without ``.npy``.
    severity : int
        1 to 5. Each file has the 10,000 test images at all five severities, severity 1 first.
    """

    splits = ("test",)
    clean: ClassVar[type[CIFAR10]] = CIFAR10

    def __init__(self, root: str | PathLike[str], corruption: str, severity: int) -> None:
        title, rows = f"{self.clean.title}-C", self.clean.test_size
        check_severity(severity, title)
        archive = f"{title}.tar from the {title} record on Zenodo"
        folder = find_first(
            [Path(root, title, "labels.npy"), Path(root, "labels.npy")],
            title,
            f"Download {archive} and unpack it in {root}, so that {Path(root, title, 'labels.npy')} exists.",
        ).parent
        file = folder / f"{corruption}.npy"
        if corruption == "labels" or not file.exists():
            found = sorted(path.stem for path in folder.glob("*.npy") if path.stem != "labels")
            raise MissingDatasetError(f"{title}: {file} not found; the folder has {', '.join(found) or 'none'}.")
        shape = (5 * rows, 32, 32, 3)
        images = _load_array(file, archive, shape)
        labels = _load_array(folder / "labels.npy", archive, shape[:1])
        part = slice((severity - 1) * rows, severity * rows)
        super().__init__(
            images[part],
            labels[part],
            self.clean.class_names,
            name=f"{title}/{corruption}-{severity}",
            split="test",
            mean=self.clean.mean,
            std=self.clean.std,
        )
        self.corruption, self.severity = corruption, severity


class CIFAR100C(CIFAR10C):
    """The published CIFAR-100-C, with the parameters of :class:`CIFAR10C`."""

    clean = CIFAR100


class _Recorded:
    """A stand-in for an array or a dtype: those of NumPy trust the state that a pickle sets."""

    state: tuple[Any, ...] = ()

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def pixels(self) -> Image:
        """Return the array if it is one of unsigned bytes."""
        _, shape, dtype, fortran_order, raw = self.state
        if dtype.arguments[0] not in (b"u1", "u1") or not isinstance(raw, bytes):
            raise ValueError("its data are not unsigned bytes")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran_order else "C")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Recorded,
    ("numpy._core.multiarray", "_reconstruct"): _Recorded,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Recorded,
    ("_codecs", "encode"): lambda text, _: text.encode("latin1"),
}
"""The stand-ins for the names in the pickle of an array. Python 3 writes bytes in old protocols as encoded text."""


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that calls no function named in the file."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not allowed and was not executed")
        return _ALLOWED[module, name]


def _read_batch(path: Path, archive: str, label_key: bytes, rows: int) -> tuple[Image, list[int]]:
    """Return the images (rows, 32, 32, 3) and labels of one official batch file, a pickle of Python 2."""
    with published_file(path, archive):
        content = _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        data, labels = content[b"data"], content[label_key]
        if not isinstance(data, _Recorded) or not isinstance(labels, list):
            raise ValueError("its data are not an array, or its labels not a list")
        pixels = data.pixels()
        if pixels.shape != (rows, 3072) or len(labels) != rows:
            raise ValueError(f"expected {rows} rows of 3072 and {rows} labels, got {pixels.shape} and {len(labels)}")
    return np.ascontiguousarray(pixels.reshape(rows, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _read_class_folders(folder: Path, classes: tuple[str, ...], rows: int) -> tuple[Image, Labels]:
    """Return the images (rows, 32, 32, 3) and labels of a folder of ``apple/*.png``, ..., in a fixed random order.

    The file names do not contain the official order. Sorted by class, the first images would all be of one class.
    """
    found = list_folders(folder)
    if found != sorted(classes):
        wrong = sorted(set(found) ^ set(classes))
        raise DatasetError(
            f"{folder}: expected {len(classes)} folders named after the classes ({classes[0]}, {classes[1]}, ...), "
            f"missing or unknown: {', '.join(wrong[:3])}. Use ImageFolder for other image trees."
        )
    files = ImageFolder(folder)
    if len(files) != rows:
        raise DatasetError(f"{folder} has {len(files):,} of the {rows:,} images; copy the folder again")
    images, labels = files.batch(np.random.RandomState(1).permutation(rows))
    if images.shape[1:] != (32, 32, 3):
        raise DatasetError(f"{folder}: expected images of 32x32, got {images.shape[2]}x{images.shape[1]}")
    return images, labels


def _load_array(path: Path, archive: str, shape: tuple[int, ...]) -> Image:
    """Memory-map a .npy file and check that it is complete and has the published shape."""
    with published_file(path, archive):
        array: Image = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.shape != shape or array.dtype.kind not in "ui":
            raise ValueError(f"expected integers of shape {shape}, got {array.dtype} of shape {array.shape}")
    return array
