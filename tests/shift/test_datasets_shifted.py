"""Data sets under shift: every sample is reproducible on its own, and corrupted in batches."""

import numpy as np
import pytest
from PIL import Image

from densecal.shift import (
    CIFAR10,
    CORRUPTIONS,
    ImageArrays,
    ImageFolder,
    MissingDatasetError,
    Perturbed,
    ResizeCrop,
    Shifted,
    shifted_sets,
)

torch = pytest.importorskip("torch")

from densecal.shift import corrupt  # noqa: E402


@pytest.fixture
def clean() -> ImageArrays:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    return ImageArrays(pixels, np.arange(12) % 3, ("a", "b", "c"), name="noise", mean=(0.4, 0.5, 0.6))


def test_a_shifted_sample_is_the_same_alone_in_any_batch_and_in_any_order(clean):
    shifted = Shifted(clean, "gaussian_noise", 3)
    whole, labels = shifted.batch(np.arange(12))
    expected = corrupt(clean.images, "gaussian_noise", 3, 0)
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(labels, clean.labels)
    np.testing.assert_array_equal(shifted[7][0], whole[7])
    np.testing.assert_array_equal(shifted[-5][0], whole[7])
    np.testing.assert_array_equal(shifted.batch([11, 2, 7])[0], whole[[11, 2, 7]])
    np.testing.assert_array_equal([image for image, _ in shifted.__getitems__([3, 1])], whole[[3, 1]])
    np.testing.assert_array_equal(shifted.subset([9, 4])[1][0], whole[4])
    assert shifted.batch([])[0].shape == (0, 32, 32, 3)


def test_seed_corruption_severity_and_index_each_matter(clean):
    same = ImageArrays(np.repeat(clean.images[:1], 2, axis=0), [0, 0])
    reference = Shifted(same, "gaussian_noise", 3)
    assert (reference[0][0] != reference[1][0]).any()
    for other in (
        Shifted(same, "gaussian_noise", 3, seed=1),
        Shifted(same, "speckle_noise", 3),
        Shifted(same, "gaussian_noise", 4),
    ):
        assert (other[0][0] != reference[0][0]).any()


def test_severity_zero_is_the_image_itself(clean):
    np.testing.assert_array_equal(Shifted(clean, "fog", 0).batch(range(12))[0], clean.images)


def test_a_shifted_set_keeps_labels_classes_and_normalisation(clean):
    shifted = Shifted(clean, "contrast", 5)
    assert (len(shifted), shifted.classes, shifted.mean, shifted.std) == (12, clean.classes, clean.mean, clean.std)
    assert shifted.name == "noise/contrast-5"
    np.testing.assert_array_equal(shifted.labels, clean.labels)


def test_torch_gets_the_corrupted_images_normalised_whatever_the_batch_size(clean):
    shifted = Shifted(clean, "gaussian_noise", 2)
    mean, std = (np.array(values, np.float32) for values in (clean.mean, clean.std))
    expected = (shifted.batch(range(12))[0].astype(np.float32) / 255 - mean) / std
    for batch_size in (1, 5, 12):
        loader = torch.utils.data.DataLoader(shifted.as_torch(), batch_size=batch_size)
        images = torch.cat([images for images, _ in loader])
        np.testing.assert_allclose(images.numpy(), expected.transpose(0, 3, 1, 2), atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_device_corrupts_there_and_keeps_the_tensors_there(clean):
    shifted = Shifted(clean, "gaussian_noise", 2, device="cuda")
    images, _ = next(iter(torch.utils.data.DataLoader(shifted.as_torch(), batch_size=12)))
    assert images.is_cuda
    on_cpu = Shifted(clean, "gaussian_noise", 2).batch(range(12))[0].astype(int)
    assert np.abs(shifted.batch(range(12))[0] - on_cpu).max() <= 1


def test_a_loader_corrupts_once_a_batch(clean, monkeypatch):
    calls = []

    def counting(images, *args, index, **options):
        calls.append(index.tolist())
        return images

    monkeypatch.setattr("densecal.shift.corruptions.apply.corrupt", counting)
    loader = torch.utils.data.DataLoader(Shifted(clean, "fog", 1).as_torch(), batch_size=5)
    assert sum(len(labels) for _, labels in loader) == 12
    assert calls == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]


