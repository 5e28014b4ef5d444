"""No file is read twice in one role, and none that is read is overwritten."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

posix = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links of POSIX")


@pytest.fixture
def files(drifting_files, artefacts, tmp_path):
    """Copies of the data and of a calibrator, in the working directory."""
    for name in ("val", "train", "test-0", "test-1", "ood"):
        shutil.copy(drifting_files / f"{name}.safetensors", tmp_path)
    shutil.copy(artefacts / "ts.densecal", tmp_path)
    (tmp_path / "more").mkdir()
    shutil.copy(drifting_files / "val.safetensors", tmp_path / "more" / "week.safetensors")
    return tmp_path


FIT = ("fit", "--method", "ts", "-o", "c.densecal")
MANY = [
    ((*FIT, "--val", "val.safetensors", "--val", "val.safetensors"), "--val names val.safetensors twice"),
    (
        (*FIT, "--val", "val.safetensors", "--val", "more/../val.safetensors"),
        "--val names one file twice, as val.safetensors and as more/../val.safetensors",
    ),
    ((*FIT, "--val", "more", "--val", "more/w*.safetensors"), "--val names more/week.safetensors twice"),
    (
        (*FIT, "--val", "val.safetensors", "--train", "train.safetensors", "--train", "train.safetensors"),
        "--train names train.safetensors twice",
    ),
    (
        (*FIT, "--val", "val.safetensors", "--shifted", "a=test-1.safetensors", "--shifted", "b=test-1.safetensors"),
        "--shifted names test-1.safetensors twice",
    ),
    (
        ("apply", "ts.densecal", "--data", "val.safetensors", "--data", "val.safetensors", "-o", "p.npz"),
        "--data names val.safetensors twice",
    ),
    (
        ("evaluate", "ts.densecal", "--data", "a=test-0.safetensors", "--data", "b=test-0.safetensors"),
        "--data names test-0.safetensors twice",
    ),
    (
        ("report", "ts.densecal", "--data", "test-0.safetensors", "--natural", "a=more", "--natural", "b=more"),
        "--natural names more/week.safetensors twice",
    ),
    (
        ("evaluate", "ts.densecal", "--data", "test-0.safetensors", *("--ood", "ood.safetensors") * 2),
        "--ood names ood.safetensors twice",
    ),
    (
        ("evaluate", "ts.densecal", "--data", "test-0.safetensors", *("--val", "val.safetensors") * 2),
        "--val names val.safetensors twice",
    ),
    (("monitor", "ts.densecal", "--data", "more", "more/week.safetensors"), "--data names more/week.safetensors twice"),
    (
        ("monitor", "ts.densecal", "--data", "more", "--id", "id", *("--late-labels", "labels.csv") * 2),
        "--late-labels names labels.csv twice",
    ),
]


@pytest.mark.parametrize(("command", "words"), MANY)
def test_a_file_that_is_named_twice_is_refused(densecal, complains, files, command, words):
    answer = densecal(*command)
    assert answer.code == 2
    assert complains(answer)
    assert words.replace("/", os.sep) in answer.err and "Pass each file once" in answer.err


@posix
def test_a_link_to_a_file_is_that_file(densecal, files):
    Path("link.safetensors").symlink_to("val.safetensors")
    answer = densecal(*FIT, "--val", "val.safetensors", "--val", "link.safetensors")
    assert answer.code == 2
    assert "one file twice, as val.safetensors and as link.safetensors" in answer.err


def test_different_files_of_one_role_are_read(densecal, files):
    answer = densecal(*FIT, "--val", "val.safetensors", "--val", "test-0.safetensors")
    assert answer.code == 0, answer.err


MONITOR = ("monitor", "ts.densecal", "--data", "val.safetensors", "--window", "100")
OVERWRITTEN = [
    (("fit", "--val", "val.safetensors", "-o", "val.safetensors"), "--val val.safetensors"),
    ((*FIT[:3], "--val", "more", "-o", "more/week.safetensors"), "--val more/week.safetensors"),
    (
        (*FIT[:3], "--val", "val.safetensors", "--train", "train.safetensors", "-o", "more/../train.safetensors"),
        "--train train.safetensors",
    ),
    (
        (*FIT[:3], "--val", "val.safetensors", "--shifted", "fog=test-1.safetensors", "-o", "test-1.safetensors"),
        "--shifted test-1.safetensors",
    ),
    (("fit", "--val", "arrays", "-o", "arrays/labels.npy"), "--val arrays"),
    (("apply", "ts.densecal", "--data", "day.csv", "-o", "day.csv"), "--data day.csv"),
    (("report", "ts.densecal", "--data", "val.safetensors", "-o", "val.safetensors"), "--data val.safetensors"),
    (("report", "a=ts.densecal", "--data", "val.safetensors", "-o", "ts.densecal"), "the calibrator ts.densecal"),
    ((*MONITOR, "-o", "ts.densecal"), "the calibrator ts.densecal"),
    ((*MONITOR, "--prometheus", "val.safetensors"), "--data val.safetensors"),
    ((*MONITOR, "--state", "val.safetensors"), "--data val.safetensors"),
    ((*MONITOR, "--state", "new.state", "-o", "new.state"), "--output new.state"),
    ((*MONITOR, "-o", "page", "--prometheus", "page"), "--output page"),
    ((*MONITOR, "--id", "i", "--late-labels", "day.csv", "-o", "day.csv"), "--late-labels day.csv"),
    (
        ("extract", "my:net", "--data", "cifar10", "--weights", "val.safetensors", "-o", "val.safetensors"),
        "--weights val.safetensors",
    ),
    (("demo", "--data", "more", "-o", "more/week.safetensors"), "--data more/week.safetensors"),
    (("shift", "show", "photo.png", "-o", "photo.png"), "the image photo.png"),
]


@pytest.mark.parametrize(("command", "words"), OVERWRITTEN)
def test_no_command_overwrites_what_it_reads_or_another_output(densecal, complains, files, command, words):
    if command[0] == "extract":
        pytest.importorskip("torch")
    Path("arrays").mkdir()
    for path in (Path("day.csv"), Path("photo.png"), Path("arrays/logits.npy"), Path("arrays/labels.npy")):
        path.write_text("not read")
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    answer = densecal(*command)
    assert answer.code == 2, answer.err
    assert complains(answer)
    assert f"would overwrite {words.replace('/', os.sep)}. Write to another file." in answer.err
    assert {path: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before


@posix
def test_a_file_is_not_overwritten_through_a_link(densecal, files):
    Path("out.npz").symlink_to("val.safetensors")
    answer = densecal("apply", "ts.densecal", "--data", "val.safetensors", "-o", "out.npz")
    assert (answer.code, "--output out.npz would overwrite --data val.safetensors" in answer.err) == (2, True)


def test_validation_files_of_equal_scores_with_other_labels_are_fitted_together(densecal):
    scores = np.tile([0.1, 0.9], (500, 1))
    for day in (0, 1):
        np.savez(f"day-{day}.npz", scores=scores, labels=np.arange(500) % (5 + day) > 0)
    days = ("--val", "day-0.npz", "--val", "day-1.npz")
    answer = densecal(*FIT, *days, "--scores", "scores", "--probabilities")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--alarm-below", 80, "alarm_below must be a fraction between 0 and 1, got 80.0"),
        ("--alarm-below", 0, "alarm_below must be a fraction"),
        ("--false-alarm-rate", 1, "false_alarm_rate must be a fraction"),
        ("--false-alarm-rate", 1e-12, "false_alarm_rate must be a fraction between 1e-09 and 1, got 1e-12"),
        ("--window", 0, "window must be a whole number, at least 1, got 0"),
    ],
)
def test_an_invalid_setting_of_the_monitor_is_wrong_usage(densecal, complains, folder, option, value, words):
    answer = densecal("monitor", folder / "cal", "--data", folder / "day-1.safetensors", option, value)
    assert answer.code == 2 and complains(answer)
    assert words in answer.err
