"""Calibrators that are compared must read the scores of the test sets in the same way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

NAMES = ["cat", "dog", "fish"]


def table(rng, names=NAMES):
    """Logits of a classifier that favours fish, with the columns in the order of the names."""
    labels = rng.integers(3, size=600)
    logits = rng.normal(size=(600, 3)) + 2 * np.eye(3)[labels] + [0, 0, 2.5]
    columns = dict(zip(NAMES, logits.T, strict=True))
    return pd.DataFrame({f"logit_{name}": columns[name] for name in names} | {"label": np.array(NAMES)[labels]})


@pytest.fixture
def fitted(densecal):
    """Calibrators of the same classes in different orders, and a test set."""
    rng = np.random.default_rng(0)
    orders = {"a": ("ts", NAMES), "same": ("ets", NAMES), "b": ("vs", ["fish", "cat", "dog"])}
    for name, (method, order) in orders.items():
        table(rng, order).to_csv(f"{name}.csv", index=False)
        assert densecal("fit", "--val", f"{name}.csv", "--method", method, "-o", f"{name}.densecal").code == 0
    table(rng).to_csv("test.csv", index=False)


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_calibrators_with_another_order_of_classes_are_not_evaluated_together(densecal, complains, fitted, command):
    options = ("--data", "test.csv", "--resamples", 0, "--json")
    alone = densecal(command, "b.densecal", *options).json["overall"]["accuracy"]
    assert {row["method"]: row["value"] > 0.8 for row in alone}["vs"]
    assert densecal(command, "a.densecal", "same.densecal", *options).code == 0
    for first, second in (("a", "b"), ("b", "a")):
        answer = densecal(command, f"{first}.densecal", f"mine={second}.densecal", *options)
        assert answer.code == 2
        assert complains(answer)
        assert f"{first}.densecal and {second}.densecal have different classes: class 0 is" in answer.err
        assert "'cat'" in answer.err and "'fish'" in answer.err and "Evaluate them one at a time." in answer.err


def test_a_calibrator_without_class_names_is_compared_if_the_user_names_the_classes(densecal, complains, fitted):
    data = pd.read_csv("a.csv")
    labels = data.pop("label").map(NAMES.index)
    np.savez("bare.npz", logits=data.to_numpy(), labels=labels)
    assert densecal("fit", "--val", "bare.npz", "--method", "ets", "-o", "bare.densecal").code == 0
    command = ("evaluate", "a.densecal", "bare.densecal", "--data", "test.csv", "--resamples", 0)
    answer = densecal(*command)
    assert answer.code == 2 and complains(answer)
    assert "class 0 is 'cat' in the first and not named in the second" in answer.err and "--classes" in answer.err
    assert densecal(*command, "--classes", ",".join(NAMES)).code == 0


def test_calibrators_with_other_probability_floors_are_not_evaluated_together(densecal, complains):
    rng = np.random.default_rng(1)
    for name, decimals in (("coarse", 2), ("fine", 9), ("test", 2)):
        labels = rng.integers(3, size=600)
        shares = np.exp(3 * rng.normal(size=(600, 3)) + 6 * np.eye(3)[labels])
        shares = (shares / shares.sum(axis=1, keepdims=True)).round(decimals)
        np.savez(f"{name}.npz", probabilities=shares, labels=labels)
    for name in ("coarse", "fine"):
        given = ("--val", f"{name}.npz", "--probabilities", "--method", "ts", "-o", f"{name}.densecal")
        assert densecal("fit", *given).code == 0
    command = ("evaluate", "coarse.densecal", "f=fine.densecal", "--data", "test.npz", "--resamples", 0)
    answer = densecal(*command, "--probabilities")
    assert answer.code == 2
    assert complains(answer)
    assert "coarse.densecal and fine.densecal have different probability floors" in answer.err
    assert "0.005" in answer.err and "Evaluate them one at a time." in answer.err
    np.savez("test.npz", logits=np.log(shares + 1e-3), labels=labels)
    assert densecal(*command, "--assume-logits").code == 0, "logits have no floor"