def test_images_of_different_sizes_are_shifted_one_by_one(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "cat").mkdir()
    for i, size in enumerate([(32, 40), (48, 32), (32, 40)]):
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(tmp_path / f"cat/{i}.png")
    shifted = Shifted(ImageFolder(tmp_path), "gaussian_noise", 1)
    together = shifted.__getitems__([0, 1, 2])
    assert [image.shape for image, _ in together] == [(32, 40, 3), (48, 32, 3), (32, 40, 3)]
    np.testing.assert_array_equal(together[2][0], shifted[2][0])
    cut = Shifted(ImageFolder(tmp_path, transform=ResizeCrop(None, 32)), "gaussian_noise", 1)
    assert cut.batch([0, 1, 2])[0].shape == (3, 32, 32, 3)


def test_wrong_corruptions_severities_and_data_sets_are_named(clean):
    with pytest.raises(ValueError, match=r"one of gaussian_noise, .*; got 'smog'"):
        Shifted(clean, "smog", 1)
    with pytest.raises(ValueError, match="severity must be an integer from 0 .* to 5, got 6"):
        Shifted(clean, "fog", 6)
    with pytest.raises(TypeError, match="ndarray; wrap arrays with ImageArrays"):
        Shifted(clean.images, "fog", 1)


def test_perturbed_samples_are_the_same_alone_and_in_any_batch(clean):
    perturbed = Perturbed(clean, seed=3)
    whole, labels = perturbed.batch(range(12))
    assert whole.shape == clean.images.shape and (whole != clean.images).any()
    np.testing.assert_array_equal(labels, clean.labels)
    np.testing.assert_array_equal(perturbed[5][0], whole[5])
    np.testing.assert_array_equal(perturbed.batch([8, 5])[0], whole[[8, 5]])
    assert (Perturbed(clean, seed=4).batch(range(12))[0] != whole).any()


class Unreadable(ImageArrays):
    def _read(self, positions):
        raise RuntimeError("was read")


def test_the_shifted_sets_are_18_corruptions_at_5_severities_and_read_nothing_yet(clean):
    listed = list(shifted_sets(Unreadable(clean.images, clean.labels), seed=7))
    assert len(listed) == 90
    assert {(each.corruption, each.severity) for each in listed} == {(c, s) for c in CORRUPTIONS for s in range(1, 6)}
    fog = next(each for each in listed if each.name == "arrays/fog-3")
    assert (fog.corruption, fog.severity, fog.seed) == ("fog", 3, 7)
    with pytest.raises(RuntimeError, match="was read"):
        fog[0]


def test_the_shifted_sets_can_be_the_published_files(clean, tmp_path, monkeypatch):
    monkeypatch.setattr(CIFAR10, "test_size", 12)
    (tmp_path / "CIFAR-10-C").mkdir()
    published = np.random.default_rng(1).integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    for corruption in CORRUPTIONS:
        np.save(tmp_path / f"CIFAR-10-C/{corruption}.npy", published if corruption == "fog" else published + 1)
    np.save(tmp_path / "CIFAR-10-C/labels.npy", np.tile(clean.labels, 5))
    test = CIFAR10.__new__(CIFAR10)
    ImageArrays.__init__(test, clean.images, clean.labels, name="CIFAR-10", split="test")
    listed = {(each.corruption, each.severity): each for each in shifted_sets(test, published=tmp_path)}
    assert len(listed) == 90
    np.testing.assert_array_equal(listed["fog", 2].images, published[12:24])
    (tmp_path / "CIFAR-10-C/shot_noise.npy").unlink()
    opened = shifted_sets(test, published=tmp_path)  # a file is looked for when the iteration reaches it
    assert [next(opened).severity for _ in range(5)] == [1, 2, 3, 4, 5]
    with pytest.raises(MissingDatasetError, match=r"shot_noise\.npy not found"):
        next(opened)
    with pytest.raises(ValueError, match="no corrupted copies of noise are published"):
        shifted_sets(clean, published=tmp_path)
