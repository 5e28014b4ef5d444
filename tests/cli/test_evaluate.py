from __future__ import annotations

import numpy as np
import pytest

import densecal as package
from densecal.arrays import softmax
from densecal.metrics import expected_calibration_error, negative_log_likelihood


@pytest.fixture
def tests(drifting_files):
    return [
        argument for severity in range(4) for argument in ("--data", drifting_files / f"test-{severity}.safetensors")
    ]


def test_evaluate_shows_uncalibrated_and_calibrated_rows_with_intervals(densecal, artefacts, tests):
    answer = densecal("evaluate", artefacts / "dac+ts.densecal", *tests, "--resamples", 50)
    assert answer.code == 0, answer.err
    for words in ("Uncalibrated", "DAC + TS", "in-domain", "sev. 3", "ALL", "NLL", "–"):
        assert words in answer.out


def test_evaluate_tells_machines_every_number(densecal, artefacts, drifting, tests):
    answer = densecal("evaluate", artefacts / "ts.densecal", *tests, "--resamples", 50, "--json")
    rows = [
        row for row in answer.json["rows"]
        if (row["method"], row["severity"], row["metric"]) == ("ts", 2, "ece")
    ]  # fmt: skip
    test = drifting["test-2"]
    expected = expected_calibration_error(
        package.load(artefacts / "ts.densecal").predict_proba(test.logits), test.labels
    )
    assert rows[0]["value"] == pytest.approx(expected)
    assert rows[0]["low"] <= rows[0]["value"] <= rows[0]["high"]
    assert answer.json["severities"] == [0, 1, 2, 3]
    assert answer.json["verdict"]["text"]


def test_both_commands_warn_of_labels_at_chance(densecal, artefacts, drifting, tmp_path):
    test = drifting["test-0"]
    package.Outputs(test.logits, np.roll(test.labels, 1)).save(tmp_path / "rolled.npz")
    command = (artefacts / "ts.densecal", "--data", tmp_path / "rolled.npz", "--resamples", 20)
    assert "warning: The classifier is no better than chance on rolled" in densecal("evaluate", *command).err
    densecal("report", *command, "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<li>The classifier is no better than chance on rolled") == 1


def test_without_resamples_intervals_are_null(densecal, artefacts, tests):
    answer = densecal("evaluate", artefacts / "ts.densecal", *tests, "--resamples", 0, "--json")
    assert answer.json["rows"][0]["low"] is None


def test_several_calibrators_and_other_classes_are_compared(densecal, artefacts, drifting_files, tests):
    answer = densecal(
        "evaluate", artefacts / "ts.densecal", artefacts / "dac+ts.densecal", *tests,
        "--ood", drifting_files / "ood.safetensors", "--oracle", "--resamples", 20, "--json",
    )  # fmt: skip
    assert answer.json["methods"] == ["uncalibrated", "ts", "dac+ts", "oracle"]
    assert {row["method"] for row in answer.json["out_of_domain"]} == {"uncalibrated", "ts", "dac+ts"}
    assert all(0 <= row["auroc"] <= 1 for row in answer.json["out_of_domain"])


@pytest.fixture
def shards(drifting, tmp_path):
    test = drifting["test-1"]
    for place, rows in enumerate(np.array_split(np.arange(len(test)), 3)):
        package.Outputs(test.logits[rows], test.labels[rows]).save(
            tmp_path / "shards" / f"fog-1-0000{place}-of-00003.npz"
        )
    return tmp_path / "shards"


def test_shards_are_one_set_with_the_metrics_of_all_their_samples(densecal, artefacts, drifting, shards, tmp_path):
    options = ("--data", shards, "--sample-size", 100, "--resamples", 50, "--json")
    answer = densecal("evaluate", artefacts / "ts.densecal", *options)
    test = drifting["test-1"]
    probabilities = package.load(artefacts / "ts.densecal").predict_proba(test.logits)
    rows = {(row["method"], row["metric"]): row for row in answer.json["rows"]}
    assert rows["ts", "ece"]["value"] == pytest.approx(expected_calibration_error(probabilities, test.labels), abs=1e-9)
    assert rows["ts", "nll"]["value"] == pytest.approx(negative_log_likelihood(probabilities, test.labels), abs=1e-9)
    assert [(one["name"], one["severity"], one["n_samples"]) for one in answer.json["sets"]] == [("fog", 1, len(test))]
    page = densecal("report", artefacts / "ts.densecal", *options, "--output", tmp_path / "report.html")
    assert page.json["rows"] == answer.json["rows"]


