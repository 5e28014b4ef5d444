from __future__ import annotations

import gzip

import numpy as np
import pytest

pytest.importorskip("torch")
image = pytest.importorskip("PIL.Image")

from reproduction.measuring.out_of_domain import LIKE_CIFAR10, open_out_of_domain  # noqa: E402


def test_the_sets_beside_a_data_set_are_its_out_of_domain_sets(tmp_path):
    assert open_out_of_domain(tmp_path) == {}
    (tmp_path / "fashion-mnist").mkdir()
    grey = np.random.default_rng(0).integers(256, size=(4, 28, 28), dtype=np.uint8)
    packed = gzip.compress(bytes(16) + grey.tobytes())
    (tmp_path / "fashion-mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(packed)
    (fashion,) = open_out_of_domain(tmp_path).values()
    images, _ = fashion.batch(range(4))
    assert images.shape == (4, 32, 32, 3)
    np.testing.assert_array_equal(images[:, 2:30, 2:30, 1], grey)


def test_imagenet_images_of_classes_like_those_of_cifar10_are_left_out(tmp_path):
    (tmp_path / "imagenet").mkdir()
    similar, other = min(LIKE_CIFAR10), min(set(range(1000)) - LIKE_CIFAR10)
    for number in (similar, other):
        image.new("RGB", (64, 48), (number, 0, 0)).save(tmp_path / "imagenet" / f"{number:04d}.jpg")
    (crops,) = open_out_of_domain(tmp_path).values()
    assert len(crops) == 1
