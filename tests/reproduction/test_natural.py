"""Natural shift: from vectors, tables and digit files to a judged table and its page."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from densecal.shift import table_domains
from reproduction.measuring.measurements import CLEAN, VAL, Measurements
from reproduction.natural.digits import read_digits
from reproduction.natural.estimates import section
from reproduction.natural.figure import picture
from reproduction.natural.judge import METHODS, judge_folder
from reproduction.natural.page import by_pair, summary
from reproduction.natural.photographs import read_photographs
from reproduction.natural.tabular import electricity
from reproduction.natural.vector_network import Vectors, measure_vectors, split_rows, train_network


def domain(seed: int, shift: float = 0.0, count: int = 300) -> Vectors:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, count)
    inputs = np.eye(5, dtype=np.float32)[labels] * 2 + draw.normal(0, 0.7 + shift, (count, 5)).astype(np.float32)
    return Vectors(inputs + np.float32(shift), labels)


@pytest.fixture
def measured(monkeypatch) -> Measurements:
    monkeypatch.setattr("reproduction.natural.judge.N_RESAMPLES", 20)
    train, val = domain(0), domain(1)
    network = train_network(train, 3, seed=0, hidden=(16,), epochs=40)
    sets = {VAL: val, CLEAN: domain(2), "far": domain(3, 1.0), "ood-other": domain(4, 3.0)}
    perturbed = {
        f"perturbed-{name}": Vectors(np.array(copy, np.float32), val.labels)
        for name, copy in table_domains(val.inputs).items()
    }
    return measure_vectors("toy-near-0", network, train, sets | perturbed)


@pytest.fixture
def folder(measured, tmp_path):
    measured.save(tmp_path / measured.classifier)
    return tmp_path


def test_every_method_is_judged_on_source_and_target(folder):
    table = judge_folder(folder, "toy")[0]
    assert set(table["method"]) == set(METHODS)
    assert list(dict.fromkeys(table["target"])) == ["near", "far"]
    ours = table.set_index(["target", "method"])
    assert ours.loc[("far", "oracle"), "ece"] < ours.loc[("far", "uncalibrated"), "ece"] + 0.02
    assert (ours.xs("ts", level="method")["ece minus ts"] == 0).all()
    assert ours.groupby("target")["accuracy"].nunique().eq(1).all()


def test_measurements_go_through_files_to_the_page(folder):
    table, outside, estimates = judge_folder(folder, "toy")
    assert set(outside["target"]) == {"other"}
    assert "default" in set(outside["method"])
    page = summary(table, [outside])
    assert len(picture(by_pair(table)).axes) == 1
    assert "over 1 pairs" in page and "`adapted`" in page and "| toy | near | far |" in page
    with pytest.raises(FileNotFoundError, match="no measurements of pacs"):
        judge_folder(folder, "pacs")
    assert list(estimates["target"]) == ["near", "far"]
    assert ((estimates["low"] <= estimates["densecal"]) & (estimates["densecal"] <= estimates["high"])).all()
    assert "1 of 1 |" in section(estimates) or "0 of 1 |" in section(estimates)


def test_parts_of_a_split_are_disjoint_and_complete():
    parts = split_rows(10, 0, 0.2, 0.3)
    assert [len(part) for part in parts] == [2, 3, 5]
    assert sorted(np.concatenate(parts)) == list(range(10))


def test_electricity_is_split_by_time(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    columns = ["period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
    table = pd.DataFrame(draw.uniform(size=(600, 6)), columns=columns)
    table["class"] = np.repeat([0, 1] * 3, 100)
    table.to_csv(tmp_path / "elec.csv", index=False)
    (measured,) = electricity(tmp_path, seed=0)
    assert measured.classifier == "electricity-part1-0"
    assert (measured.labels("part2") == 1).all() and (measured.labels("part3") == 0).all()
    assert len(measured.sets[VAL]) == len(measured.sets[CLEAN]) == 20


def test_digits_are_read_from_their_files_and_kept(tmp_path, monkeypatch):
    from scipy.io import savemat

    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/train-images-idx3-ubyte").write_bytes(bytes(16) + bytes([9]) * 784 * 3)
    (tmp_path / "mnist/train-labels-idx1-ubyte").write_bytes(bytes(8) + bytes([5, 0, 4]))
    columns = np.arange(256 * 2 * 10, dtype=np.uint32).reshape(256, 2, 10) % 251
    savemat(tmp_path / "usps_all.mat", {"data": columns.astype(np.uint8)})
    (tmp_path / "svhn/images/train").mkdir(parents=True)
    (tmp_path / "svhn/data").mkdir()
    number = np.zeros((40, 60, 3), np.uint8)
    number[10:30, 35:45] = 200
    Image.fromarray(number).save(tmp_path / "svhn/images/train/1.png")
    (tmp_path / "svhn/data/train_labels.csv").write_text(
        "filename,width,height,class,xmin,ymin,xmax,ymax\n1.png,60,40,10,35,10,45,30\n1.png,60,40,3,5,10,15,30\n"
    )
    digits = read_digits(tmp_path)
    assert digits["mnist"].labels.tolist() == [5, 0, 4]
    assert digits["usps"].labels.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 0, 0]
    assert digits["svhn"].labels.tolist() == [0, 3]
    assert digits["svhn"][0][0][16, 16].tolist() == [200] * 3 and digits["svhn"][1][0].max() == 0
    assert all(image.shape == (32, 32, 3) for dataset in digits.values() for image, _ in dataset)
    assert (tmp_path / "digits.npz").exists()


def test_photographs_have_the_classes_of_cifar10(tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.natural.photographs.MOST_PER_FOLDER", 2)
    folders = {
        "tiny-imagenet-200/train/n02123045/images": 3,  # tabby cats
        "tiny-imagenet-200/train/n04487081/images": 3,  # trolleybuses are neither cars nor trucks
        "imagenet/404": 1,  # airliners
        "imagenet/268": 1,  # Mexican hairless dogs
    }
    for folder, count in folders.items():
        (tmp_path / folder).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (80, 64), (250, 10 * number, 0)).save(tmp_path / folder / f"{number}.JPEG")
    sets = read_photographs(tmp_path)
    assert sets["tiny-imagenet"].labels.tolist() == [3, 3]
    assert sets["imagenet"].labels.tolist() == [0, 5]
    assert sets["tiny-imagenet"].batch(range(2))[0].shape == (2, 32, 32, 3)
    for folder in folders:
        (tmp_path / folder).rename(tmp_path / folder.replace("/", "-"))
    with pytest.raises(FileNotFoundError, match="none of the folders of tiny-imagenet"):
        read_photographs(tmp_path)
