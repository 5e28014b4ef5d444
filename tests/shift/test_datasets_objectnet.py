"""ObjectNet's published tree: 313 class folders, images with a red border, two mapping files."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from densecal.shift import DatasetError, MissingDatasetError, ObjectNet, open_dataset

FOLDERS = [f"thing_{i:03d}" for i in range(313)]
OVERLAP = FOLDERS[100:213]


def label_of(folder: str) -> str:
    return folder.replace("_", " ").capitalize()


@pytest.fixture(scope="module")
def objectnet(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("objectnet")
    framed = np.zeros((64, 48, 3), np.uint8)
    framed[..., 0] = 255
    framed[2:-2, 2:-2] = 77
    for folder in FOLDERS:
        path = root / "objectnet-1.0/images" / folder / "0a1b2c.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(framed).save(path)
    mappings = root / "objectnet-1.0/mappings"
    mappings.mkdir()
    write_mappings(mappings)
    return root


def write_mappings(folder: Path) -> None:
    (folder / "folder_to_objectnet_label.json").write_text(json.dumps({name: label_of(name) for name in FOLDERS}))
    to_imagenet = {label_of(name): "analog clock; digital clock" for name in OVERLAP}
    (folder / "objectnet_to_imagenet_1k.json").write_text(json.dumps(to_imagenet))


def test_the_200_classes_outside_imagenet_are_the_default_split(objectnet):
    ood, overlap, everything = (ObjectNet(objectnet, split) for split in ("ood", "overlap", "all"))
    assert (ood.n_classes, overlap.n_classes, everything.n_classes) == (200, 113, 313)
    assert not set(ood.classes) & set(OVERLAP)
    assert overlap.classes == tuple(OVERLAP)
    assert ObjectNet(objectnet / "objectnet-1.0").classes == ood.classes
    assert open_dataset("objectnet", objectnet).paths == ood.paths
    np.testing.assert_array_equal(ood.labels, np.arange(200))


def test_the_red_frame_is_cut_off(objectnet):
    image, _ = ObjectNet(objectnet)[0]
    assert image.shape == (224, 224, 3)
    assert (image == 77).all()


def test_a_missing_set_or_mapping_says_what_to_get(objectnet, tmp_path):
    with pytest.raises(MissingDatasetError, match=r"objectnet-1\.0\.zip from the ObjectNet home page"):
        ObjectNet(tmp_path)
    (tmp_path / "images").mkdir()
    with pytest.raises(MissingDatasetError, match=r"folder_to_objectnet_label\.json not found.*objectnet-1\.0\.zip"):
        ObjectNet(tmp_path)


def test_incomplete_and_wrong_trees_are_errors(tmp_path):
    (tmp_path / "mappings").mkdir()
    write_mappings(tmp_path / "mappings")
    for name in FOLDERS[:3]:
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / name / "x.png")
    with pytest.raises(DatasetError, match="has 3 of the 200 classes of the split 'ood'"):
        ObjectNet(tmp_path)
    assert ObjectNet(tmp_path, complete=False).classes == tuple(FOLDERS[:3])
    with pytest.raises(DatasetError, match="no classes of the split 'overlap'"):
        ObjectNet(tmp_path, "overlap", complete=False)
    (tmp_path / "images" / FOLDERS[0] / "x.png").unlink()
    with pytest.raises(DatasetError, match="thing_000 has no images"):
        ObjectNet(tmp_path, complete=False)
    (tmp_path / "images" / "cats").mkdir()
    with pytest.raises(DatasetError, match=r"cats is not a folder of ObjectNet 1\.0"):
        ObjectNet(tmp_path, complete=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"Thing', "damaged"),
        ("[1, 2]", "expected a JSON object with string values"),
        ('{"Thing 100": null}', "expected a JSON object with string values"),
        ('{"No such thing": "clock"}', "do not match: no folder has the label 'No such thing'"),
    ],
)
def test_damaged_mappings_are_errors(tmp_path, content, message):
    (tmp_path / "images").mkdir()
    (tmp_path / "mappings").mkdir()
    write_mappings(tmp_path / "mappings")
    (tmp_path / "mappings/objectnet_to_imagenet_1k.json").write_text(content)
    with pytest.raises(DatasetError, match=message):
        ObjectNet(tmp_path)


def test_a_folder_with_several_labels_is_an_error(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "mappings").mkdir()
    write_mappings(tmp_path / "mappings")
    (tmp_path / "mappings/folder_to_objectnet_label.json").write_text('{"chair": ["Chair"]}')
    with pytest.raises(DatasetError, match=r"folder_to_objectnet_label\.json.*string values"):
        ObjectNet(tmp_path)
