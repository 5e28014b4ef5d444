from __future__ import annotations

import numpy as np


def test_inspect_says_what_a_calibrator_learned_and_from_which_layers(densecal, artefacts):
    answer = densecal("inspect", artefacts / "dac+ts.densecal")
    assert answer.code == 0
    for words in ("Density-aware calibration", "early", "late", "Tomani", "importance"):
        assert words in answer.out


def test_inspect_tells_machines_about_outputs(densecal, drifting_files):
    facts = densecal("inspect", drifting_files / "test-2.safetensors", "--json").json
    assert facts["kind"] == "outputs"
    assert facts["samples"] == 300
    assert facts["layers"] == {"early": "6 x float16", "late": "8 x float16"}
    assert facts["facts"]["severity"] == "2"
    assert 0 < facts["uncalibrated ECE"] < 1


def test_inspect_reads_npz_files_and_folders_too(densecal, tmp_path):
    np.savez(tmp_path / "x.npz", logits=np.eye(3), labels=[0, 1, 2])
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "logits.npy", np.array([[2.0, -1.0]]))
    assert densecal("inspect", "folder", "--json").json["labels"] is False


def test_a_file_that_is_neither_is_refused_in_one_line(densecal, complains, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    answer = densecal("inspect", "notes.txt")
    assert answer.code == 1
    assert complains(answer)
