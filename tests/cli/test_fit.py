from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import densecal as package
from densecal import Outputs


def test_fit_writes_a_calibrator_that_the_library_loads(densecal, drifting, drifting_files, tmp_path):
    answer = densecal(
        "fit", "--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors",
        "--method", "dac+ts", "--k", 10, "-o", "cal.densecal",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "Temperature scaling" in answer.out
    val = drifting["val"]
    bank = package.FeatureBank(drifting["train"].features, k=10)
    expected = package.make_calibrator("dac+ts", bank=bank).fit(val.logits, val.labels, features=val.features)
    loaded = package.load(tmp_path / "cal.densecal")
    test = drifting["test-2"]
    np.testing.assert_allclose(
        loaded.predict_proba(test.logits, features=test.features),
        expected.predict_proba(test.logits, features=test.features),
        atol=1e-5,
    )


def test_a_training_set_with_probabilities_for_logits_gives_the_same_calibrator(
    densecal, drifting, drifting_files, tmp_path
):
    train, test = drifting["train"], drifting["test-2"]
    probabilities = Outputs(softmax(train.logits, axis=1), train.labels, train.features)
    probabilities.save(tmp_path / "probabilities.safetensors")
    found = []
    for file in ("probabilities.safetensors", drifting_files / "train.safetensors"):
        answer = densecal("fit", "--train", file, "--val", drifting_files / "val.safetensors", "-o", "cal.densecal")
        assert answer.code == 0, answer.err
        loaded = package.load(tmp_path / "cal.densecal")
        found.append(loaded.predict_proba(test.logits, features=test.features))
    np.testing.assert_array_equal(*found)


def test_fit_tells_machines_what_it_learned(densecal, drifting_files):
    answer = densecal(
        "fit", "--val", drifting_files / "val.safetensors", "--method", "ts", "-o", "ts.densecal", "--json"
    )
    assert answer.code == 0
    assert answer.json["method"] == "ts"
    assert answer.json["stages"][0]["learned"]["temperature"] > 1
    assert answer.json["validation_ece"]["after"] < answer.json["validation_ece"]["before"]


def test_a_method_with_dac_asks_for_the_training_set(densecal, complains, drifting_files, tmp_path):
    answer = densecal("fit", "--val", drifting_files / "val.safetensors", "--method", "dac+ets", "-o", "c.densecal")
    assert answer.code == 2
    assert complains(answer)
    assert "--train" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_method_is_answered_with_the_right_one(densecal, complains, drifting_files):
    answer = densecal("fit", "--val", drifting_files / "val.safetensors", "--method", "tss", "-o", "c.densecal")
    assert answer.code == 2
    assert complains(answer)
    assert "Did you mean 'ts'?" in answer.err


def test_a_file_that_does_not_exist_is_named(densecal, complains):
    answer = densecal("fit", "--val", "nowhere.safetensors", "--method", "ts", "-o", "c.densecal")
    assert answer.code == 1
    assert complains(answer)
    assert "nowhere.safetensors does not exist" in answer.err


def test_a_validation_set_without_labels_is_refused(densecal, complains, drifting_files):
    answer = densecal("fit", "--val", drifting_files / "ood.safetensors", "--method", "ts", "-o", "c.densecal")
    assert answer.code == 1
    assert complains(answer)
    assert "no labels" in answer.err


def test_warnings_of_the_fit_are_single_lines_on_stderr_and_part_of_the_json(densecal, tmp_path):
    rng = np.random.default_rng(0)
    # Every answer is right, so the temperature runs to its bound.
    logits = rng.normal(size=(50, 3))
    Outputs(logits, labels=logits.argmax(axis=1)).save(tmp_path / "val.safetensors")
    answer = densecal("fit", "--val", "val.safetensors", "--method", "ts", "-o", "ts.densecal", "--json")
    assert answer.code == 0
    assert answer.err.startswith("warning: ")
    assert "classified correctly" in answer.json["warnings"][0]


def test_apply_writes_probabilities_confidence_and_temperature(densecal, artefacts, drifting_files, tmp_path):
    answer = densecal(
        "apply", artefacts / "dac+ts.densecal", "--data", drifting_files / "test-1.safetensors", "-o", "p.npz"
    )
    assert answer.code == 0, answer.err
    with np.load(tmp_path / "p.npz") as arrays:
        assert set(arrays) == {"probabilities", "predicted", "confidence", "temperature"}
        np.testing.assert_allclose(arrays["probabilities"].sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_array_equal(arrays["probabilities"].argmax(axis=1), arrays["predicted"])


def test_apply_writes_csv_and_tells_machines(densecal, artefacts, drifting_files, tmp_path):
    answer = densecal(
        "apply", artefacts / "ts.densecal", "--data", drifting_files / "ood.safetensors", "-o", "p.csv", "--json"
    )
    assert answer.json["n_samples"] == 200
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns) == ["predicted", "confidence", "p0", "p1", "p2", "p3"]
    assert answer.json["mean_confidence"] == pytest.approx(table["confidence"].mean(), rel=1e-5)


def test_apply_refuses_data_of_another_classifier(densecal, complains, artefacts, tmp_path):
    Outputs(np.zeros((3, 7))).save(tmp_path / "other.safetensors")
    answer = densecal("apply", artefacts / "ts.densecal", "--data", "other.safetensors", "-o", "p.npz")
    assert answer.code == 1
    assert complains(answer)
    assert "7 classes" in answer.err
    assert not (tmp_path / "p.npz").exists()


def test_apply_refuses_a_format_it_cannot_write(densecal, complains, artefacts, drifting_files):
    answer = densecal("apply", artefacts / "ts.densecal", "--data", drifting_files / "val.safetensors", "-o", "p.xlsx")
    assert answer.code == 2
    assert complains(answer)
    assert ".csv, .tsv, .parquet or .npz" in answer.err


def test_options_that_a_method_has_no_use_for_are_said_to_be_unused(densecal, drifting_files):
    answer = densecal(
        "fit", "--val", drifting_files / "val.safetensors", "--train", drifting_files / "train.safetensors",
        "--k", 5, "--method", "ts", "-o", "ts.densecal", "--json",
    )  # fmt: skip
    assert answer.code == 0
    assert (
        "warning: --train, --k are ignored: only methods with DAC measure distances, and ts has no DAC." in answer.err
    )
    assert any("--k" in text for text in answer.json["warnings"])


def test_a_validation_set_whose_labels_have_another_name_is_told_what_is_in_the_file(densecal, complains, tmp_path):
    np.savez(tmp_path / "val.npz", logits=3 * np.eye(3), y=[0, 1, 2])
    answer = densecal("fit", "--val", "val.npz", "--method", "ts", "-o", "c.densecal")
    assert answer.code == 1
    assert "val.npz has no labels, only logits, y:" in answer.err and "--labels NAME" in answer.err
    assert answer.err.splitlines()[-1].startswith("densecal: val.npz")


def test_a_table_of_logits_and_labels_can_be_fitted_on(densecal, drifting, tmp_path):
    val = drifting["val"]
    table = pd.DataFrame(val.logits, columns=[f"logit{n}" for n in range(4)]).assign(label=val.labels)
    table.to_csv(tmp_path / "val.csv", index=False)
    answer = densecal("fit", "--val", "val.csv", "--method", "ts", "-o", "ts.densecal", "--json")
    assert answer.code == 0, answer.err
    expected = package.TemperatureScaling().fit(val.logits, val.labels).temperature_
    assert package.load(tmp_path / "ts.densecal").temperature_ == pytest.approx(expected, rel=1e-4)


def test_fit_and_apply_name_the_file_whose_content_is_wrong(densecal, complains, drifting_files, artefacts, tmp_path):
    np.savez(tmp_path / "bad.npz", logits=3 * np.eye(4), labels=[0, 1, 2, 9])
    np.savez(tmp_path / "bare.npz", logits=3 * np.eye(4), labels=[0, 1, 2, 3])
    val, train = drifting_files / "val.safetensors", drifting_files / "train.safetensors"
    for arguments, file in (
        (("fit", "--val", "bad.npz", "--method", "ts", "-o", "c.densecal"), "bad.npz"),
        (("fit", "--val", "bare.npz", "--train", train, "-o", "c.densecal"), "bare.npz"),
        (("fit", "--val", val, "--train", train, "--shifted", "bare.npz", "-o", "c.densecal"), "bare.npz"),
        (("apply", artefacts / "dac+ts.densecal", "--data", "bare.npz", "-o", "p.npz"), "bare.npz"),
    ):
        answer = densecal(*arguments)
        assert answer.code == 1
        assert complains(answer), answer.err
        assert answer.err.startswith(f"densecal: {file}: ")


def test_shifted_data_of_another_classifier_are_named(densecal, complains, drifting_files, tmp_path):
    np.savez(tmp_path / "shifted.npz", logits=3 * np.eye(3), labels=[0, 1, 2])
    answer = densecal(
        "fit", "--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors",
        "--shifted", "shifted.npz", "-o", "c.densecal",
    )  # fmt: skip
    assert answer.code == 1
    assert complains(answer)
    assert answer.err.startswith("densecal: shifted.npz has 3 classes")


def test_every_file_of_shifted_data_is_a_kind_of_shift_wherever_it_lies(densecal, drifting_files):
    shifted = [part for number in (1, 2) for part in ("--shifted", drifting_files / f"test-{number}.safetensors")]
    files = ("--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors")
    assert densecal("fit", *files, *shifted, "--method", "dac", "-o", "c.densecal").code == 0
    assert package.load("c.densecal").accuracy_model_["regression"]["n_kinds"] == 2


def test_shifted_data_may_be_named_and_a_single_kind_of_shift_is_warned_of(densecal, drifting_files):
    files = ("--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors")
    command = ("fit", *files, "--method", "dac", "-o", "c.densecal")
    one, two, three = (drifting_files / f"test-{number}.safetensors" for number in (1, 2, 3))
    noise = ("--shifted", f"noise/weak={one}", "--shifted", f"noise/strong={two}")
    answer = densecal(*command, *noise)
    assert answer.code == 0 and "of one kind of shift" in answer.err
    assert "learned from 1 domain under 1 kind of shift" in densecal(*command, *noise[:2]).out
    assert densecal(*command, *noise).code == 0
    assert package.load("c.densecal").accuracy_model_["regression"]["n_kinds"] == 1
    answer = densecal(*command, *noise, "--shifted", f"fog={three}")
    assert answer.code == 0 and "of one kind of shift" not in answer.err
    assert package.load("c.densecal").accuracy_model_["regression"]["n_kinds"] == 2
    assert "does not exist" in densecal(*command, "--shifted", "noise=none.npz").err


def test_labels_of_other_samples_are_noticed_and_the_accuracy_is_shown(densecal, drifting, tmp_path):
    val = drifting["val"]
    names = ["cat", "dog", "cow", "owl"]
    np.savez("val.npz", logits=val.logits, labels=val.labels, classes=names)
    right = (val.logits.argmax(axis=1) == val.labels).mean()
    answer = densecal("fit", "--val", "val.npz", "--method", "ts", "-o", "c.densecal", "--json")
    assert answer.json["validation_accuracy"] == pytest.approx(right)
    assert "no better than chance" not in answer.err
    shuffled = np.random.default_rng(0).permutation(val.labels)
    np.savez("val.npz", logits=val.logits, labels=shuffled, classes=names)
    answer = densecal("fit", "--val", "val.npz", "--method", "ts", "-o", "c.densecal")
    assert "On the validation set the classifier is no better than chance: accuracy" in answer.err
    assert "validation accuracy" in answer.out
    no_owl = val[val.labels != 3]
    np.savez("val.npz", logits=no_owl.logits, labels=no_owl.labels, classes=names)
    answer = densecal("fit", "--val", "val.npz", "--method", "ts", "-o", "c.densecal")
    assert "Class owl is not in the validation set" in answer.err


def test_a_folder_in_place_of_a_file_is_refused_before_the_work(densecal, complains, drifting_files, tmp_path):
    (tmp_path / "made.npz").mkdir()
    answer = densecal("fit", "--val", drifting_files / "val.safetensors", "--method", "ts", "-o", "made.npz")
    assert answer.code == 1
    assert complains(answer)
    assert "made.npz is a folder" in answer.err


def test_fit_searches_each_data_set_once(densecal, drifting_files, searches):
    arguments = (
        "fit", "--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors",
        "--method", "dac+ts", "-o", "cal.densecal",
    )  # fmt: skip
    assert densecal(*arguments).code == 0
    assert searches == [500]
    searches.clear()
    assert densecal(*arguments, "--shifted", drifting_files / "test-2.safetensors").code == 0
    assert searches == [500, 300]


def test_apply_searches_the_data_once(densecal, artefacts, drifting_files, searches):
    data = drifting_files / "test-1.safetensors"
    assert densecal("apply", artefacts / "dac+ts.densecal", "--data", data, "-o", "p.npz").code == 0
    assert searches == [300]


@pytest.mark.parametrize(("text", "expected"), [("1", 1), ("1.0", 400), ("0.1", 40), ("50", 50)])
def test_the_bank_size_is_a_number_of_samples_or_a_fraction_as_in_the_library(
    densecal, drifting, drifting_files, tmp_path, text, expected
):
    answer = densecal(
        "fit", "--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors",
        "--bank-size", text, "-o", "cal.densecal",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    found = package.load(tmp_path / "cal.densecal").density_stage.bank
    in_library = package.FeatureBank(
        drifting["train"].features, k=1, bank_size=float(text) if "." in text else int(text)
    )
    assert len(found) == len(in_library) == expected


@pytest.mark.parametrize(
    ("text", "words", "code"),
    [("many", "got 'many'", 2), ("1.5", "must lie in (0, 1]", 1), ("401", "number of training samples, got 401", 1)],
)
def test_a_bank_size_that_cannot_be_met_is_refused(densecal, complains, drifting_files, text, words, code):
    answer = densecal(
        "fit", "--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors",
        "--bank-size", text, "-o", "cal.densecal",
    )  # fmt: skip
    assert answer.code == code
    assert complains(answer)
    assert words in answer.err
    assert "train.safetensors" not in answer.err


def test_a_bank_size_of_auto_is_that_of_the_library(densecal, drifting_files, tmp_path):
    answer = densecal(
        "fit", "--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors",
        "--bank-size", "auto", "-o", "cal.densecal",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert len(package.load(tmp_path / "cal.densecal").density_stage.bank) == 400


def test_fit_and_apply_name_the_method_as_inspect_does(densecal, drifting_files):
    fitted = densecal(
        "fit", "--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors",
        "--method", "dac+ts", "--shifted", drifting_files / "test-2.safetensors", "-o", "c.densecal", "--json",
    )  # fmt: skip
    applied = densecal("apply", "c.densecal", "--data", drifting_files / "test-1.safetensors", "-o", "p.npz", "--json")
    inspected = densecal("inspect", "c.densecal", "--json")
    assert fitted.json["method"] == applied.json["method"] == inspected.json["method"] == "dac-shift+ts"


def test_equal_numbers_of_several_stages_are_all_told(densecal, drifting_files):
    answer = densecal(
        "fit", "--val", drifting_files / "val.safetensors", "--method", "ts+ts", "-o", "c.densecal", "--json"
    )
    assert [list(stage["learned"]) for stage in answer.json["stages"]] == [["temperature"], ["temperature"]]
    told = densecal("inspect", "c.densecal", "--json").json
    assert told["stages"] == answer.json["stages"]


def test_of_a_large_validation_set_a_sample_is_used_and_told(densecal, drifting_files, drifting, tmp_path):
    fit = ("fit", "--val", drifting_files / "val.safetensors", "--method", "ts", "--json")
    answer = densecal(*fit, "--output", tmp_path / "some.densecal", "--max-samples", 100)
    assert answer.json["n_samples"] == 100
    assert f"using 100 of {len(drifting['val']):,} samples, drawn at random" in answer.json["warnings"][0]
    whole = densecal(*fit, "--output", tmp_path / "all.densecal")
    assert whole.json["n_samples"] == len(drifting["val"])
