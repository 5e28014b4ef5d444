"""ImageNet and ImageNet-C in exactly the published trees, with small or empty files in them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat, savemat

from densecal.shift import DatasetError, ImageNet, ImageNetC, MissingDatasetError, ResizeCrop
from densecal.shift.datasets.checks import seeded_split
from densecal.shift.datasets.imagenet import IMAGENET_WNIDS

VALIDATION_NUMBERS = set((seeded_split(50_000, 12_500)[0] + 1).tolist())


def image_name(number: int) -> str:
    return f"ILSVRC2012_val_{number:08d}.JPEG"


def write_image(path: Path, colour: int, size: tuple[int, int] = (300, 260)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour, colour, colour)).save(path, "JPEG")


def write_devkit(root: Path, label_of_number: np.ndarray) -> None:
    """Write the kit as published: class numbers in their own order, 860 inner nodes after the classes."""
    folder = root / "ILSVRC2012_devkit_t12/data"
    folder.mkdir(parents=True)
    order = np.random.RandomState(1).permutation(1000)  # class number c + 1 is label order[c]
    fields = ["ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height"]
    synsets = np.empty((1860, 1), dtype=[(field, object) for field in fields])
    for i in range(1860):
        inner = i >= 1000
        wnid = f"n9{i:07d}" if inner else IMAGENET_WNIDS[order[i]]
        children = np.array([[1.0, 2.0]]) if inner else np.zeros((1, 0))
        synsets[i, 0] = (float(i + 1), wnid, "words", "gloss", 2.0 if inner else 0.0, children, float(inner))
    savemat(folder / "meta.mat", {"synsets": synsets})
    number_of_label = np.argsort(order) + 1
    lines = "".join(f"{number}\n" for number in number_of_label[label_of_number])
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text(lines)


@pytest.fixture(scope="module")
def full_flat(tmp_path_factory) -> Iterator[Path]:
    """All 50,000 flat validation images, empty files but for the first."""
    root = tmp_path_factory.mktemp("imagenet")
    (root / "val").mkdir()
    for number in range(2, 50_001):
        (root / "val" / image_name(number)).touch()
    write_image(root / "val" / image_name(1), 1)
    write_devkit(root, np.arange(50_000) * 7 % 1000)
    yield root
    shutil.rmtree(root)  # do not leave 50,000 files in pytest's temporary folders


def test_the_official_validation_set_splits_into_12500_and_37500(full_flat):
    val, test, both = (ImageNet(full_flat, split) for split in ("val", "test", "val+test"))
    assert (len(val), len(test), len(both)) == (12_500, 37_500, 50_000)
    assert not set(val.paths) & set(test.paths)
    assert {int(Path(path).stem[-8:]) for path in val.paths} == VALIDATION_NUMBERS
    assert both.n_classes == 1000
    # Frozen, so that results are reproducible across releases.
    assert sorted(VALIDATION_NUMBERS)[:5] == [2, 4, 7, 15, 18]
    assert sum(VALIDATION_NUMBERS) == 311_945_033 + 12_500


def test_the_kit_s_class_numbers_become_positions_of_wordnet_ids(full_flat):
    both = ImageNet(full_flat, "val+test")
    np.testing.assert_array_equal(both.labels, np.arange(50_000) * 7 % 1000)


def test_an_empty_image_file_is_an_error_that_names_it(full_flat):
    both = ImageNet(full_flat, "val+test")
    image, label = both[0]
    assert image.shape == (224, 224, 3) and label == 0
    with pytest.raises(DatasetError, match=r"ILSVRC2012_val_00000002\.JPEG cannot be read as an image"):
        both[1]


@pytest.fixture
def folders(tmp_path) -> Path:
    """Six validation images in class folders, number n of brightness 10 n."""
    for number in range(1, 7):
        write_image(tmp_path / "val" / IMAGENET_WNIDS[100 - number] / image_name(number), 10 * number)
    return tmp_path


def test_class_folders_give_official_order_and_labels_even_when_most_are_missing(folders):
    dataset = ImageNet(folders, "val+test", complete=False)
    assert dataset.labels.tolist() == [99, 98, 97, 96, 95, 94]
    assert [int(dataset[i][0].mean()) for i in range(6)] == [10, 20, 30, 40, 50, 60]
    val, test = (ImageNet(folders, split, complete=False) for split in ("val", "test"))
    assert val.labels.tolist() == [98, 96]  # of the numbers 1 to 6, the seeded split has 2 and 4 in "val"
    assert test.labels.tolist() == [99, 97, 95, 94]


def test_both_layouts_and_imagenet_c_have_the_same_images_in_the_same_order(folders, tmp_path):
    flat = tmp_path / "flat"
    (flat / "val").mkdir(parents=True)
    for path in (folders / "val").rglob("*.JPEG"):
        shutil.copy(path, flat / "val" / path.name)
    labels = np.zeros(50_000, np.int64)
    labels[:6] = [99, 98, 97, 96, 95, 94]
    write_devkit(flat, labels)
    shutil.copytree(folders / "val", tmp_path / "c/fog/3")
    shutil.copytree(folders / "val", tmp_path / "c/weather/snow/1")
    reference = ImageNet(folders, "test", complete=False)
    corrupted = reference.published(tmp_path / "c", "fog", 3)
    grouped = ImageNetC(tmp_path / "c", "snow", 1, complete=False)
    for other in (ImageNet(flat, "test", complete=False), corrupted, grouped):
        np.testing.assert_array_equal(other.labels, reference.labels)
        assert [Path(path).name for path in other.paths] == [Path(path).name for path in reference.paths]
    assert corrupted.name == "ImageNet-C/fog-3" and corrupted[0][0].shape == (224, 224, 3)


def test_one_percent_of_train_is_drawn_with_the_fixed_seed(tmp_path):
    for label in (0, 999):
        (tmp_path / "train" / IMAGENET_WNIDS[label]).mkdir(parents=True)
        for i in range(150):
            (tmp_path / "train" / IMAGENET_WNIDS[label] / f"{IMAGENET_WNIDS[label]}_{i}.JPEG").touch()
    everything = ImageNet(tmp_path, "train", complete=False)
    part = ImageNet(tmp_path, "train-1%", complete=False)
    assert (len(everything), len(part)) == (300, 3)
    assert set(part.paths) < set(everything.paths)
    assert part.paths == ImageNet(tmp_path, "train-1%", complete=False).paths
    assert set(everything.labels.tolist()) == {0, 999}
    with pytest.raises(DatasetError, match=r"has 300 of the 1,281,167 images"):
        ImageNet(tmp_path, "train")


def test_missing_parts_say_what_to_get_and_where_it_must_lie(tmp_path):
    with pytest.raises(MissingDatasetError, match=r"ILSVRC2012_img_val\.tar and ILSVRC2012_devkit_t12\.tar\.gz"):
        ImageNet(tmp_path)
    with pytest.raises(MissingDatasetError, match=r"ILSVRC2012_img_train\.tar"):
        ImageNet(tmp_path, "train")
    with pytest.raises(MissingDatasetError, match=r"weather\.tar.*fog/3"):
        ImageNetC(tmp_path, "fog", 3)
    write_image(tmp_path / "val" / image_name(1), 0)
    with pytest.raises(MissingDatasetError, match=r"meta\.mat not found.*devkit_t12.*from the ImageNet home page"):
        ImageNet(tmp_path)


def test_an_incomplete_set_is_refused_unless_asked_for(folders):
    with pytest.raises(DatasetError, match=r"has 6 of the 50,000 images.*complete=False"):
        ImageNet(folders)


def test_wrong_trees_are_errors(folders):
    write_image(folders / "val" / IMAGENET_WNIDS[3] / image_name(1), 0)
    with pytest.raises(DatasetError, match="number 1 more than once"):
        ImageNet(folders, complete=False)
    (folders / "val" / IMAGENET_WNIDS[3] / image_name(1)).rename(folders / "val" / IMAGENET_WNIDS[3] / "cat.JPEG")
    with pytest.raises(DatasetError, match=r"cat\.JPEG: validation images must keep their official names"):
        ImageNet(folders, complete=False)
    (folders / "val" / IMAGENET_WNIDS[3] / "cat.JPEG").rename(folders / "val" / IMAGENET_WNIDS[3] / image_name(50_001))
    with pytest.raises(DatasetError, match="ILSVRC2012_val_00000001.JPEG to ILSVRC2012_val_00050000.JPEG"):
        ImageNet(folders, complete=False)
    (folders / "val" / "cats").mkdir()
    with pytest.raises(DatasetError, match=r"found cats.*ImageFolder"):
        ImageNet(folders, complete=False)


def test_a_damaged_kit_is_an_error(full_flat, tmp_path):
    shutil.copytree(full_flat / "ILSVRC2012_devkit_t12", tmp_path / "ILSVRC2012_devkit_t12")
    write_image(tmp_path / "val" / image_name(1), 0)
    truth = tmp_path / "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
    lines = truth.read_text().splitlines()
    for damaged, message in [
        (lines[:-1], "ground_truth.txt is damaged .*expected 50,000 class numbers, found 49,999"),
        ([*lines[:-1], "1001"], "ground_truth.txt is damaged .*KeyError: 1001"),
        ([*lines[:-1], "cat"], "ground_truth.txt is damaged .*'cat'"),
    ]:
        truth.write_text("\n".join(damaged))
        with pytest.raises(DatasetError, match=message):
            ImageNet(tmp_path, complete=False)
    truth.write_text("\n".join(lines))
    meta = tmp_path / "ILSVRC2012_devkit_t12/data/meta.mat"
    synsets = loadmat(meta)["synsets"]
    synsets["WNID"][1] = synsets["WNID"][0]
    savemat(meta, {"synsets": synsets})
    with pytest.raises(DatasetError, match=r"meta\.mat is damaged .*expected 1,000 classes, found 999"):
        ImageNet(tmp_path, complete=False)
    meta.write_bytes(meta.read_bytes()[:5000])
    with pytest.raises(DatasetError, match=r"meta\.mat is damaged or not the published file"):
        ImageNet(tmp_path, complete=False)


def test_a_truncated_image_is_an_error_that_names_it(folders):
    path = folders / "val" / IMAGENET_WNIDS[99] / image_name(1)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DatasetError, match=r"val_00000001\.JPEG cannot be read as an image.*truncated"):
        ImageNet(folders, "val+test", complete=False)[0]


def test_corrupted_images_smaller_than_224_are_an_error(tmp_path):
    write_image(tmp_path / "fog/1" / IMAGENET_WNIDS[0] / image_name(1), 0, size=(64, 64))
    with pytest.raises(DatasetError, match="64x64 is too small to crop 224x224"):
        ImageNetC(tmp_path, "fog", 1, complete=False)[0]


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (257, 999), (256, 256), (100, 80), (333, 334)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resize_crop_equals_torchvision_s_evaluation_transform(size, interpolation):
    transforms = pytest.importorskip("torchvision.transforms")
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    mode = transforms.InterpolationMode(interpolation)
    reference = transforms.Compose([transforms.Resize(256, mode), transforms.CenterCrop(224)])(image)
    ours = ResizeCrop(256, 224, interpolation)(image)
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(reference))


def test_real_validation_photographs_come_out_as_torchvision_gives_them(tmp_path):
    transforms = pytest.importorskip("torchvision.transforms")
    source = Path(__file__).parents[3] / "shared/data/imagenet-val-1k"
    if not source.is_dir():
        pytest.skip("needs the ImageNet photographs in ../shared/data/imagenet-val-1k")
    for number, label in enumerate((1, 500, 999), start=1):
        target = tmp_path / "val" / IMAGENET_WNIDS[label] / image_name(number)
        target.parent.mkdir(parents=True)
        shutil.copy(source / f"{label:04d}.jpg", target)
    dataset = ImageNet(tmp_path, "val+test", complete=False)
    assert dataset.labels.tolist() == [1, 500, 999]
    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()]
    reference = transforms.Compose([*steps, transforms.Normalize(dataset.mean, dataset.std)])
    with Image.open(source / "0500.jpg") as photograph:
        expected = reference(photograph.convert("RGB"))
    np.testing.assert_allclose(dataset.as_torch()[1][0].numpy(), expected.numpy(), atol=1e-5)
