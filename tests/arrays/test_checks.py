from __future__ import annotations

import numpy as np
import pytest

from densecal import Outputs
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


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        ([-1, 0], "remove those rows"),
        ([1, 3], "start at 1, pass labels - 1"),
        ([0, 7], "have the same classes"),
        ([1, 7], "have the same classes"),
    ],
)
def test_the_hint_about_labels_out_of_range_fits_what_was_given(labels, hint):
    with pytest.raises(ValueError, match=hint):
        check_labels(labels, n_samples=2, n_classes=3)


def test_an_empty_set_is_called_so():
    with pytest.raises(ValueError, match="labels must have at least 1 sample"):
        check_labels([], n_samples=0, n_classes=3)
    with pytest.raises(ValueError, match=r"logits must have at least 1 sample, got shape \(0, 3\)"):
        Outputs(np.zeros((0, 3)), [])


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
