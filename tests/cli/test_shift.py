from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
PIL = pytest.importorskip("PIL.Image")


@pytest.fixture
def picture(tmp_path):
    rng = np.random.default_rng(0)
    PIL.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(tmp_path / "photo.png")
    return "photo.png"


def test_show_draws_the_grid_of_an_image(densecal, picture, tmp_path):
    answer = densecal("shift", "show", picture, "-o", "grid.png", "--json")
    assert answer.code == 0, answer.err
    assert len(answer.json["corruptions"]) == 18
    with PIL.open(tmp_path / "grid.png") as grid:
        assert grid.width > 800


def test_what_is_neither_an_image_nor_a_data_set_is_refused(densecal, complains, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for source, words in (("nothing.jpg", "neither an image file nor a data set"), ("notes.txt", "not an image")):
        answer = densecal("shift", "show", source)
        assert answer.code == 1
        assert complains(answer)
        assert words in answer.err


def test_a_picture_format_that_does_not_exist_is_refused_before_the_work(densecal, complains, picture):
    answer = densecal("shift", "show", picture, "-o", "grid.doc")
    assert answer.code == 2
    assert complains(answer)
    assert ".png" in answer.err


def test_the_group_without_a_command_shows_its_help(densecal):
    answer = densecal("shift")
    assert answer.code == 0
    assert "show" in answer.out
