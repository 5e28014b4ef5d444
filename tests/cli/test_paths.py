"""No file is read twice in one role."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

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