def test_a_missing_shard_is_told(densecal, artefacts, shards):
    (shards / "fog-1-00001-of-00003.npz").unlink()
    answer = densecal("evaluate", artefacts / "ts.densecal", "--data", shards)
    assert answer.code != 0
    assert "2 of 3 shards of fog-1; missing: 1" in " ".join(answer.err.split())


def test_a_folder_of_files_is_several_conditions(densecal, artefacts, drifting, tmp_path):
    for severity in range(2):
        drifting[f"test-{severity}"].save(tmp_path / "tests" / f"{severity}.safetensors")
    answer = densecal("evaluate", artefacts / "ts.densecal", "--data", "tests", "--resamples", 0, "--json")
    assert answer.json["severities"] == [0, 1]


def test_calibrators_of_one_method_are_told_apart_by_name(densecal, artefacts, tests):
    path = artefacts / "ts.densecal"
    answer = densecal("evaluate", f"old={path}", f"new={path}", *tests, "--resamples", 0, "--json")
    assert answer.json["methods"] == ["uncalibrated", "old", "new"]


def test_data_without_features_for_dac_are_refused(densecal, complains, artefacts, tmp_path):
    package.Outputs([[2.0, 1.0, 0.0, 0.0]] * 9, labels=[0] * 9).save(tmp_path / "bare.safetensors")
    answer = densecal("evaluate", artefacts / "dac+ts.densecal", "--data", "bare.safetensors")
    assert answer.code == 1
    assert complains(answer)
    assert "features" in answer.err


def test_outputs_given_as_a_calibrator_are_refused_by_what_they_are(densecal, complains, drifting_files, tests):
    answer = densecal("evaluate", drifting_files / "val.safetensors", *tests)
    assert answer.code == 1
    assert complains(answer)
    assert "densecal.outputs" in answer.err


def test_a_metric_that_does_not_exist_is_refused(densecal, complains, artefacts, tests):
    answer = densecal("evaluate", artefacts / "ts.densecal", *tests, "--metric", "eec")
    assert answer.code == 2
    assert complains(answer)
    assert "ece_mass" in answer.err


def test_report_writes_the_page(densecal, artefacts, tests, tmp_path):
    answer = densecal(
        "report", artefacts / "dac+ts.densecal", *tests, "-o", "page.html", "--title", "My model", "--resamples", 20
    )
    assert answer.code == 0, answer.err
    page = (tmp_path / "page.html").read_text()
    assert "<title>My model</title>" in page
    assert "page.html" in answer.out


def test_given_the_validation_set_the_report_says_what_dac_adds(densecal, artefacts, drifting_files, tests, tmp_path):
    answer = densecal(
        "report", artefacts / "dac+ts.densecal", *tests, "--val", drifting_files / "val.safetensors",
        "--resamples", 20, "--json",
    )  # fmt: skip
    assert answer.json["report"] == "report.html"
    assert "TS" in answer.json["verdict"]["text"]
    page = (tmp_path / "report.html").read_text()
    assert "The validation set has 500 samples" in page


