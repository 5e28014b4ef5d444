"""The official CIFAR files, written here byte by byte as Python 2 wrote them, and the published corrupted sets."""

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from densecal.shift import (
    CIFAR10,
    CIFAR10C,
    CIFAR100,
    CIFAR100C,
    DatasetError,
    MissingDatasetError,
    open_dataset,
)


def python2_pickle(value) -> bytes:
    """Pickle as Python 2's protocol 2 did: str is bytes, NumPy arrays are rebuilt by numpy.core."""
    if isinstance(value, dict):
        return b"}(" + b"".join(python2_pickle(k) + python2_pickle(v) for k, v in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(python2_pickle(item) for item in value) + b"e"
    if isinstance(value, bytes):
        return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))) + value
    if isinstance(value, int):
        return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
    dtype = b"cnumpy\ndtype\n" + python2_pickle(value.dtype.str[1:].encode()) + b"K\x00K\x01\x87R"
    dtype += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"(" + b"".join(python2_pickle(n) for n in value.shape) + b"t"
    order = b"\x88" if value.flags.f_contiguous else b"\x89"
    raw = python2_pickle(value.tobytes(order="A"))
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return empty + b"(K\x01" + shape + dtype + order + raw + b"tb"


def write_batch(path: Path, pixels: np.ndarray, labels: list[int], key: bytes = b"labels", **extra) -> None:
    batch = {b"batch_label": b"testing", key: labels, b"data": pixels, b"filenames": [b"x.png"] * len(labels)}
    batch |= {name.encode(): value for name, value in extra.items()}
    path.write_bytes(b"\x80\x02" + python2_pickle(batch) + b".")


@pytest.fixture
def small(monkeypatch):
    """CIFAR with 100 training and 20 test images, so that a test writes kilobytes."""
    monkeypatch.setattr(CIFAR10, "train_size", 100)
    monkeypatch.setattr(CIFAR10, "test_size", 20)


@pytest.fixture
def cifar10(tmp_path, small) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in [*CIFAR10.train_files, "test_batch"]:
        pixels = rng.integers(0, 256, (20, 3072), dtype=np.uint8)
        write_batch(folder / name, pixels, rng.integers(0, 10, 20).tolist())
    return tmp_path


def test_the_test_set_equals_what_plain_unpickling_gives(cifar10):
    dataset = CIFAR10(cifar10)
    reference = pickle.loads((cifar10 / "cifar-10-batches-py/test_batch").read_bytes(), encoding="bytes")
    assert dataset.images.shape == (20, 32, 32, 3)
    # Row layout of the official files: 1024 red, 1024 green, 1024 blue values, each row by row.
    np.testing.assert_array_equal(dataset.images[3, 5, 7], reference[b"data"][3].reshape(3, 32, 32)[:, 5, 7])
    np.testing.assert_array_equal(dataset.labels, reference[b"labels"])
    image, label = dataset[3]
    np.testing.assert_array_equal(image, dataset.images[3])
    assert isinstance(label, int) and label == reference[b"labels"][3]


def test_train_and_validation_share_the_training_set_without_overlap(cifar10):
    train, val, both = (CIFAR10(cifar10, split) for split in ("train", "val", "train+val"))
    assert (len(train), len(val), len(both)) == (90, 10, 100)
    assert sorted([*train.indices, *val.indices]) == list(range(100))
    np.testing.assert_array_equal(train.images, both.images[train.indices])
    np.testing.assert_array_equal(val.labels, both.labels[val.indices])


def test_the_full_size_split_never_changes():
    train, val = CIFAR10._split_indices("train"), CIFAR10._split_indices("val")
    assert (len(train), len(val), len(set(train) | set(val))) == (45_000, 5_000, 50_000)
    # Frozen, so that results are reproducible across releases.
    assert val[:5].tolist() == [14, 22, 24, 28, 64]
    assert int(val.sum()) == 126_459_119


def test_the_batch_folder_itself_is_a_root_too(cifar10):
    np.testing.assert_array_equal(CIFAR10(cifar10 / "cifar-10-batches-py").images, CIFAR10(cifar10).images)


def test_files_written_by_python_3_and_in_fortran_order_read_the_same(cifar10):
    file = cifar10 / "cifar-10-batches-py/test_batch"
    reference = CIFAR10(cifar10).images
    content = pickle.loads(file.read_bytes(), encoding="bytes")
    file.write_bytes(pickle.dumps(content, protocol=2))
    np.testing.assert_array_equal(CIFAR10(cifar10).images, reference)
    write_batch(file, np.asfortranarray(content[b"data"]), content[b"labels"])
    np.testing.assert_array_equal(CIFAR10(cifar10).images, reference)


