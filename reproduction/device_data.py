"""Make the small pieces in which CIFAR-10 and the out-of-domain sets travel to a GPU machine, and unpack them there.

    python -m reproduction.device_data.py --cifar10 DIR --fashion-mnist DIR --imagenet DIR --resnets DIR

writes ``.device-data/a`` and ``.device-data/b``, each under 58 MiB. ``run_on_gpu.py unpack`` reads them.
Images are stored as differences from their neighbours, compressed with LZMA: 55 % of their size, without loss.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]

# ImageNet classes that show what CIFAR-10 has a class for, or something an expert could call so: airplanes, cars and
# trucks of any kind, birds, cats, antelopes (deer), dogs, wolves and foxes, frogs, horses and zebras, boats.
_RANGES = ((7, 24), (30, 32), (80, 100), (127, 146), (151, 293), (339, 340), (350, 353))
_SINGLE = """403 404 405 407 408 436 468 472 479 484 510 511 536 554 555 561 569 573 575 576 581 586 609 625 627 628 654
656 661 675 705 717 724 734 751 757 779 780 803 814 817 833 847 864 866 867 871 874 895 908 913 914"""
LIKE_CIFAR10 = {int(number) for number in _SINGLE.split()} | {
    number for first, last in _RANGES for number in range(first, last + 1)
}


def encode(images: Images) -> bytes:
    """Compress (N, H, W, C) images: green taken off red and blue, then second differences, then LZMA."""
    pixels = images.copy()
    if pixels.shape[-1] == 3:
        pixels[..., ::2] -= pixels[..., 1:2]  # uint8 wraps, and so does the decoder
    for axis in (1, 2):
        moved = np.swapaxes(pixels, 0, axis)
        moved[1:] -= moved[:-1].copy()
    return lzma.compress(np.moveaxis(pixels, -1, 0).tobytes(), preset=6)


def decode(packed: bytes, shape: tuple[int, int, int, int]) -> Images:
    """Undo :func:`encode`."""
    count, height, width, channels = shape
    planes = np.frombuffer(lzma.decompress(packed), np.uint8).reshape(channels, count, height, width)
    pixels = np.moveaxis(planes, 0, -1)
    for axis in (2, 1):
        pixels = np.cumsum(pixels, axis=axis, dtype=np.uint8)
    if channels == 3:
        pixels[..., ::2] += pixels[..., 1:2]
    return pixels


def read_cifar10(folder: Path) -> dict[str, NDArray[np.generic]]:
    """Read CIFAR-10 and the project's fixed split with the project's own reader."""
    from densecal.shift.datasets.cifar import CIFAR10

    train, test = CIFAR10(folder, "train+val"), CIFAR10(folder, "test")
    return {
        "train_images": train.images,
        "train_labels": train.labels.astype(np.uint8),
        "test_images": test.images,
        "test_labels": test.labels.astype(np.uint8),
        "val_indices": CIFAR10(folder, "val").indices.astype(np.int32),
    }


def read_fashion_mnist(folder: Path) -> Images:
    """Read the 10,000 Fashion-MNIST test images, (N, 28, 28, 1)."""
    raw = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)


def read_imagenet_crops(folder: Path) -> Images:
    """Read the largest central square of the ImageNet images outside CIFAR-10's classes, at 32x32."""
    from PIL import Image

    crops = []
    for path in sorted(folder.glob("*.jpg")):
        if int(path.stem) in LIKE_CIFAR10:
            continue
        image = Image.open(path).convert("RGB")
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        box = (left, top, left + side, top + side)
        crops.append(np.asarray(image.resize((32, 32), Image.Resampling.BOX, box=box)))
    return np.stack(crops)


def make(arguments: argparse.Namespace) -> None:
    """Write the two pieces."""
    first, second = arguments.out / "a", arguments.out / "b"
    for folder in (first, second):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    data = read_cifar10(arguments.cifar10)
    train, test = data["train_images"], data["test_images"]
    blocks = {f"train{i}": train[10_000 * i : 10_000 * (i + 1)] for i in range(5)} | {"test": test}
    extra = {"imagenet": read_imagenet_crops(arguments.imagenet)} if arguments.imagenet else {}
    if arguments.fashion_mnist:
        extra["fashion"] = read_fashion_mnist(arguments.fashion_mnist)
    homes = {"train0": first, "train1": first, "train2": first, "fashion": first, "imagenet": first}

    def write(name: str, images: Images) -> None:
        shape = "x".join(str(n) for n in images.shape)
        (homes.get(name, second) / f"{name}.{shape}.xz").write_bytes(encode(np.ascontiguousarray(images)))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda item: write(*item), {**blocks, **extra}.items()))
    np.savez(second / "labels.npz", **{name: data[name] for name in ("train_labels", "test_labels", "val_indices")})
    for path in sorted(arguments.resnets.glob("*.th")) if arguments.resnets else []:
        shutil.copyfile(path, second / path.name)


def unpack(pieces: Path, work: Path) -> list[str]:
    """Decode every piece that has arrived into ``work``; give the names of what lies there now."""
    work.mkdir(parents=True, exist_ok=True)

    def place(path: Path) -> None:
        name, shape, _ = path.name.split(".")
        count, height, width, channels = (int(n) for n in shape.split("x"))
        target = work / f"{name}.npy"
        if not target.exists():
            partial = work / f"{name}.partial.npy"
            np.save(partial, decode(path.read_bytes(), (count, height, width, channels)))
            partial.rename(target)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(place, sorted(pieces.glob("*/*.xz"))))
    for path in [*pieces.glob("*/*.npz"), *pieces.glob("*/*.th")]:
        shutil.copyfile(path, work / path.name)
    return sorted(path.name for path in work.iterdir() if path.is_file())


def main() -> None:
    """Make the pieces from local copies of the data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar10", type=Path, required=True, help="folder with cifar-10-batches-py")
    parser.add_argument("--fashion-mnist", type=Path, help="folder with t10k-images-idx3-ubyte.gz")
    parser.add_argument("--imagenet", type=Path, help="folder with NNNN.jpg, NNNN the class")
    parser.add_argument("--resnets", type=Path, help="folder with the pretrained CIFAR ResNets (*.th)")
    parser.add_argument("--out", type=Path, default=Path(".device-data"))
    make(parser.parse_args())


if __name__ == "__main__":
    main()
