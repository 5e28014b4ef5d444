from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from densecal.metrics import (
    METRICS,
    MetricState,
    brier_score,
    classwise_calibration_error,
    evaluate,
    expected_calibration_error,
    negative_log_likelihood,
    reliability_curve,
)

GOOD = np.array([[0.25, 0.75], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("first", "second", "error", "message"),
    [
        (GOOD, [0, 2], ValueError, r"labels must lie in 0 \.\.\. 1"),
        (GOOD, [0.5, 1.0], TypeError, "labels must be integers"),
        (GOOD, [0, None], TypeError, "labels must be integers 0 ... 1, got none in row 1"),
        (GOOD, pd.Series(["a", pd.NA]), TypeError, "labels must be integers 0 ... 1, got none in row 1"),
        (GOOD, [0], ValueError, "labels must have shape"),
        (GOOD, [True, False], TypeError, "got booleans.* pass the top-1 confidence"),
        ([[2.0, -1.0]], [0], ValueError, "probabilities must lie in"),
        ([[np.nan, 1.0]], [0], ValueError, "probabilities must be finite"),
        ([[0.5, 0.9]], [0], ValueError, "sum to 1 in every row"),
        ([], [], ValueError, "at least 1 sample"),
        (0.5, True, ValueError, "must have shape"),
        ([0.5, 0.7], [1, 0], TypeError, "must be booleans .*predicted == labels"),
        ([0.5, 0.7], [True], ValueError, r"correct must have the shape of the confidence, \(2,\)"),
        ([0.5, 97.0], [True, False], ValueError, "confidence must lie in .* 97"),
        ([0.5, np.inf], [True, False], ValueError, "confidence must be finite"),
    ],
)
def test_invalid_inputs_are_refused_by_name(first, second, error, message):
    with pytest.raises(error, match=message):
        expected_calibration_error(first, second)


@pytest.mark.parametrize("name", [row.name for row in METRICS.values() if row.needs == "distribution"])
def test_a_metric_of_the_whole_distribution_says_so_to_a_confidence(name):
    with pytest.raises(ValueError, match="needs the whole distribution"):
        METRICS[name]([0.5, 0.7], [True, False])


@pytest.mark.parametrize("n_bins", [0, -3, 2.5, True])
def test_a_number_of_bins_is_a_whole_number(n_bins):
    with pytest.raises(ValueError, match="n_bins must be an integer of at least 1"):
        reliability_curve(GOOD, [0, 1], n_bins=n_bins)


def test_unknown_options_are_named():
    with pytest.raises(ValueError, match=r"binning must be .* 'quantile'"):
        expected_calibration_error(GOOD, [0, 1], binning="quantile")
    with pytest.raises(ValueError, match=r"norm must be .* 'l3'"):
        expected_calibration_error(GOOD, [0, 1], norm="l3")
    with pytest.raises(ValueError, match=r"reduction must be .* 'max'"):
        classwise_calibration_error(GOOD, [0, 1], reduction="max")


def test_a_confidence_given_twice_is_refused():
    with pytest.raises(ValueError, match="confidence must be None"):
        evaluate([0.5], [True], confidence=[0.6])


def test_rounding_beyond_one_is_forgiven():
    assert expected_calibration_error([1.0 + 1e-9], [True]) == 0.0
    assert evaluate([[1.0 + 1e-9, -1e-9]], [0]).ece == pytest.approx(0.0, abs=1e-8)


def test_half_precision_and_lists_are_read():
    assert brier_score(GOOD.astype(np.float16), [1, 0]) == brier_score(GOOD.tolist(), [1, 0])


@pytest.mark.parametrize(
    "metric", [evaluate, brier_score, negative_log_likelihood, classwise_calibration_error, MetricState().update]
)
def test_whether_predictions_were_right_is_not_taken_for_their_classes(metric):
    with pytest.raises(TypeError, match=r"got booleans.* pass the top-1 confidence"):
        metric(GOOD, GOOD.argmax(axis=1) == [1, 1])