def test_report_refuses_a_damaged_artefact_and_writes_nothing(densecal, complains, artefacts, tests, tmp_path):
    whole = (artefacts / "ts.densecal").read_bytes()
    (tmp_path / "half.densecal").write_bytes(whole[: len(whole) // 2])
    answer = densecal("report", "half.densecal", *tests)
    assert answer.code == 1
    assert complains(answer)
    assert not (tmp_path / "report.html").exists()


def test_a_calibrator_fitted_for_shift_is_named_so_and_reported(densecal, drifting_files, tests, tmp_path):
    fitted = densecal(
        "fit", "--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors",
        "--method", "dac+ts", "--shifted", drifting_files / "test-2.safetensors", "-o", "shift.densecal", "--json",
    )  # fmt: skip
    assert fitted.code == 0, fitted.err
    answer = densecal(
        "report", "shift.densecal", *tests, "--val", drifting_files / "val.safetensors", "--resamples", 20, "--json"
    )
    assert answer.code == 0, answer.err
    assert "DAC (shift fit)" in answer.json["verdict"]["text"]
    assert "DAC (shift fit) + TS" in (tmp_path / "report.html").read_text()


def test_a_report_from_the_file_alone_knows_what_the_fit_warned_of(densecal, drifting_files, tests, tmp_path):
    fitted = densecal("fit", "--val", drifting_files / "val.safetensors", "--method", "ts", "-o", "ts.densecal")
    assert "warning: The validation set has 500 samples" in fitted.err
    assert densecal("report", "ts.densecal", *tests, "--resamples", 20).code == 0
    assert "The validation set has 500 samples" in (tmp_path / "report.html").read_text()


def test_sets_without_a_severity_keep_a_row_each_with_size_accuracy_and_error(densecal, artefacts, drifting, tmp_path):
    for name, source in (("sales-2023", "test-0"), ("sales-2024", "test-1")):
        package.Outputs(drifting[source].logits, drifting[source].labels).save(tmp_path / f"{name}.npz")
    data = ("--data", "sales-2023.npz", "--data", "sales-2024.npz")
    answer = densecal("evaluate", artefacts / "ts.densecal", *data, "--resamples", 0)
    assert answer.code == 0, answer.err
    for name, source in (("sales-2023", "test-0"), ("sales-2024", "test-1")):
        (row,) = (line.split() for line in answer.out.splitlines() if line.startswith(name))
        test = drifting[source]
        right = (test.logits.argmax(axis=1) == test.labels).mean()
        assert row[1:3] == ["300", f"{100 * right:.1f}"]
    assert "none given, so 0 (in-domain): sales-2023, sales-2024" in answer.out
    told = densecal("evaluate", artefacts / "ts.densecal", *data, "--resamples", 0, "--json").json
    assert [(one["name"], one["severity_from"]) for one in told["sets"]] == [
        ("sales-2023", "none"),
        ("sales-2024", "none"),
    ]


def bad(tmp_path, name, **arrays):
    np.savez(tmp_path / name, **arrays)
    return name


@pytest.mark.parametrize("command", ["evaluate", "report"])
@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        ([[3.0, 1.0, 0.0, 0.0]] * 5, [0, 1, 2, 3, 9], "labels must lie in 0 ... 3"),
        ([[0.7, 0.1, 0.1, 0.1]] * 5, [0, 1, 2, 3, 1], "look like probabilities"),
        ([[3.0, 1.0, 0.0]] * 5, [0, 1, 2, 1, 1], "3 classes"),
    ],
)
def test_what_is_wrong_with_one_of_several_sets_is_said_with_its_file(
    densecal, complains, artefacts, tests, tmp_path, command, logits, labels, words
):
    name = bad(tmp_path, "broken.npz", logits=logits, labels=labels)
    answer = densecal(command, artefacts / "ts.densecal", *tests, "--data", name)
    assert answer.code == 1
    assert complains(answer)
    assert answer.err.startswith("densecal: broken.npz: ")
    assert words in answer.err


def test_a_set_without_the_calibrators_features_is_named(densecal, complains, artefacts, tests, tmp_path):
    name = bad(tmp_path, "bare.npz", logits=[[3.0, 1.0, 0.0, 0.0]] * 5, labels=[0, 1, 2, 3, 1])
    answer = densecal("evaluate", artefacts / "dac+ts.densecal", *tests, "--data", name)
    assert answer.code == 1
    assert complains(answer)
    assert answer.err.startswith("densecal: bare.npz: ")


def test_beside_plain_dac_the_validation_set_gives_ts(densecal, drifting, drifting_files, tests, tmp_path):
    val, bank = drifting["val"], package.FeatureBank(drifting["train"].features, k=10)
    package.make_calibrator("dac", bank=bank).fit(val.logits, val.labels, features=val.features).save(
        tmp_path / "dac.densecal"
    )
    answer = densecal(
        "evaluate", "dac.densecal", *tests, "--val", drifting_files / "val.safetensors", "--resamples", 0, "--json"
    )
    assert answer.json["methods"] == ["uncalibrated", "ts", "dac"]


def test_ts_and_the_oracle_are_fitted_on_logits_that_look_like_probabilities(densecal, artefacts, drifting, tmp_path):
    for name in ("val", "test-0"):
        outputs = drifting[name]
        bounded = softmax(outputs.logits)
        package.Outputs(bounded, outputs.labels, outputs.features).save(tmp_path / f"{name}.npz")
    command = ("evaluate", artefacts / "dac+ts.densecal", "--data", "test-0.npz", "--val", "val.npz", "--resamples", 0)
    answer = densecal(*command, "--assume-logits", "--oracle", "--json")
    assert answer.json["methods"] == ["uncalibrated", "ts", "dac+ts", "oracle"]


def test_of_a_large_validation_set_a_sample_is_used_without_advice_to_use_an_option_of_fit(
    densecal, artefacts, drifting_files, tests, monkeypatch
):
    monkeypatch.setattr("densecal.cli.inputs.MAX_FIT_SAMPLES", 100)
    command = ("evaluate", artefacts / "ts.densecal", *tests, "--resamples", 0, "--json")
    told = densecal(*command, "--val", drifting_files / "val.safetensors").json["warnings"]
    assert [text for text in told if "using 100 of" in text and "--max-samples" not in text]


