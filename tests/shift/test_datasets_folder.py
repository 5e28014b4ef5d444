"""Trees of images with one folder per class, and arrays."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from densecal.shift import (
    DATASETS,
    DatasetError,
    ImageArrays,
    ImageFolder,
    MissingDatasetError,
    ResizeCrop,
    open_dataset,
)


def write_tree(root: Path, sizes=((8, 8), (8, 8))) -> Path:
    rng = np.random.default_rng(0)
    for name, size in zip(("dog", "cat"), sizes, strict=True):
        for i in range(3):
            path = root / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)
    return root


def test_a_folder_numbers_classes_and_images_as_torchvision_does(tmp_path):
    datasets = pytest.importorskip("torchvision.datasets")
    write_tree(tmp_path)
    (tmp_path / "dog/deeper").mkdir()
    Image.new("L", (8, 8), 9).save(tmp_path / "dog/deeper/grey.JPG")
    (tmp_path / "dog/notes.txt").write_text("no image")
    ours, reference = ImageFolder(tmp_path), datasets.ImageFolder(tmp_path)
    assert list(ours.classes) == reference.classes
    assert sorted(zip(ours.paths, ours.labels.tolist(), strict=True)) == sorted(reference.samples)
    for path, label in reference.samples:
        i = ours.paths.index(path)
        np.testing.assert_array_equal(ours[i][0], np.asarray(reference.loader(path)))
        assert ours[i][1] == label


def test_a_tree_of_splits_needs_to_know_which(tmp_path):
    write_tree(tmp_path / "train")
    write_tree(tmp_path / "test")
    assert len(ImageFolder(tmp_path, "train")) == 6
    assert ImageFolder(tmp_path, "test").splits == ("train", "test")
    with pytest.raises(ValueError, match="pass split= one of train, test"):
        ImageFolder(tmp_path)
    with pytest.raises(ValueError, match="must be one of train, test; got 'val'"):
        ImageFolder(tmp_path, "val")
    with pytest.raises(ValueError, match="instead of one folder per split"):
        ImageFolder(tmp_path / "train", "train")


def test_missing_and_empty_folders_say_how_images_must_lie(tmp_path):
    with pytest.raises(MissingDatasetError, match=r"is not a folder.*CLASS/image\.png"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="has no class folders"):
        ImageFolder(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(DatasetError, match="no images in cat"):
        ImageFolder(tmp_path)


def test_images_of_different_sizes_make_no_batch_until_a_transform_makes_them_one_size(tmp_path):
    write_tree(tmp_path, sizes=((8, 8), (12, 20)))
    with pytest.raises(DatasetError, match=r"different sizes \(8x8, 12x20, ...\).*ResizeCrop"):
        ImageFolder(tmp_path).batch([0, 5])
    images, labels = ImageFolder(tmp_path, transform=ResizeCrop(10, 8)).batch([0, 5])
    assert images.shape == (2, 8, 8, 3) and labels.tolist() == [0, 1]


def test_a_transform_that_normalises_is_refused(tmp_path):
    write_tree(tmp_path)
    dataset = ImageFolder(tmp_path, transform=lambda image: np.asarray(image) / 255)
    with pytest.raises(DatasetError, match="normalise with as_torch instead"):
        dataset[0]


def test_a_damaged_image_is_named(tmp_path):
    write_tree(tmp_path)
    (tmp_path / "cat/1.png").write_bytes(b"no image at all")
    with pytest.raises(DatasetError, match=r"cat/1\.png cannot be read as an image"):
        ImageFolder(tmp_path).batch([0, 1])
    (tmp_path / "cat/1.png").unlink()
    (tmp_path / "cat/0.png").unlink()
    dataset = ImageFolder(tmp_path)
    (tmp_path / "cat/2.png").unlink()
    with pytest.raises(DatasetError, match=r"2\.png was removed"):
        dataset[0]


def test_data_sets_open_by_name(tmp_path, monkeypatch):
    write_tree(tmp_path)
    assert len(open_dataset(f"folder:{tmp_path}", mean=(0, 0, 0))) == 6
    monkeypatch.setenv("DENSECAL_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(MissingDatasetError, match="elsewhere"):
        open_dataset("cifar10", split="val")
    with pytest.raises(ValueError, match="unknown data set 'svhn'; choose one of cifar10"):
        open_dataset("svhn")
    with pytest.raises(ValueError, match="folder:PATH"):
        open_dataset("folder")
    with pytest.raises(ValueError, match="such as cifar10-c:fog/3"):
        open_dataset("cifar10-c:fog")
    with pytest.raises(ValueError, match="takes nothing after a colon"):
        open_dataset("cifar10:data")
    assert set(DATASETS) >= {"cifar10", "cifar100", "imagenet", "folder"}


def test_arrays_are_checked_at_the_door():
    with pytest.raises(ValueError, match=r"uint8 array of shape \(N, H, W, 3\), got float64.*transpose"):
        ImageArrays(np.zeros((2, 3, 8, 8)), [0, 1])
    images = np.zeros((2, 8, 8, 3), np.uint8)
    with pytest.raises(DatasetError, match="expected 2 integer labels"):
        ImageArrays(images, [0])
    with pytest.raises(DatasetError, match="labels must be from 0 to 1, found 0 to 2"):
        ImageArrays(images, [0, 2], ("a", "b"))
    with pytest.raises(ValueError, match="mean must be three numbers"):
        ImageArrays(images, [0, 1], mean=(0.5,))


def test_indices_out_of_range_or_of_another_kind_are_refused():
    dataset = ImageArrays(np.arange(4 * 12, dtype=np.uint8).reshape(4, 2, 2, 3), [0, 1, 2, 3])
    assert dataset[-1][1] == 3
    assert dataset[np.int64(2)][1] == 2
    assert [label for _, label in dataset] == [0, 1, 2, 3]  # iteration ends at IndexError
    with pytest.raises(IndexError, match="index 4 is out of range: arrays has 4 images"):
        dataset[4]
    with pytest.raises(IndexError, match="index -5"):
        dataset.batch([0, -5])
    with pytest.raises(TypeError, match="sequence of integers"):
        dataset.batch([0.5])
    assert dataset.batch([])[1].shape == (0,)


def test_a_subset_keeps_order_labels_and_classes():
    dataset = ImageArrays(np.arange(4 * 12, dtype=np.uint8).reshape(4, 2, 2, 3), [0, 1, 2, 3])
    part = dataset.subset([3, 1]).subset([1])
    assert (len(part), part.labels.tolist(), part.n_classes) == (1, [1], 4)
    np.testing.assert_array_equal(part[0][0], dataset.images[1])
    np.testing.assert_array_equal(part.batch([0])[0], dataset.images[1:2])


def test_torch_gets_what_torchvision_s_to_tensor_and_normalize_give():
    torch = pytest.importorskip("torch")
    transforms = pytest.importorskip("torchvision.transforms")
    pixels = np.random.default_rng(0).integers(0, 256, (10, 9, 7, 3), dtype=np.uint8)
    dataset = ImageArrays(pixels, np.arange(10), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1))
    reference = transforms.Compose([transforms.ToTensor(), transforms.Normalize(dataset.mean, dataset.std)])
    loader = torch.utils.data.DataLoader(dataset.as_torch(), batch_size=4)
    images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
    assert images.dtype == torch.float32 and labels.tolist() == list(range(10))
    torch.testing.assert_close(images, torch.stack([reference(image) for image in pixels]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(dataset.as_torch()[3][0], images[3])
    own = dataset.as_torch(to_tensor=transforms.ToTensor())
    torch.testing.assert_close(own[3][0], transforms.ToTensor()(pixels[3]))
    with pytest.raises(ValueError, match="not both"):
        dataset.as_torch(to_tensor=transforms.ToTensor(), mean=(0, 0, 0))


def test_loader_workers_read_the_same(tmp_path):
    torch = pytest.importorskip("torch")
    dataset = ImageFolder(write_tree(tmp_path)).as_torch()
    alone = [labels.tolist() for _, labels in torch.utils.data.DataLoader(dataset, batch_size=4)]
    workers = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=1)
    assert [labels.tolist() for _, labels in workers] == alone