def test_cifar100_reads_the_fine_labels(tmp_path, small):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, rows in (("train", 100), ("test", 20)):
        pixels = np.full((rows, 3072), rows, np.uint8)
        write_batch(folder / name, pixels, [99] * rows, b"fine_labels", coarse_labels=[3] * rows)
    dataset = CIFAR100(tmp_path, "val")
    assert (len(dataset), dataset.n_classes, dataset.labels[0]) == (10, 100, 99)
    assert dataset.classes[99] == "worm"
    assert dataset.images[0, 0, 0, 0] == 100


@pytest.fixture
def cifar100_png(tmp_path, monkeypatch) -> Path:
    """CIFAR-100 as PNG files with two training images and one test image per class; the red value is the label."""
    from PIL import Image

    monkeypatch.setattr(CIFAR100, "train_size", 200)
    monkeypatch.setattr(CIFAR100, "test_size", 100)
    for label, name in enumerate(CIFAR100.class_names):
        for split, count in (("train", 2), ("test", 1)):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (32, 32), (label, number, 7)).save(tmp_path / split / name / f"{name}_{number}.png")
    return tmp_path


def test_cifar100_reads_a_folder_of_png_files(cifar100_png):
    train, val, both = (CIFAR100(cifar100_png, split) for split in ("train", "val", "train+val"))
    assert (len(train), len(val), len(both), len(CIFAR100(cifar100_png))) == (180, 20, 200, 100)
    for dataset in (train, val, both):
        np.testing.assert_array_equal(dataset.images[:, 5, 9, 0], dataset.labels)
    assert sorted(both.labels) == sorted(list(range(100)) * 2)
    np.testing.assert_array_equal(val.images, both.images[val.indices])
    np.testing.assert_array_equal(open_dataset("cifar100", cifar100_png, "val").images, val.images)


def test_the_first_png_images_are_of_many_classes(cifar100_png):
    assert len(set(CIFAR100(cifar100_png).labels[:20])) == 20
    assert len(set(CIFAR100(cifar100_png, "train").labels[:40])) > 25


def test_png_files_that_are_not_all_of_cifar100_are_an_error(cifar100_png):
    (cifar100_png / "train/apple/apple_0.png").unlink()
    with pytest.raises(DatasetError, match="has 199 of the 200 images"):
        CIFAR100(cifar100_png, "train")
    (cifar100_png / "train/apple").rename(cifar100_png / "train/pear_tree")
    with pytest.raises(DatasetError, match="missing or unknown: apple, pear_tree"):
        CIFAR100(cifar100_png, "train")
    (cifar100_png / "train").rename(cifar100_png / "whole")
    (cifar100_png / "train/train").mkdir(parents=True)
    with pytest.raises(DatasetError, match="expected 100 folders named after the classes"):
        CIFAR100(cifar100_png, "train")


def test_a_missing_set_says_what_to_get_and_where_to_put_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cifar-10-python\.tar\.gz.*cifar-10-batches-py/test_batch"):
        CIFAR10(tmp_path)
    with pytest.raises(MissingDatasetError, match=r"cifar-100-python\.tar\.gz"):
        CIFAR100(tmp_path)


def test_a_missing_training_batch_is_named(cifar10):
    (cifar10 / "cifar-10-batches-py/data_batch_4").unlink()
    assert len(CIFAR10(cifar10, "test")) == 20
    with pytest.raises(MissingDatasetError, match=r"data_batch_4 not found.*cifar-10-python\.tar\.gz.*CIFAR home page"):
        CIFAR10(cifar10, "train")


@pytest.mark.parametrize("fraction", [0, 0.001, 0.3, 0.9, 0.9999])
def test_a_truncated_file_is_an_error_that_names_it(cifar10, fraction):
    file = cifar10 / "cifar-10-batches-py/test_batch"
    os.truncate(file, int(fraction * file.stat().st_size))
    with pytest.raises(DatasetError, match=r"test_batch is damaged or not the published file"):
        CIFAR10(cifar10)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html>404 not found</html>", "damaged"),
        (pickle.dumps([1, 2]), "damaged"),
        (pickle.dumps({b"data": 3}), "KeyError: b'labels'"),
        (pickle.dumps({b"data": b"xxx", b"labels": [1]}), "not an array"),
    ],
)
def test_a_wrong_file_is_an_error(cifar10, content, reason):
    (cifar10 / "cifar-10-batches-py/test_batch").write_bytes(content)
    with pytest.raises(DatasetError, match=reason):
        CIFAR10(cifar10)


def test_wrong_counts_types_and_labels_are_errors(cifar10):
    file = cifar10 / "cifar-10-batches-py/test_batch"
    good = np.zeros((20, 3072), np.uint8)
    write_batch(file, good[:19], [0] * 19)
    with pytest.raises(DatasetError, match="expected 20 rows"):
        CIFAR10(cifar10)
    write_batch(file, good, [0] * 19)
    with pytest.raises(DatasetError, match="19"):
        CIFAR10(cifar10)
    write_batch(file, good, b"0" * 20)
    with pytest.raises(DatasetError, match="test_batch is damaged .*its labels not a list"):
        CIFAR10(cifar10)
    write_batch(file, good.astype(np.float32), [0] * 20)
    with pytest.raises(DatasetError, match="not unsigned bytes"):
        CIFAR10(cifar10)
    write_batch(file, good, [0] * 19 + [10])
    with pytest.raises(DatasetError, match="labels must be from 0 to 9, found 0 to 10"):
        CIFAR10(cifar10)


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_lack_of_memory_is_no_damage(cifar10, monkeypatch):
    def read(_):
        raise MemoryError

    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(MemoryError):
        CIFAR10(cifar10)


