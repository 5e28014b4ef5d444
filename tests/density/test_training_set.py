from __future__ import annotations

import warnings

import numpy as np
import pytest

from densecal.density.training_set import DuplicateCheck
from densecal.errors import CalibrationWarning


def drawn(samples, width=16, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, width))


def share(val, *batches):
    check = DuplicateCheck({"pool": val, "logits": val[:, :4]})
    for batch in batches:
        check.update({"pool": batch, "logits": batch[:, :4]})
    return check.share


def test_validation_samples_among_the_training_samples_are_found_in_any_batch():
    train, others = drawn(900), drawn(600, seed=1)
    val = np.concatenate([train[:200], others[:200]])
    assert share(val, train[:450], train[450:]) == pytest.approx(0.5, abs=0.01)
    assert share(val, others[200:]) == 0


def test_half_precision_and_the_scale_of_the_features_do_not_hide_a_duplicate():
    train = drawn(500)
    noisy = (3 * train + np.random.default_rng(1).normal(0, 1e-4, train.shape)).astype(np.float16)
    assert share(noisy, train) == 1


def test_torch_tensors_are_compared_as_arrays_are():
    torch = pytest.importorskip("torch")
    train = drawn(500)
    assert share(torch.tensor(train[:100]), torch.tensor(train)) == 1


def test_features_that_do_not_tell_inputs_apart_raise_no_alarm():
    assert share(drawn(300, width=4), drawn(50_000, width=4, seed=1)) == 0
    assert share(np.zeros((300, 16)), np.zeros((900, 16))) == 0
    few_kinds = np.eye(16)[np.arange(300) % 16]
    assert share(few_kinds, few_kinds) == 0


def test_the_warning_says_what_it_means_and_a_few_duplicates_cause_none():
    train, others = drawn(900), drawn(300, seed=1)
    check = DuplicateCheck({"pool": np.concatenate([train[:10], others[10:]])})
    check.update({"pool": train})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check.warn()
    check = DuplicateCheck({"pool": train[:300]})
    check.update({"pool": train})
    with pytest.warns(CalibrationWarning, match="100% of the validation samples are also in the training data"):
        check.warn()


def test_the_training_and_validation_sets_of_real_classifiers_raise_no_alarm():
    from sklearn.datasets import load_digits

    from densecal.demo import load_demo

    train, val = load_demo("train"), load_demo("val")
    check = DuplicateCheck(val.features)
    check.update(train.features)
    assert check.share == 0
    images = load_digits().data
    assert share(images[:300], images[300:]) == 0
