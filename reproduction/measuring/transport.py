"""Pack data for a GPU machine with limits on file size, and split trained weights for the transfer back.

    python -m reproduction.measuring.transport pack --dataset cifar10 --data DIR [--fashion-mnist DIR] [--imagenet DIR]
    python -m reproduction.measuring.transport unpack --out FOLDER

``pack`` writes two folders below 58 MiB each, ``.transport/a`` and ``.transport/b``. ``unpack`` writes a folder of .npy
files that ``reproduction.training`` and ``reproduction.measuring`` read instead of the official files. The compression
is lossless: differences between neighbouring pixels, then LZMA, which gives 55 % of the original size.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from densecal.shift import Dataset, ImageArrays, open_dataset

if TYPE_CHECKING:
    from torch import Tensor

Images = NDArray[np.uint8]
FILE_BYTES = 15_500_000
BLOCK = 10_000
"""Images per file."""
LABELS = "labels.npz"
app = typer.Typer(help="Pack data for a GPU machine with limits on file size.", pretty_exceptions_enable=False)

# ImageNet classes that overlap with a class of CIFAR-10 or are similar to one: airplanes, cars and trucks of any kind,
# birds, cats, antelopes (deer), dogs, wolves and foxes, frogs, horses and zebras, boats.
_RANGES = ((7, 24), (30, 32), (80, 100), (127, 146), (151, 293), (339, 340), (350, 353))
_SINGLE = """403 404 405 407 408 436 468 472 479 484 510 511 536 554 555 561 569 573 575 576 581 586 609 625 627 628 654
656 661 675 705 717 724 734 751 757 779 780 803 814 817 833 847 864 866 867 871 874 895 908 913 914"""
LIKE_CIFAR10 = {int(number) for number in _SINGLE.split()} | {
    number for first, last in _RANGES for number in range(first, last + 1)
}


def encode(images: Images) -> bytes:
    """Compress images (n_samples, height, width, n_channels): red and blue minus green, second differences, LZMA."""
    pixels = images.copy()
    if pixels.shape[-1] == 3:
        pixels[..., ::2] -= pixels[..., 1:2]  # uint8 wraps around, and `decode` reverses it
    for axis in (1, 2):
        swapped = np.swapaxes(pixels, 0, axis)
        swapped[1:] -= swapped[:-1].copy()
    return lzma.compress(np.moveaxis(pixels, -1, 0).tobytes(), preset=6)


def decode(packed: bytes, shape: tuple[int, ...]) -> Images:
    """Return the images compressed by `encode`."""
    planes = np.frombuffer(lzma.decompress(packed), np.uint8).reshape(shape[3], *shape[:3])
    pixels = np.moveaxis(planes, 0, -1)
    for axis in (2, 1):
        pixels = np.cumsum(pixels, axis=axis, dtype=np.uint8)
    if shape[3] == 3:
        pixels[..., ::2] += pixels[..., 1:2]
    return pixels


def read_fashion_mnist(folder: Path) -> Images:
    """Return the 10,000 Fashion-MNIST test images, zero-padded to 32x32, as RGB."""
    raw = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    grey = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return np.repeat(np.pad(grey, ((0, 0), (2, 2), (2, 2), (0, 0))), 3, axis=3)


def read_imagenet_crops(folder: Path) -> Images:
    """Return the central square of ImageNet images that are not similar to CIFAR-10's classes, resized to 32x32."""
    from PIL import Image

    crops = []
    for path in sorted(folder.glob("*.jpg")):
        if int(path.stem) not in LIKE_CIFAR10:
            image = Image.open(path).convert("RGB")
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            box = (left, top, left + side, top + side)
            crops.append(np.asarray(image.resize((32, 32), Image.Resampling.BOX, box=box)))
    return np.stack(crops)


