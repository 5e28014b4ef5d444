from __future__ import annotations

import json

import numpy as np
import pytest

from densecal import metrics
from densecal.metrics import METRICS, evaluate


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(4), size=200), rng.integers(0, 4, size=200)


def test_a_row_holds_what_each_function_says(predictions):
    row = evaluate(*predictions).as_dict()
    for name, metric in METRICS.items():
        if metric.needs != "in and out of domain":
            assert row[name] == pytest.approx(metric(*predictions), rel=1e-12), name
    assert row["n_samples"] == 200
    assert row["mean_confidence"] == pytest.approx(predictions[0].max(axis=1).mean())


def test_a_calibrators_own_confidence_replaces_the_largest_probability(predictions):
    probabilities, labels = predictions
    own = np.full(200, 0.25)
    row, plain = evaluate(probabilities, labels, confidence=own), evaluate(probabilities, labels)
    assert row.mean_confidence == 0.25
    assert row.ece == pytest.approx(abs(0.25 - plain.accuracy))
    assert (row.accuracy, row.brier, row.nll, row.classwise_ece) == (
        plain.accuracy,
        plain.brier,
        plain.nll,
        plain.classwise_ece,
    )


def test_a_confidence_alone_gives_the_top_1_metrics_and_nothing_for_the_rest(predictions):
    probabilities, labels = predictions
    row = evaluate(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels)
    plain = evaluate(probabilities, labels)
    assert (row.ece, row.ece_mass, row.ece_kde, row.ks) == (plain.ece, plain.ece_mass, plain.ece_kde, plain.ks)
    assert row.brier is row.nll is row.classwise_ece is row.classwise_ece_sum is None


def test_a_row_can_be_written_as_json(predictions):
    assert json.loads(json.dumps(evaluate(*predictions, kde=False).as_dict()))["ece_kde"] is None


def test_every_metric_says_what_it_is():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.symbol and metric.description and metric.better in ("lower", "higher")
        assert metric.function.__name__ in metrics.__all__


def test_a_perfect_classifier_is_best_in_every_metric_in_the_direction_the_table_says():
    perfect = evaluate(np.eye(3), [0, 1, 2]).as_dict()
    wrong = evaluate(np.eye(3), [1, 2, 0]).as_dict()
    for name, value in perfect.items():
        if name in METRICS:
            best, worst = (value, wrong[name]) if METRICS[name].better == "higher" else (wrong[name], value)
            assert best > worst, name
            assert min(best, worst) >= 0 and max(best, worst) <= METRICS[name].largest + 1e-12
