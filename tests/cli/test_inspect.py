from __future__ import annotations

import numpy as np


def test_inspect_says_what_a_calibrator_learned_and_from_which_layers(densecal, artefacts):
    answer = densecal("inspect", artefacts / "dac+ts.densecal")
    assert answer.code == 0
    for words in ("Density-aware calibration", "early", "late", "Tomani", "importance"):
        assert words in answer.out


def test_inspect_tells_machines_about_outputs(densecal, drifting_files):
    metadata = densecal("inspect", drifting_files / "test-2.safetensors", "--json").json
    assert metadata["kind"] == "outputs"
    assert metadata["n_samples"] == 300
    assert metadata["layers"]["late"] == {"width": 8, "dtype": "float16"}
    assert metadata["metadata"]["severity"] == "2"
    assert 0 < metadata["uncalibrated_ece"] < 1


def test_inspect_reads_npz_files_and_folders_too(densecal, tmp_path):
    np.savez(tmp_path / "x.npz", logits=np.eye(3), labels=[0, 1, 2])
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "logits.npy", np.array([[2.0, -1.0]]))
    assert densecal("inspect", "folder", "--json").json["has_labels"] is False


def test_a_file_that_is_neither_is_refused_in_one_line(densecal, complains, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    answer = densecal("inspect", "notes.txt")
    assert answer.code == 1
    assert complains(answer)


def test_a_format_that_is_not_read_is_answered_with_those_that_are(densecal, complains, tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    answer = densecal("inspect", "x.npy")
    assert answer.code == 1
    assert complains(answer)
    for words in (".safetensors", ".npz", "logits, labels and features/LAYER", "np.savez('x.npz'"):
        assert words in answer.err


def test_a_table_without_logits_is_answered_with_what_it_has_and_should_have(densecal, complains, tmp_path):
    (tmp_path / "x.csv").write_text("id,score\n1,2\n")
    answer = densecal("inspect", "x.csv")
    assert complains(answer)
    for words in ("'id', 'score'", "logit0, logit1", "label"):
        assert words in answer.err


def test_an_array_that_is_not_read_is_told_in_one_line(densecal, tmp_path):
    np.savez(tmp_path / "x.npz", logits=3 * np.eye(3), y=[0, 1, 2])
    answer = densecal("inspect", "x.npz")
    assert answer.code == 0
    assert answer.err.startswith("warning: x.npz: y is ignored.")


def test_a_classifiers_fingerprint_is_told_in_a_few_words(densecal, drifting, tmp_path):
    from densecal import TemperatureScaling

    val = drifting["val"]
    marks = {"class": "torchvision.ResNet", "shapes": "ab12", "sums": {f"layer{n}": [0.123456, 7.5] for n in range(60)}}
    fitted = TemperatureScaling().fit(val.logits, val.labels)
    fitted.save(tmp_path / "model.densecal", metadata={"classifier": marks, "layouts": {}})
    answer = densecal("inspect", "model.densecal")
    assert "torchvision.ResNet, fingerprint of 60 tensors" in " ".join(answer.out.split())
    assert "0.123456" not in answer.out
    assert len(answer.out.splitlines()) < 20


def test_inspect_tells_the_neighbour_that_is_measured(densecal, drifting, tmp_path):
    from densecal import DAC, FeatureBank

    bank = FeatureBank(drifting["train"].features, k=10)
    DAC(bank, scores="published_code").fit(drifting["val"]).save(tmp_path / "dac.densecal")
    assert densecal("inspect", "dac.densecal", "--json").json["bank"]["k"] == 1


def test_what_a_file_says_cannot_command_the_terminal(densecal, tmp_path):
    from densecal import Outputs

    hostile = "[red]a[/red] \x1b[2J\x9b1m \u202eb [/bold"
    Outputs([[2.0, 1.0]], [0], metadata={"data": hostile, "\x1b[31mname[/]": "x"}).save(tmp_path / "x.safetensors")
    shown, told = densecal("inspect", "x.safetensors"), densecal("inspect", "x.safetensors", "--json")
    assert shown.code == told.code == 0 and told.json["metadata"]["data"] == hostile
    assert "[red]a[/red]" in shown.out and "\\x1b[2J" in shown.out
    for text in (shown.out, told.out):
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert "\x1b" not in densecal("inspect", "\x1b[31mred.npz").err
