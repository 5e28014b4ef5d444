"""Probabilities and percentages in files: their scale is that of the fit, and their rows sum to one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

FIT = ("fit", "--val", "val.csv", "--scores", "risk", "--probabilities", "--method", "ts", "-o", "cal.densecal")
READ = ("--scores", "risk", "--probabilities")


def write(name, risk, **columns):
    pd.DataFrame({"risk": risk, **columns}).to_csv(name, index=False)


@pytest.fixture
def risks(tmp_path):
    """Risks in percent, most of them small, and a day of low ones."""
    rng = np.random.default_rng(0)
    score = rng.normal(-3, 2, 3000)
    ill = (rng.random(3000) < expit(score / 2)).astype(int)
    return 100 * expit(score), ill, np.linspace(0.02, 0.78, 20)


def found(name):
    return pd.read_csv(name)["p1"]


def test_a_day_of_low_percentages_is_read_on_the_scale_of_the_fit(densecal, risks):
    percent, ill, low = risks
    write("val.csv", percent, label=ill)
    assert densecal(*FIT).code == 0
    write("low.csv", low, label=0)
    write("mixed.csv", [*low, 90.0])
    answer = densecal("apply", "cal.densecal", "--data", "low.csv", *READ, "-o", "low-out.csv")
    assert answer.code == 0, answer.err
    assert "low.csv: no score is above 1. They are read as percentages, as in the fit or in an earlier" in answer.err
    assert "0.78 as 0.78 %" in answer.err and "If they are fractions, multiply them by 100." in answer.err
    assert densecal("apply", "cal.densecal", "--data", "mixed.csv", *READ, "-o", "mixed-out.csv").err == ""
    np.testing.assert_allclose(found("low-out.csv"), found("mixed-out.csv")[:-1], rtol=1e-6)
    evaluated = densecal("evaluate", "cal.densecal", "--data", "low.csv", *READ, "--resamples", 0, "--json")
    assert evaluated.json["overall"]["accuracy"][0]["value"] == 1


def test_a_few_low_percentages_are_no_reason_for_a_warning(densecal, risks):
    percent, ill, low = risks
    write("val.csv", percent, label=ill)
    assert densecal(*FIT).code == 0
    write("few.csv", low[:3])
    answer = densecal("apply", "cal.densecal", "--data", "few.csv", *READ, "-o", "out.csv")
    assert (answer.code, answer.err) == (0, "") and found("out.csv").max() < 0.2


def test_percentages_are_rejected_after_a_fit_on_fractions(densecal, complains, risks):
    percent, ill, _ = risks
    write("val.csv", percent / 100, label=ill)
    assert densecal(*FIT).code == 0
    write("new.csv", percent)
    answer = densecal("apply", "cal.densecal", "--data", "new.csv", *READ, "-o", "out.csv")
    assert answer.code == 1 and complains(answer)
    assert "new.csv: the scores must be fractions in [0, 1], as in the fit or in an earlier file, got" in answer.err
    assert "If they are percentages, divide them by 100." in answer.err


def test_the_files_of_one_validation_set_have_one_scale(densecal, complains, risks):
    percent, ill, _ = risks
    write("val.csv", percent, label=ill)
    write("low.csv", percent[percent < 1], label=ill[percent < 1])
    assert densecal(*FIT).code == 0
    alone = densecal("inspect", "cal.densecal", "--json").json["stages"]
    twice = densecal(*FIT, "--val", "low.csv")
    assert twice.code == 0 and "low.csv: no score is above 1" in twice.err, twice.err
    assert densecal("inspect", "cal.densecal", "--json").json["stages"] != alone
    answer = densecal("fit", "--val", "low.csv", *FIT[1:])
    assert answer.code == 1 and complains(answer) and "val.csv: the scores must be fractions" in answer.err


def test_calibrators_of_other_scales_are_not_evaluated_together(densecal, complains, risks):
    percent, ill, _ = risks
    for name, total in (("fractions", 100), ("percent", 1)):
        write("val.csv", percent / total, label=ill)
        assert densecal(*FIT[:-1], f"{name}.densecal").code == 0
    answer = densecal("evaluate", "fractions.densecal", "p=percent.densecal", "--data", "val.csv", *READ)
    assert answer.code == 2 and complains(answer)
    assert "fractions.densecal and percent.densecal were fitted on fractions and percentages." in answer.err


def rounded_rows(n_classes, decimals, total=1):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, n_classes, 400)
    shares = rng.dirichlet(np.full(n_classes, 0.3), 400) + 2 * np.eye(n_classes)[labels]
    return (total * shares / shares.sum(axis=1, keepdims=True)).round(decimals), labels


@pytest.mark.parametrize(
    ("n_classes", "decimals", "total"), [(3, 2, 1), (3, 1, 1), (100, 2, 1), (30, 0, 100), (4, 1, 100), (1000, 3, 1)]
)
def test_rows_may_be_off_by_what_rounding_explains(densecal, n_classes, decimals, total):
    shares, labels = rounded_rows(n_classes, decimals, total)
    assert np.abs(shares.sum(axis=1) - total).max() > 1e-4 * total
    np.savez("val.npz", probabilities=shares, labels=labels)
    answer = densecal("fit", "--val", "val.npz", "--probabilities", "--method", "ts", "-o", "cal.densecal")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize(("n_classes", "decimals", "total"), [(3, 2, 1), (4, 9, 1), (4, 1, 100)])
def test_a_row_that_rounding_does_not_explain_is_named_with_its_sum(densecal, complains, n_classes, decimals, total):
    shares, labels = rounded_rows(n_classes, decimals, total)
    shares[7] = [0.68 * total, 0.2 * total, *[0.0] * (n_classes - 2)]
    np.savez("val.npz", probabilities=shares, labels=labels)
    answer = densecal("fit", "--val", "val.npz", "--probabilities", "--method", "ts", "-o", "cal.densecal")
    assert answer.code == 1 and complains(answer)
    assert (
        f"row 7 sums to {0.88 * total:g} (rows count from 0). Check the values of the row, and --scores" in answer.err
    )


def test_a_missing_class_is_noticed(densecal, complains):
    shares, labels = rounded_rows(6, 3)
    np.savez("val.npz", probabilities=shares[labels < 5][:, :5], labels=labels[labels < 5])
    answer = densecal("fit", "--val", "val.npz", "--probabilities", "--method", "ts", "-o", "cal.densecal")
    assert answer.code == 1 and complains(answer) and "a class may be missing" in answer.err