@app.command("pack")
def pack_data(
    data: Annotated[Path, typer.Option(help="The folder with the CIFAR data set.")],
    dataset: Annotated[str, typer.Option(help="cifar10 or cifar100.")] = "cifar10",
    fashion_mnist: Annotated[Path | None, typer.Option(help="Folder with t10k-images-idx3-ubyte.gz.")] = None,
    imagenet: Annotated[Path | None, typer.Option(help="Folder with NNNN.jpg, NNNN the class.")] = None,
    out: Path = Path(".transport"),
) -> None:
    """Write a CIFAR data set and the out-of-domain sets as two folders of small files."""
    shutil.rmtree(out, ignore_errors=True)
    splits: Any = [open_dataset(dataset, data, split) for split in ("train+val", "val", "test")]
    train, val, test = splits
    images: dict[str, Any] = {
        f"train{start // BLOCK}": train.images[start : start + BLOCK] for start in range(0, len(train), BLOCK)
    }
    images["test"] = test.images
    if fashion_mnist is not None:
        images["ood-fashion"] = read_fashion_mnist(fashion_mnist)
    if imagenet is not None:
        images["ood-imagenet"] = read_imagenet_crops(imagenet)
    first = {"train0", "train1", "train2", "ood-fashion", "ood-imagenet"}

    def write(name: str) -> None:
        shape = "x".join(str(n) for n in images[name].shape)
        (out / ("a" if name in first else "b") / f"{name}.{shape}.xz").write_bytes(encode(np.array(images[name])))

    for folder in (out / "a", out / "b"):
        folder.mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, images))
    np.savez(out / "b" / LABELS, train=train.labels, test=test.labels, val_indices=val.indices, classes=train.classes)


@app.command("unpack")
def unpack_data(pieces: Path = Path(".transport"), out: Path = Path("data")) -> None:
    """Decode the packed files that are present."""
    out.mkdir(parents=True, exist_ok=True)

    def place(path: Path) -> None:
        name, shape, _ = path.name.split(".")
        target = out / f"{name}.npy"
        if not target.exists():
            partial = out / f"{name}.partial.npy"
            np.save(partial, decode(path.read_bytes(), tuple(int(n) for n in shape.split("x"))))
            partial.rename(target)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(place, sorted(pieces.glob("*/*.xz"))))
    for path in pieces.glob(f"*/{LABELS}"):
        shutil.copyfile(path, out / LABELS)
    print(*sorted(path.name for path in out.iterdir()))


def open_split(dataset: str, data: str | Path, split: str, **options: Any) -> Dataset:
    """Open one split of a data set, from its official files or from the files written by `unpack_data`."""
    folder = Path(data)
    if not (folder / LABELS).exists():
        return open_dataset(dataset, data, split, **options)
    stored = np.load(folder / LABELS, allow_pickle=False)
    classes = [str(name) for name in stored["classes"]]
    if split == "test":
        return ImageArrays(np.load(folder / "test.npy"), stored["test"], classes, split=split)
    blocks = len(list(folder.glob("train[0-9].npy")))
    images = np.concatenate([np.load(folder / f"train{number}.npy") for number in range(blocks)])
    everything, val = np.arange(len(images)), stored["val_indices"]
    rows = {"train+val": everything, "val": val, "train": np.setdiff1d(everything, val)}[split]
    return ImageArrays(images[rows], stored["train"][rows], classes, split=split)


def open_out_of_domain(data: str | Path) -> dict[str, Dataset]:
    """Open the out-of-domain sets written by `unpack_data`; their labels are all zero."""
    found = {path.stem.removeprefix("ood-"): np.load(path) for path in sorted(Path(data).glob("ood-*.npy"))}
    return {name: ImageArrays(images, np.zeros(len(images), int)) for name, images in found.items()}


@app.command()
def split_weights(weights: Path, out: Path = Path("weights")) -> None:
    """Write a network's weights as float16 to small files; large tensors are split along their first axis."""
    import torch
    from safetensors.torch import load_file, save_file

    pieces: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, tensor in load_file(weights).items():
        value = tensor.half() if tensor.dtype == torch.float32 else tensor
        cuts = torch.split(value, max(1, FILE_BYTES // value[:1].nbytes)) if value.ndim else (value,)
        for place, cut in enumerate(cuts):
            if filled + cut.nbytes > FILE_BYTES:
                pieces.append({})
                filled = 0
            pieces[-1][f"{name}@{place}"] = cut.contiguous()
            filled += cut.nbytes
    out.mkdir(parents=True, exist_ok=True)
    for index, piece in enumerate(pieces):
        save_file(piece, out / f"{weights.stem}-weights.{index:02d}.safetensors")


def join_weights(paths: Sequence[str | Path]) -> dict[str, Tensor]:
    """Read weights from one file, or from the files written by `split_weights`, as float32."""
    import torch
    from safetensors.torch import load_file

    parts: dict[str, dict[int, Tensor]] = {}
    for path in paths:
        for key, value in load_file(path).items():
            name, _, place = key.partition("@")
            parts.setdefault(name, {})[int(place or 0)] = value.float() if value.dtype == torch.float16 else value
    return {
        name: torch.cat([cuts[i] for i in sorted(cuts)]) if len(cuts) > 1 else cuts[0] for name, cuts in parts.items()
    }


if __name__ == "__main__":
    app()