def test_code_hidden_in_a_pickle_does_not_run(cifar10, tmp_path):
    trace = tmp_path / "was-run"
    (cifar10 / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps({b"data": Touch(trace)}))
    with pytest.raises(DatasetError, match="which is not allowed and was not executed"):
        CIFAR10(cifar10)
    assert not trace.exists()


def test_an_unknown_split_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"one of train, val, train\+val, test; got 'validation'"):
        CIFAR10(tmp_path, "validation")


@pytest.fixture
def cifar10c(tmp_path) -> Path:
    """A full-size corruption file: it is sparse, so it costs no disk."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    images = np.lib.format.open_memmap(folder / "fog.npy", "w+", np.uint8, (50_000, 32, 32, 3))
    for severity in range(1, 6):
        images[(severity - 1) * 10_000 + 7] = severity
    images.flush()
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 10, 5).astype(np.uint8))
    return tmp_path


def test_a_published_file_holds_the_five_severities_one_after_the_other(cifar10c):
    for severity in range(1, 6):
        dataset = CIFAR10C(cifar10c, "fog", severity)
        assert len(dataset) == 10_000
        image, label = dataset[7]
        assert (image == severity).all() and label == 7
    assert isinstance(dataset.images, np.memmap)
    assert dataset.mean == CIFAR10.mean and dataset.n_classes == 10
    image[:] = 0  # a sample is a copy: writable, and the file keeps its pixels
    assert dataset.images[7].max() == 5
    assert len(open_dataset("cifar10-c:fog/2", cifar10c / "CIFAR-10-C")) == 10_000


def test_a_missing_published_set_or_corruption_says_so(cifar10c):
    with pytest.raises(MissingDatasetError, match=r"CIFAR-100-C\.tar"):
        CIFAR100C(cifar10c, "fog", 1)
    with pytest.raises(MissingDatasetError, match=r"snow\.npy not found; the folder has fog"):
        CIFAR10C(cifar10c, "snow", 1)
    with pytest.raises(ValueError, match="severity of CIFAR-10-C must be 1 to 5, got 0; severity 0 is the clean set"):
        CIFAR10C(cifar10c, "fog", 0)


def test_truncated_and_wrong_published_files_are_errors(cifar10c):
    file = cifar10c / "CIFAR-10-C/fog.npy"
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(DatasetError, match=r"fog\.npy is damaged"):
        CIFAR10C(cifar10c, "fog", 1)
    file.write_bytes(b"")
    with pytest.raises(DatasetError, match=r"fog\.npy is damaged"):
        CIFAR10C(cifar10c, "fog", 1)
    np.save(file, np.zeros((10_000, 3072), np.uint8))
    with pytest.raises(DatasetError, match=r"expected integers of shape \(50000, 32, 32, 3\)"):
        CIFAR10C(cifar10c, "fog", 1)
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match="damaged or not the published file"):
        CIFAR10C(cifar10c, "fog", 1)


def test_reading_cifar_needs_no_torch(cifar10):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from densecal.shift import CIFAR10\n"
        "CIFAR10.test_size = 20\n"
        f"assert CIFAR10({str(cifar10)!r}).batch([1, 2])[0].shape == (2, 32, 32, 3)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def real_cifar10() -> Path:
    around = Path(__file__).parents[3]
    for root in (os.environ.get("DENSECAL_CIFAR10"), around / "data/cifar10", Path.home() / ".cache/densecal/cifar10"):
        if root and (Path(root) / "cifar-10-batches-py/test_batch").exists():
            return Path(root)
    pytest.skip("needs CIFAR-10: set DENSECAL_CIFAR10 to the folder that holds cifar-10-batches-py")


def test_the_real_cifar10_has_the_published_counts_and_normalisation():
    root = real_cifar10()
    test, everything = CIFAR10(root), CIFAR10(root, "train+val")
    np.testing.assert_array_equal(np.bincount(test.labels), [1_000] * 10)
    np.testing.assert_array_equal(np.bincount(everything.labels), [5_000] * 10)
    assert test.classes[test[0][1]] == "cat"
    np.testing.assert_array_equal(test.images[0, 0, 0], [158, 112, 49])
    pixels = everything.images.reshape(-1, 3)[::7]
    np.testing.assert_allclose(pixels.mean(0) / 255, CIFAR10.mean, atol=2e-4)
    np.testing.assert_allclose(pixels.std(0) / 255, CIFAR10.std, atol=2e-4)