def test_a_report_to_a_folder_is_refused_before_the_work(densecal, complains, artefacts, tests, tmp_path):
    (tmp_path / "pages").mkdir()
    answer = densecal("report", artefacts / "ts.densecal", *tests, "-o", "pages")
    assert answer.code == 1
    assert complains(answer)
    assert "pages is a folder" in answer.err
    assert "partial" not in answer.err


def test_the_help_of_data_and_val_names_formats_and_arrays(densecal):
    for command in ("fit", "apply", "evaluate", "report"):
        text = " ".join(densecal(command, "--help").out.replace("│", " ").split())
        for words in (".npz", ".safetensors", ".csv", "logits", "labels", "features/LAYER"):
            assert words in text, (command, words)


def test_a_validation_set_of_another_classifier_is_named(densecal, complains, artefacts, tests, tmp_path):
    name = bad(tmp_path, "val.npz", logits=[[3.0, 1.0, 0.0]] * 5, labels=[0, 1, 2, 1, 1])
    answer = densecal("evaluate", artefacts / "dac+ts.densecal", *tests, "--val", name)
    assert answer.code == 1
    assert complains(answer)
    assert answer.err.startswith("densecal: val.npz has 3 classes")


def test_an_empty_test_set_is_named_and_called_empty(densecal, complains, artefacts, tests, tmp_path):
    name = bad(tmp_path, "empty.npz", logits=np.zeros((0, 4)), labels=np.zeros(0, dtype=int))
    answer = densecal("evaluate", artefacts / "ts.densecal", *tests, "--data", name)
    assert answer.code == 1
    assert complains(answer)
    assert answer.err.startswith("densecal: empty.npz: logits must have at least 1 sample")


def test_evaluate_gives_what_the_library_gives_for_the_scores_of_the_published_code(
    densecal, drifting, tests, tmp_path
):
    bank = package.FeatureBank(drifting["train"].features, k=10)
    fitted = package.DAC(bank, scores="published_code").fit(drifting["val"])
    fitted.save(tmp_path / "dac.densecal")
    answer = densecal("evaluate", "dac.densecal", *tests, "--resamples", 0, "--json")
    assert answer.code == 0, answer.err
    for severity in range(4):
        test = drifting[f"test-{severity}"]
        expected = expected_calibration_error(fitted.predict_proba(test.logits, features=test.features), test.labels)
        (found,) = (
            row["value"] for row in answer.json["by_severity"]["ece"]
            if (row["method"], row["severity"]) == ("dac", severity)
        )  # fmt: skip
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_each_test_set_is_searched_once(densecal, artefacts, drifting_files, searches, command):
    data = ("--data", drifting_files / "test-1.safetensors", "--ood", drifting_files / "ood.safetensors")
    assert densecal(command, artefacts / "dac+ts.densecal", *data, "--resamples", 0).code == 0
    assert searches == [16, 300, 200]  # a few samples first: whether the sets are those of the calibrator


def test_calibrators_with_the_same_bank_search_each_test_set_once(
    densecal, artefacts, drifting, drifting_files, tmp_path, searches
):
    bank = package.FeatureBank(drifting["train"].features, k=10)
    package.DAC(bank).fit(drifting["val"]).save(tmp_path / "dac.densecal")
    searches.clear()
    files = ("dac.densecal", artefacts / "dac+ts.densecal")
    assert densecal("evaluate", *files, "--data", drifting_files / "test-1.safetensors", "--resamples", 0).code == 0
    assert searches == [16, 16, 300]


def test_calibrators_with_different_banks_measure_their_own_distances(
    densecal, artefacts, drifting, drifting_files, tmp_path
):
    val, test = drifting["val"], drifting["test-1"]
    bank = package.FeatureBank(drifting["train"].features, k=10, bank_size=100)
    package.DAC(bank).fit(val).save(tmp_path / "dac.densecal")
    files = ("dac.densecal", artefacts / "dac+ts.densecal")
    data = ("--data", drifting_files / "test-1.safetensors")
    answer = densecal("evaluate", *files, *data, "--metric", "nll", "--resamples", 0, "--json")
    found = {row["method"]: row["value"] for row in answer.json["overall"]["nll"]}
    for method, file in (("dac", tmp_path / files[0]), ("dac+ts", files[1])):
        expected = negative_log_likelihood(package.load(file).predict_proba(test), test.labels)
        assert found[method] == pytest.approx(expected)


