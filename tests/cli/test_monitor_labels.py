"""Labels of ``densecal monitor`` that have arrived for some samples only."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from densecal.demo import load_demo

N_SAMPLES, N_LABELLED = 300, 120


@pytest.fixture
def day():
    """A day as a table without labels, its labels, and which of its samples are classified correctly."""
    outputs = load_demo("clean")[:N_SAMPLES]
    table = {"key": [f"{row:03}" for row in range(N_SAMPLES)]}
    table |= {f"logit{place}": column for place, column in enumerate(outputs.logits.T)}
    for layer, array in outputs.features.items():
        table |= {f"features/{layer}/{place}": column for place, column in enumerate(array.T)}
    return pd.DataFrame(table), outputs.labels, outputs.logits.argmax(axis=1) == outputs.labels


@pytest.fixture
def with_label():
    rows = np.zeros(N_SAMPLES, bool)
    rows[np.random.default_rng(0).permutation(N_SAMPLES)[:N_LABELLED]] = True
    return rows


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_without_a_label_are_unlabelled_and_get_it_later(densecal, folder, day, with_label, suffix, named):
    table, labels, is_right = day
    truth = pd.Series(labels).map("class {}".format) if named else pd.Series(labels, dtype="Int64")
    parts = table.assign(label=truth.where(with_label)), table[["key"]].assign(label=truth.where(~with_label))
    for name, part in zip(("day", "late"), parts, strict=True):
        path = f"{name}.{suffix}"
        part.to_csv(path, index=False) if suffix == "csv" else part.to_parquet(path, index=False)
    classes = ",".join(f"class {place}" for place in range(10))
    run = ("monitor", folder / "cal", "--state", "state", "--window", 100, "--alarm-below", 0.8, "--json")
    run = (*run, "--id", "key", *(("--classes", classes) if named else ()))
    first = densecal(*run, "--data", f"day.{suffix}")
    assert first.code == 0, first.err
    windows = np.arange(N_SAMPLES) // 100
    found = [(one["n_labels"], one["n_right"]) for one in first.json["windows"]]
    in_window = [with_label & (windows == number) for number in range(3)]
    assert found == [(rows.sum(), (rows & is_right).sum()) for rows in in_window]
    then = densecal(*run, "--late-labels", f"late.{suffix}")
    assert (then.err, [one["n_labels"] for one in then.json["windows"]]) == ("", [100, 100, 100])
    assert sum(one["n_right"] for one in then.json["windows"]) == is_right.sum()


def test_a_day_without_any_label_yet_and_labels_out_of_range(densecal, folder, day):
    table, labels, _ = day
    run = ("monitor", folder / "cal", "--alarm-below", 0.8, "--scores", "logit*", "--json", "--data", "day.csv")
    table.assign(label="").to_csv("day.csv", index=False)
    assert densecal(*run).json["windows"][0]["n_labels"] == 0
    table.assign(label=["", 10, *labels[2:]]).to_csv("day.csv", index=False)
    answer = densecal(*run)
    assert (answer.code, "day.csv: labels must lie in 0 ... 9" in answer.err) == (1, True)


def test_other_commands_still_ask_for_every_label(densecal, folder, day):
    table, labels, _ = day
    table.assign(label=["", *labels[1:]]).to_csv("day.csv", index=False)
    answer = densecal("evaluate", folder / "cal", "--data", "day.csv", "--scores", "logit*", "--resamples", 0)
    assert (answer.code, "in row 0" in answer.err) == (1, True)


def test_new_labels_far_below_the_limit_give_the_exit_code_of_an_alarm_once(densecal, folder, day):
    table, labels, is_right = day
    table.to_csv("day.csv", index=False)
    run = ("monitor", folder / "cal", "--state", "state", "--window", 100, "--alarm-below", 0.6, "--id", "key")
    assert densecal(*run, "--data", "day.csv").code == 0
    wrong = np.where(np.arange(N_SAMPLES) % 3 == 0, labels, (labels + 1 + is_right) % 10)
    pd.DataFrame({"key": table["key"], "label": wrong}).to_csv("late.csv", index=False)
    late = densecal(*run, "--late-labels", "late.csv", "--json")
    assert late.code == 3 and late.json["alarm"] is True and late.json["alarms"] == []
    assert late.json["labels_below"] == [0, 1, 2]
    again = densecal(*run)
    assert again.code == 0 and "by more than chance. The estimated accuracy is" in " ".join(again.out.split())
