from __future__ import annotations

import numpy as np
import pytest

from densecal import Outputs, TemperatureScaling
from densecal.arrays.checks import check_labels, check_logits


def test_whole_floats_and_booleans_are_labels():
    for given, expected in (([2.0, 0.0, 1.0], [2, 0, 1]), ([True, False, True], [1, 0, 1])):
        found = check_labels(np.array(given), n_samples=3, n_classes=3)
        assert found.dtype == np.int64
        assert found.tolist() == expected


def test_whole_floats_and_booleans_of_torch_are_labels():
    torch = pytest.importorskip("torch")
    for given, expected in (([2.0, 0.0, 1.0], [2, 0, 1]), ([True, False, True], [1, 0, 1])):
        found = check_labels(torch.tensor(given), n_samples=3, n_classes=3)
        assert found.dtype == torch.int64
        assert found.tolist() == expected


@pytest.mark.parametrize(
    ("value", "words"), [(0.5, "0.5 in row 1"), (np.nan, "nan in row 1"), (np.inf, "inf in row 1")]
)
def test_a_fraction_or_no_number_is_no_class(value, words):
    with pytest.raises(TypeError, match=words):
        check_labels([1.0, value], n_samples=2, n_classes=2)


def test_whole_numbers_in_an_array_of_objects_keep_their_class_though_another_is_missing():
    for numbers in ([3, 0, 3], [3.0, False, np.int8(3)]):
        found = check_labels(np.array(numbers, dtype=object), n_samples=3, n_classes=4)
        assert found.dtype == np.int64
        assert found.tolist() == [3, 0, 3]
    with pytest.raises(TypeError, match="nan in row 1"):
        check_labels(np.array([3, np.nan], dtype=object), n_samples=2, n_classes=4)


def test_names_of_classes_are_refused_with_the_way_to_number_them():
    with pytest.raises(TypeError, match="numpy.unique"):
        check_labels(["cat", "dog"], n_samples=2, n_classes=2)
    with pytest.raises(TypeError, match="numpy.unique"):
        check_labels(np.array(["cat", 1], dtype=object), n_samples=2, n_classes=2)


@pytest.mark.parametrize(("labels", "found"), [([-1, 0], "-1 to 0"), ([1, 3], "1 to 3"), ([0, 7], "0 to 7")])
def test_labels_out_of_range_are_told_what_was_given_and_what_to_do(labels, found):
    message = f"got values from {found}. If they start at 1, pass labels - 1. If a negative label .* remove those rows"
    with pytest.raises(ValueError, match=message):
        check_labels(labels, n_samples=2, n_classes=3)


def test_an_empty_set_is_called_so():
    with pytest.raises(ValueError, match="labels must have at least 1 sample"):
        check_labels([], n_samples=0, n_classes=3)
    with pytest.raises(ValueError, match=r"logits must have at least 1 sample, got shape \(0, 3\)"):
        Outputs(np.zeros((0, 3)), [])
    with pytest.raises(ValueError, match=r"logits must have at least 1 sample, got shape \(0, 3\)"):
        Outputs(np.eye(3))[:0].checked_logits()


def test_probabilities_given_as_logits_are_answered_with_a_logarithm_that_survives_a_zero():
    probabilities = np.array([[1.0, 0.0], [0.25, 0.75]])
    with pytest.raises(ValueError, match=r"numpy\.log\(numpy\.clip\(probabilities, 1e-12, None\)\)"):
        check_logits(probabilities)
    check_logits(np.log(np.clip(probabilities, 1e-12, None)))


def test_one_row_of_zeros_and_a_one_may_be_logits_but_several_are_not():
    assert check_logits([[1.0, 0.0, 0.0]]).shape == (1, 3)
    for rows in ([[0.7, 0.2, 0.1]], np.eye(3)):
        with pytest.raises(ValueError, match="look like probabilities"):
            check_logits(rows)


@pytest.fixture
def probabilities():
    logits = np.random.default_rng(0).normal(0, 3, (500, 20))
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("decimals", [1, 2, 3, 4])
def test_rounded_probabilities_are_no_logits_and_the_remedy_knows_the_rounding(probabilities, decimals):
    rounded = probabilities.round(decimals)
    for given in (rounded, rounded.astype(np.float32)):
        with pytest.raises(ValueError, match=rf"rounded probabilities.*clip\(probabilities, {10.0**-decimals / 2:g}, "):
            check_logits(given)


@pytest.mark.parametrize("decimals", [0, 1, 2, None])
def test_percentages_are_no_logits(probabilities, decimals):
    percentages = 100 * probabilities if decimals is None else (100 * probabilities).round(decimals)
    with pytest.raises(ValueError, match=r"look like (rounded )?percentages.*percentages / 100"):
        check_logits(percentages)


def test_probabilities_in_bfloat16_are_no_logits(probabilities):
    torch = pytest.importorskip("torch")
    given = torch.tensor(probabilities).bfloat16()
    assert float((given.float().sum(1) - 1).abs().max()) > 1e-3, "the sums must be off"
    with pytest.raises(ValueError, match="look like probabilities"):
        check_logits(given)


def test_logits_are_not_taken_for_probabilities(probabilities):
    logits = np.log(probabilities)
    rng = np.random.default_rng(1)
    for given in (
        logits,
        logits.round(1),
        logits - logits.min(),  # not negative
        (logits - logits.min()).round(2),
        1 / (1 + np.exp(-logits)),  # in [0, 1], one class against the others
        rng.normal(0.25, 0.03, (500, 4)),  # cosine similarities, whose mean sum is 1
        rng.integers(0, 2, (500, 4)),
        rng.integers(0, 5, (500, 20)),
        [[0.4, 0.599], [0.3, 0.701]],  # few rows, whose sums are near 1 by chance
    ):
        check_logits(given)


def test_who_knows_that_they_are_logits_can_say_so(probabilities, overconfident):
    outputs = Outputs(probabilities, probabilities.argmax(axis=1), assume_logits=True)
    np.testing.assert_array_equal(outputs[:10].checked_logits(), probabilities[:10])
    assert Outputs.concatenate([outputs, outputs]).assume_logits
    labels = (np.arange(500) % 3 == 0) + probabilities.argmax(axis=1) * (np.arange(500) % 3 != 0)
    with pytest.raises(ValueError, match="assume_logits=True"):
        TemperatureScaling().fit(Outputs(probabilities, labels))
    assert TemperatureScaling().fit(Outputs(probabilities, labels, assume_logits=True)).temperature_ < 1


def test_real_probabilities_are_found_rounded_or_not_and_their_logarithms_pass(shared_data):
    for file in sorted((shared_data / "probabilities").glob("*/*.npz")):
        given = np.load(file)["predictions"]
        for one in (given, given.round(2), given.round(3), (100 * given).round(1)):
            with pytest.raises(ValueError, match=r"numpy\.log"):
                check_logits(one)
        check_logits(np.log(np.clip(given, 5e-4, None)))
