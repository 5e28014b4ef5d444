from __future__ import annotations

import numpy as np
import pytest

from densecal.arrays import asarray_like, keep_top_class, take_classes


def test_a_number_takes_the_precision_of_the_tensor_that_it_joins():
    torch = pytest.importorskip("torch")
    assert asarray_like(0.1, torch.zeros(1, dtype=torch.float64)).item() == 0.1
    assert asarray_like(np.float64(0.1), torch.zeros(1, dtype=torch.float32)).dtype == torch.float32


def test_classes_may_be_integers_of_any_width_or_booleans():
    values, classes = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([True, False])
    for dtype in (bool, np.uint8, np.int32, np.int64):
        assert take_classes(values, classes.astype(dtype)).tolist() == [2.0, 3.0]
    torch = pytest.importorskip("torch")
    for dtype in (torch.uint8, torch.int32, torch.int64):
        assert take_classes(torch.tensor(values), torch.tensor(classes, dtype=dtype)).tolist() == [2.0, 3.0]


def test_read_only_probabilities_in_the_right_order_are_returned():
    probabilities = np.array([[0.25, 0.75]])
    probabilities.flags.writeable = False
    assert keep_top_class(probabilities, np.array([[0.0, 1.0]])) is probabilities
