"""The images of the GPU run as tensors on the device, and how the run says what it does."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def say(text: str) -> None:
    """Write one line at once, with the time."""
    sys.stdout.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")
    sys.stdout.flush()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Say how long a stage took."""
    start = time.perf_counter()
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    say(f"{name}: {time.perf_counter() - start:.1f} s")


class Data:
    """CIFAR-10 and the out-of-domain sets, as tensors on the device."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.work, self.device = arguments.work, arguments.device
        labels = np.load(self.work / "labels.npz")
        few = 200 if arguments.smoke else None
        self.val = labels["val_indices"].astype(np.int64)
        train = np.setdiff1d(np.arange(50_000), self.val)
        if arguments.smoke:
            train, self.val = train[train < 10_000][:512], self.val[self.val < 10_000][:few]
        blocks = [self.work / f"train{i}.npy" for i in range(1 if arguments.smoke else 5)]
        images = np.concatenate([np.load(path) for path in blocks])
        self.train_images, self.train_labels = self._put(images[train]), self._put(labels["train_labels"][train])
        self.val_images, self.val_labels = self._put(images[self.val]), self._put(labels["train_labels"][self.val])
        self.test_images = self._put(np.load(self.work / "test.npy")[:few])
        self.test_labels = self._put(labels["test_labels"][:few])
        self.few = few

    def _put(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(self.device)
        return tensor.long() if tensor.ndim == 1 else tensor

    def whole_train(self) -> Tensor:
        """Give all training images: the bank of the networks that others trained."""
        return torch.cat([self.train_images, self.val_images])

    def ood(self) -> Iterator[tuple[str, Tensor]]:
        """Give the out-of-domain sets: Fashion-MNIST framed to 32x32 and grey as RGB, and ImageNet crops."""
        if (self.work / "fashion.npy").exists():
            grey = np.load(self.work / "fashion.npy")[: self.few]
            framed = np.pad(grey, ((0, 0), (2, 2), (2, 2), (0, 0)))
            yield "ood-fashion", self._put(np.repeat(framed, 3, axis=3))
        if (self.work / "imagenet.npy").exists():
            yield "ood-imagenet", self._put(np.load(self.work / "imagenet.npy")[: self.few])

    def shifted(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        """Give the sets that the stage ``corrupt`` has written, of one kind: test, val-perturbed, test-perturbed."""
        for path in sorted((self.work / kind).glob("*.npy")):
            yield path.stem, self._put(np.load(path)[: self.few])
