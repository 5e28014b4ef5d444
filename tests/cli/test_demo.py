from __future__ import annotations

import pytest


@pytest.fixture
def data(drifting, tmp_path):
    """The drifting outputs in the demo's layout: small, so that the command is quick."""
    names = {
        "train": "train",
        "val": "val",
        "test-0": "clean",
        "test-1": "shifted-1",
        "test-3": "shifted-3",
        "test-2": "perturbed",
    }
    for name, file in {**names, "ood": "ood-other"}.items():
        drifting[name].save(tmp_path / "data" / f"{file}.safetensors")
    return "data"


def test_demo_prints_the_table_and_one_sentence_and_writes_the_report(densecal, data, tmp_path):
    answer = densecal("demo", "--data", data)
    assert answer.code == 0, answer.err
    for words in ("Uncalibrated", "DAC + SPL", "in-domain", "sev. 3", "ALL", "points", "AUROC", "report.html"):
        assert words in answer.out
    assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")


def test_demo_tells_machines_the_same(densecal, data):
    answer = densecal("demo", "--data", data, "-o", "elsewhere.html", "--json")
    assert answer.json["report"] == "elsewhere.html"
    assert len(answer.json["methods"]) == 9
    assert answer.json["verdict"]["tone"] in ("good", "even", "bad")


def test_demo_says_what_is_missing_when_given_another_folder(densecal, complains, tmp_path):
    answer = densecal("demo", "--data", tmp_path)
    assert answer.code == 1
    assert complains(answer)
    assert "no set 'train'" in answer.err
