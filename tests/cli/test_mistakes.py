"""Mistakes of users that a command must not pass over in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from scipy.special import softmax

import densecal as package
from densecal import Outputs
from densecal.cli.app import app
from densecal.cli.inputs import SingleValueCommand
from densecal.io.artefacts import read


def test_rounded_probabilities_are_refused_unless_the_user_says_that_they_are_logits(densecal, complains, drifting):
    val = drifting["val"]
    rounded = softmax(val.logits / 3, axis=1).round(3)
    for name, given in (("p.npz", rounded), ("percent.npz", 100 * rounded)):
        Outputs(given, val.labels).save(name)
        answer = densecal("fit", "--val", name, "--method", "ts", "-o", "c.densecal")
        assert answer.code == 1
        assert complains(answer)
        assert f"{name}: logits look like rounded p" in answer.err and "numpy.log(numpy.clip(p" in answer.err
    answer = densecal("fit", "--val", "p.npz", "--method", "ts", "-o", "c.densecal", "--assume-logits")
    assert answer.code == 0, answer.err
    for command in (
        ("apply", "c.densecal", "--data", "p.npz", "-o", "out.npz"),
        ("evaluate", "c.densecal", "--data", "p.npz", "--resamples", 0),
        ("inspect", "p.npz"),
    ):
        assert densecal(*command).code == 1
        assert densecal(*command, "--assume-logits").code == 0


def test_probabilities_in_place_of_logits_are_told_the_option_that_reads_them(densecal, drifting):
    Outputs(softmax(drifting["val"].logits, axis=1), drifting["val"].labels).save("p.npz")
    answer = densecal("fit", "--val", "p.npz", "--method", "ts", "-o", "c.densecal")
    assert answer.code == 1 and "on the command line: --probabilities" in answer.err


def test_a_misspelt_file_and_data_in_place_of_a_calibrator_are_said(densecal, complains, artefacts, drifting):
    drifting["val"].save("train.npz")
    answer = densecal("fit", "--val", "trian.npz", "--method", "ts", "-o", "c.densecal")
    assert answer.code == 1 and complains(answer) and "Did you mean train.npz?" in answer.err
    answer = densecal("apply", "train.npz", "--data", "train.npz", "-o", "out.csv")
    assert answer.code == 2 and complains(answer) and "train.npz is not a calibrator" in answer.err
    np.savez("nine.npz", logits=3 * np.eye(9))
    answer = densecal("apply", artefacts / "ts.densecal", "--data", "nine.npz", "-o", "out.csv")
    assert answer.code == 1 and "was fitted on 4 classes" in answer.err


def test_training_data_as_validation_data_is_an_error_in_any_format(densecal, complains, drifting, drifting_files):
    train = drifting_files / "train.safetensors"
    drifting["train"].save("copy.npz")
    for val in (train, "copy.npz"):
        answer = densecal("fit", "--train", train, "--val", val, "-o", "c.densecal")
        assert answer.code == 1
        assert complains(answer)
        assert f"--train {train} and --val {val} hold the same data" in answer.err


def test_unshifted_data_are_not_taken_for_shifted_ones(densecal, drifting_files):
    train, val = drifting_files / "train.safetensors", drifting_files / "val.safetensors"
    answer = densecal("fit", "--train", train, "--val", val, "--shifted", val, "--method", "dac", "-o", "c.densecal")
    assert answer.code == 1
    assert f"--val {val} and --shifted {val} hold the same data" in answer.err


def test_training_samples_among_the_validation_samples_are_noticed(densecal, drifting, drifting_files):
    mixed = Outputs.concatenate([drifting["train"][:100], drifting["val"][:400]])
    mixed.save("mixed.safetensors")
    train = drifting_files / "train.safetensors"
    answer = densecal("fit", "--train", train, "--val", "mixed.safetensors", "-o", "c.densecal", "--json")
    assert answer.code == 0, answer.err
    assert "20% of the validation samples have the same features as a training sample" in answer.err
    assert any("the same features as a training sample" in one for one in answer.json["warnings"])
    answer = densecal("fit", "--train", train, "--val", drifting_files / "val.safetensors", "-o", "c.densecal")
    assert "as a training sample" not in answer.err


def test_the_validation_set_is_no_test_set(densecal, artefacts, drifting_files):
    val = drifting_files / "val.safetensors"
    answer = densecal("evaluate", artefacts / "ts.densecal", "--data", val, "--val", val)
    assert answer.code == 1
    assert "hold the same data. Calibrators are evaluated on other data than they were fitted on" in answer.err
    answer = densecal("evaluate", artefacts / "ts.densecal", "--data", val, "--json")
    assert any("ts was fitted on these data" in one for one in answer.json["warnings"])


def test_an_option_that_takes_one_value_is_refused_twice_in_every_command(densecal, complains, drifting_files):
    val = drifting_files / "val.safetensors"
    answer = densecal("fit", "--method", "ts", "--method", "ets", "--val", val, "-o", "c.densecal")
    assert answer.code == 2
    assert complains(answer)
    assert "--method takes one value but is given 2 times" in answer.err
    answer = densecal("fit", "--val", val, "-o", "a.densecal", "--output", "b.densecal", "--method", "ts")
    assert (answer.code, "--output takes one value" in answer.err) == (2, True)
    assert densecal("fit", "--val", val, "--method", "ts", "-o", "c.densecal", "--json", "--json").code == 0

    def commands(group):
        for one in group.commands.values():
            yield from commands(one) if hasattr(one, "commands") else [one]

    found = list(commands(typer.main.get_command(app)))
    assert len(found) > 7 and all(isinstance(one, SingleValueCommand) for one in found)


@pytest.mark.parametrize(
    ("command", "option"), [(("fit", "--val"), "--val"), (("apply", "ts.densecal", "--data"), "--data")]
)
def test_files_of_a_pattern_that_the_shell_expanded_are_told_what_to_do(densecal, complains, command, option):
    answer = densecal(*command, "a.npz", "b.npz", "c.npz", "-o", "out.npz")
    assert answer.code == 2 and complains(answer)
    assert f"extra arguments: b.npz c.npz. An option takes one value: repeat {option} before each file" in answer.err
    assert "or quote the pattern" in answer.err


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_second_file_of_data_that_is_read_as_a_calibrator_is_told_what_to_do(
    densecal, complains, artefacts, drifting, suffix
):
    for name in ("a", "b"):
        drifting["val"].save(name + suffix)
    answer = densecal("evaluate", artefacts / "ts.densecal", "--data", "a" + suffix, "b" + suffix)
    assert answer.code in (1, 2) and complains(answer)
    assert f"b{suffix}" in answer.err and "It was read as a calibrator. For several files of data, repeat" in answer.err


def test_a_quoted_pattern_of_shifted_files_is_expanded(densecal, drifting, drifting_files):
    for number, part in enumerate((drifting["val"][:300], drifting["val"][300:600])):
        Outputs(part.logits * 0.9, part.labels, part.features).save(f"moved-{number}.npz")
    files = ("--train", drifting_files / "train.safetensors", "--val", drifting_files / "val.safetensors")
    answer = densecal("fit", *files, "--shifted", "moved-*.npz", "-o", "c.densecal", "--json")
    assert answer.code == 0, answer.err
    assert set(read("c.densecal").metadata["files"]["shifted"]) == {"moved-0.npz", "moved-1.npz"}


def test_a_misspelt_folder_is_not_made(densecal, complains, artefacts, drifting_files, tmp_path):
    val, ts = drifting_files / "val.safetensors", artefacts / "ts.densecal"
    for command in (
        ("fit", "--val", val, "--method", "ts", "-o", "nowhere/c.densecal"),
        ("apply", ts, "--data", val, "-o", "nowhere/p.npz"),
        ("report", ts, "--data", val, "-o", "nowhere/report.html"),
        ("demo", "-o", "nowhere/report.html"),
    ):
        answer = densecal(*command)
        assert answer.code == 1
        assert complains(answer)
        assert "the folder nowhere does not exist" in answer.err
    assert not (tmp_path / "nowhere").exists()


def test_a_few_samples_get_neither_an_interval_nor_a_verdict(densecal, artefacts, drifting):
    for samples in (1, 40):
        drifting["test-1"][:samples].save("few.npz")
        answer = densecal("evaluate", artefacts / "ts.densecal", "--data", "few.npz", "--resamples", 50, "--json")
        assert answer.json["verdict"]["tone"] == "untested"
        assert answer.json["verdict"]["text"].startswith(f"Too few samples for a verdict ({samples} of severity 1;")
        assert {row["low"] for row in answer.json["rows"]} == {None}
        assert densecal("report", artefacts / "ts.densecal", "--data", "few.npz", "-o", "few.html").code == 0
        assert "Too few samples for a verdict" in Path("few.html").read_text()


def test_without_resamples_the_verdict_is_not_tested(densecal, artefacts, drifting_files):
    test = drifting_files / "test-1.safetensors"
    answer = densecal("evaluate", artefacts / "ts.densecal", "--data", test, "--resamples", 0)
    assert "Not tested, since there are no bootstrap resamples: uncalibrated confidences are off by" in answer.out
    assert "no clear" not in answer.out


def test_a_natural_shift_has_its_own_row_everywhere_and_is_not_averaged_with_clean_data(
    densecal, artefacts, drifting, drifting_files
):
    odd = drifting["test-3"]
    Outputs(odd.logits, odd.labels, odd.features).save("sketches.npz")
    given = (artefacts / "ts.densecal", "--data", drifting_files / "test-0.safetensors", "--resamples", 20)
    pooled = densecal("evaluate", *given, "--data", "sketches.npz")
    assert "Pass natural shifts with --natural" in " ".join(pooled.out.split())
    alone = densecal("evaluate", *given, "--json").json
    answer = densecal("evaluate", *given, "--natural", "sketches.npz", "--json")
    assert answer.code == 0, answer.err
    assert (answer.json["severities"], answer.json["natural_shifts"]) == ([0], ["sketches"])
    assert answer.json["overall"] == alone["overall"]
    assert answer.json["by_severity"] == alone["by_severity"]
    expected = package.metrics.expected_calibration_error(softmax(odd.logits, axis=1), odd.labels)
    row = next(row for row in answer.json["by_natural_shift"]["ece"] if row["method"] == "uncalibrated")
    assert (row["condition"], row["value"]) == ("sketches", pytest.approx(expected))
    assert {(row["condition"], row["severity"]) for row in answer.json["rows"]} == {("clean", 0), ("sketches", None)}
    assert any(text.startswith("On sketches (natural shift)") for text in answer.json["verdict"]["details"])
    text = " ".join(densecal("evaluate", *given, "--natural", "sketches.npz").out.split())
    assert "sketches, natural" in text and "Natural shifts, without a severity: sketches" in text
    assert densecal("report", *given, "--natural", "sketches.npz", "-o", "page.html").code == 0
    assert Path("page.html").read_text().count("sketches (natural shift)") > 3


def test_natural_shifts_alone_ask_for_a_clean_set(densecal, artefacts, drifting):
    Outputs(drifting["test-3"].logits, drifting["test-3"].labels, metadata={"role": "natural"}).save("a.npz")
    answer = densecal("evaluate", artefacts / "ts.densecal", "--data", "a.npz")
    assert answer.code == 1
    assert "Natural shifts are compared with clean data" in answer.err


def test_the_loss_can_be_chosen(densecal, complains, drifting, drifting_files, tmp_path):
    val = drifting["val"]
    for options, loss in (((), "nll"), (("--loss", "brier"), "brier")):
        command = ("fit", "--val", drifting_files / "val.safetensors", "--method", "ts", "-o", "ts.densecal", *options)
        assert densecal(*command).code == 0
        expected = package.TemperatureScaling(loss=loss).fit(val).temperature_
        assert package.load(tmp_path / "ts.densecal").temperature_ == expected
    for options, words in (
        (("ts", "--loss", "mse"), "loss must be one of"),
        (("irm", "--loss", "nll"), "no choice of"),
    ):
        answer = densecal("fit", "--val", drifting_files / "val.safetensors", "-o", "c.densecal", "--method", *options)
        assert answer.code == 2
        assert complains(answer)
        assert words in answer.err


@pytest.mark.parametrize("other", ["npz", "csv"])
def test_one_validation_set_in_two_formats_is_not_fitted_on_twice(densecal, complains, drifting, other):
    val = drifting["val"]
    Outputs(val.logits, val.labels).save("val.safetensors")
    if other == "npz":
        np.savez("copy.npz", logits=val.logits, labels=val.labels)
    else:
        table = pd.DataFrame(val.logits).add_prefix("logit").assign(label=val.labels)
        table.to_csv("copy.csv", index=False)
    Outputs(val.logits[::-1], val.labels[::-1]).save("other.safetensors")
    fit = ("fit", "--method", "ts", "-o", "ts.densecal", "--val", "val.safetensors", "--val")
    answer = densecal(*fit, f"copy.{other}")
    assert (answer.code, complains(answer)) == (1, True)
    assert f"val.safetensors and copy.{other} hold the same data. Pass one of them." in answer.err
    assert densecal(*fit, "other.safetensors").code == 0


def test_small_files_may_have_the_same_outputs_by_chance(densecal):
    tree = np.array([[2.0, 0.0], [0.0, 2.0]])
    paths = [f"clinic-{place}.npz" for place in range(40)]
    rng = np.random.default_rng(0)
    for path in paths:
        labels = rng.integers(0, 2, 3)
        np.savez(path, logits=tree[labels ^ (rng.random(3) < 0.2)], labels=labels)
    assert (
        densecal(
            "fit", "--method", "ts", "-o", "ts.densecal", *(part for path in paths for part in ("--val", path))
        ).code
        == 0
    )


def test_samples_with_the_id_of_another_are_noticed(densecal, artefacts, drifting):
    test = drifting["test-0"]
    arrays = {f"features/{layer}": values for layer, values in test.features.items()}
    ids = np.arange(len(test))
    ids[-2:] = 0
    np.savez("test.npz", logits=test.logits, labels=test.labels, key=ids, **arrays)
    answer = densecal("evaluate", artefacts / "ts.densecal", "--data", "test.npz", "--id", "key")
    assert answer.code == 0, answer.err
    assert f"test.npz: 2 of {len(test):,} samples have the id of an earlier one." in answer.err


def test_too_few_validation_samples_are_told_how_many_are_enough(densecal):
    rng = np.random.default_rng(0)
    for n_classes, n_samples, enough in ((3, 500, "1,000."), (100, 1500, "2,000, 20 per class.")):
        logits = rng.normal(size=(n_samples, n_classes))
        Outputs(logits, rng.permutation(np.arange(n_samples) % n_classes)).save("val.npz")
        answer = densecal("fit", "--val", "val.npz", "--method", "ts", "-o", "ts.densecal")
        assert f"overfit. Use at least {enough}" in answer.err


def test_accurate_and_under_confident_is_what_training_data_look_like(densecal):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 2000)
    logits = rng.normal(0, 0.3, (2000, 3)) + 3 * np.eye(3)[labels]
    logits *= 2
    wrong = np.where(np.arange(2000) % 200 == 0, (labels + 1) % 3, labels)
    Outputs(logits, wrong).save("train.npz")
    answer = densecal("fit", "--val", "train.npz", "--method", "ts", "-o", "c.densecal")
    assert answer.code == 0, answer.err
    assert "Check that the validation data are not training data" not in answer.err, "T is not far below 1"
    Outputs(logits / 6, wrong).save("train.npz")
    answer = densecal("fit", "--val", "train.npz", "--method", "ts", "-o", "c.densecal")
    assert "Check that the validation data are not training data" in answer.err


def test_scores_are_not_read_in_another_convention_than_that_of_the_fit(densecal, complains):
    rng = np.random.default_rng(0)
    logit = rng.normal(0, 3, 2000)
    ill = (rng.random(2000) < 1 / (1 + np.exp(-logit / 2))).astype(int)
    percent = (100 / (1 + np.exp(-logit))).round(1)
    pd.DataFrame({"pct": percent, "logit": logit, "label": ill}).to_csv("risk.csv", index=False)
    fit = ("fit", "--val", "risk.csv", "--method", "ts", "-o", "cal.densecal", "--scores")
    answer = densecal(*fit, "pct")
    assert answer.code == 1 and complains(answer)
    assert "every score lies in [0, 100], as percentages do. Pass --probabilities or, if they are" in answer.err
    assert densecal(*fit, "pct", "--assume-logits").code == 0
    assert densecal(*fit, "pct", "--probabilities").code == 0
    for command in (("apply", "-o", "out.csv"), ("evaluate", "--resamples", 0), ("report", "-o", "page.html")):
        run = (command[0], "cal.densecal", "--data", "risk.csv", "--scores", "pct", *command[1:])
        answer = densecal(*run)
        assert answer.code == 1 and complains(answer)
        assert "cal.densecal: the calibrator was fitted on probabilities, but the scores are to be read" in answer.err
    percentages = ("--data", "risk.csv", "--scores", "pct", "-o", "o.csv")
    assert densecal("apply", "cal.densecal", *percentages, "--probabilities").code == 0
    logits = ("--data", "risk.csv", "--scores", "logit", "-o", "o.csv")
    assert densecal("apply", "cal.densecal", *logits, "--assume-logits").code == 0
    assert densecal(*fit, "logit").code == 0
    pd.DataFrame({"logit": np.abs(logit)}).to_csv("all-ill.csv", index=False)
    one_sided = densecal("apply", "cal.densecal", "--data", "all-ill.csv", "--scores", "logit", "-o", "o.csv")
    assert one_sided.code == 0, "the calibrator was fitted on logits, so positive ones are logits"