def test_severities_are_not_read_from_names_if_the_user_says_so(densecal, artefacts, drifting, tmp_path):
    test = drifting["test-1"]
    np.savez(tmp_path / "fog-3.npz", logits=test.logits, labels=test.labels)
    arguments = ("evaluate", artefacts / "ts.densecal", "--data", "fog-3.npz", "--resamples", 0)
    assert densecal(*arguments, "--json").json["severities"] == [3]
    answer = densecal(*arguments, "--ignore-names")
    assert "none given, so 0 (in-domain): fog-3" in answer.out


def test_the_help_names_the_default_number_of_resamples(densecal):
    from densecal.metrics import N_RESAMPLES

    for command in ("evaluate", "report"):
        text = " ".join(densecal(command, "--help").out.replace("│", " ").split())
        assert f"{N_RESAMPLES} by default" in text


@pytest.mark.parametrize("name", ["uncalibrated", "oracle", ""])
def test_a_calibrator_with_a_reserved_or_empty_name_is_rejected(densecal, complains, artefacts, tests, name):
    answer = densecal("evaluate", f"{name}={artefacts / 'ts.densecal'}", *tests)
    assert answer.code == 1
    assert complains(answer)
    assert f"A calibrator cannot be named {name!r}" in answer.err


def test_an_out_of_domain_set_among_data_and_ood_is_told_by_its_files(densecal, complains, artefacts, drifting_files):
    path = drifting_files / "ood.safetensors"
    data = ("--data", drifting_files / "test-0.safetensors", "--data", path)
    answer = densecal("evaluate", artefacts / "ts.densecal", *data, "--ood", path)
    assert answer.code == 1
    assert complains(answer)
    assert f"{path} and {path} are both named" in answer.err


def test_the_method_without_dac_is_fitted_whatever_the_calibrator_is_called(densecal, artefacts, drifting_files, tests):
    answer = densecal(
        "evaluate", f"mine={artefacts / 'dac+ts.densecal'}", f"dac+ets={artefacts / 'ts.densecal'}", *tests,
        "--val", drifting_files / "val.safetensors", "--resamples", 0, "--json",
    )  # fmt: skip
    assert answer.json["methods"] == ["uncalibrated", "ts", "mine", "dac+ets"]
    assert "with TS by" in answer.json["verdict"]["text"]
    assert "with mine by" in answer.json["verdict"]["text"]


@pytest.mark.parametrize("name", ["[/a]", "ts[old]", "[bold]", ":warning:"])
@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_names_are_shown_as_they_are(densecal, artefacts, drifting_files, tests, command, name):
    ood = ("--ood", f"{name}={drifting_files / 'ood.safetensors'}")
    answer = densecal(command, f"{name}={artefacts / 'ts.densecal'}", *tests, *ood, "--resamples", 0)
    assert answer.code == 0, answer.err
    # Both tables of methods, the column of test sets, the out-of-domain table and its title, and the verdict.
    assert answer.out.count(name) >= (6 if command == "evaluate" else 1)


def test_out_of_domain_metrics_without_out_of_domain_data_are_said_to_be_left_out(densecal, artefacts, tests):
    answer = densecal("evaluate", artefacts / "ts.densecal", *tests, "--metric", "auroc", "--resamples", 0, "--json")
    assert answer.code == 0
    assert answer.err == "warning: --metric auroc is not evaluated: it needs out-of-domain data (--ood).\n"
    assert any("--metric auroc" in text for text in answer.json["warnings"])


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_out_of_domain_data_without_in_domain_data_are_said_to_be_left_out(
    densecal, artefacts, drifting_files, command
):
    data = ("--data", drifting_files / "test-2.safetensors", "--ood", drifting_files / "ood.safetensors")
    answer = densecal(command, artefacts / "ts.densecal", *data, "--resamples", 0)
    assert answer.code == 0
    assert "warning: The out-of-domain sets are not evaluated: that needs a set of severity 0" in answer.err


def test_a_report_on_two_banks_searches_each_set_once_per_bank(
    densecal, artefacts, drifting, drifting_files, tmp_path, searches
):
    bank = package.FeatureBank(drifting["train"].features, k=10, bank_size=100)
    package.DAC(bank).fit(drifting["val"]).save(tmp_path / "dac.densecal")
    searches.clear()
    data = ("--data", drifting_files / "test-1.safetensors", "--ood", drifting_files / "ood.safetensors")
    assert densecal("report", "dac.densecal", artefacts / "dac+ts.densecal", *data, "--resamples", 0).code == 0
    assert sorted(searches) == [16, 16, 200, 200, 300, 300]
