from __future__ import annotations

import warnings

import numpy as np
import pytest

from densecal.density.duplicates import DuplicateCheck
from densecal.errors import CalibrationWarning


def drawn(samples, width=16, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, width))


def checked(val, *batches):
    check = DuplicateCheck({"pool": val, "logits": val[:, :4]})
    for batch in batches:
        check.update({"pool": batch, "logits": batch[:, :4]})
    return check


def share(val, *batches):
    return checked(val, *batches).share


def warned(check):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        check.warn()
    return bool(caught)


def survey(samples, seed, questions=8):
    """The one-hot answers to some questions, where some answers are more common than others."""
    answers = np.random.default_rng(seed).choice(4, (samples, questions), p=[0.6, 0.2, 0.15, 0.05])
    return np.eye(4)[answers].reshape(samples, -1)


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
    assert not warned(checked(drawn(300, width=4), drawn(50_000, width=4, seed=1)))
    assert not warned(checked(drawn(300, width=2), drawn(50_000, width=2, seed=1)))
    assert not warned(checked(np.zeros((300, 16)), np.zeros((900, 16))))
    few_kinds = np.eye(16)[np.arange(300) % 16]
    assert not warned(checked(few_kinds, few_kinds))


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("samples", [2000, 12_000])
def test_people_who_give_the_same_answers_are_not_taken_for_the_same_people(samples, in_order):
    train, val = survey(samples, 0), survey(1000, 1)
    train = train[np.lexsort(train.T)] if in_order else train
    batches = np.array_split(train, 30)
    check = checked(val, *batches)
    _, group, count = np.unique(train, axis=0, return_inverse=True, return_counts=True)
    assert check.share > 0.3
    assert check.coincidence == pytest.approx((count[group.ravel()] > 1).mean(), abs=0.1)
    assert not warned(check)
    leaked = checked(train[np.random.default_rng(2).permutation(samples)[:1000]], *batches)
    assert leaked.share == 1 and warned(leaked)


def test_repeated_training_samples_do_not_hide_that_validation_samples_are_among_them():
    train = drawn(1000)
    oversampled = np.concatenate([train, train[:150], train[:150]])
    assert checked(train[:300], oversampled).coincidence == pytest.approx(450 / 1300, abs=0.06)
    assert warned(checked(train[:300], oversampled))
    assert not warned(checked(drawn(300, seed=1), oversampled))


def test_training_samples_that_occur_twice_hide_nothing():
    train = drawn(5000)
    twice = np.random.default_rng(1).permutation(np.concatenate([train, train]))
    assert warned(checked(train[:300], twice))
    assert not warned(checked(drawn(300, seed=2), twice))


def test_a_survey_without_its_repeated_answers_is_not_taken_for_a_leak():
    train, val = np.unique(survey(20_000, 0, questions=4), axis=0), survey(300, 1, questions=4)
    check = checked(val, train)
    assert check.share > 0.9 and check.coincidence == 0
    assert not warned(check)


def test_the_check_depends_neither_on_the_size_of_the_batches_nor_on_chance():
    train, val = survey(3000, 0), survey(500, 1)
    found = [checked(val, *np.array_split(train, parts)) for parts in (1, 1, 7, 300)]
    assert len({(one.share, one.coincidence) for one in found}) == 1


def test_the_warning_says_what_it_means_and_a_few_duplicates_cause_none():
    train, others = drawn(900), drawn(300, seed=1)
    check = DuplicateCheck({"pool": np.concatenate([train[:10], others[10:]])})
    check.update({"pool": train})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check.warn()
    check = DuplicateCheck({"pool": train[:300]})
    check.update({"pool": train})
    message = (
        "100% of the validation samples have the same features as a training sample, but only 0% would by coincidence"
    )
    with pytest.warns(CalibrationWarning, match=message):
        check.warn()


def test_nothing_to_compare_raises_no_alarm():
    for features in ({}, {"pool": drawn(0)}, {"pool": drawn(300)}):
        check = DuplicateCheck(features)
        assert not warned(check)
        check.update({"pool": drawn(0)})
        assert not warned(check) and check.share == check.coincidence == 0


def test_the_training_and_validation_sets_of_real_classifiers_raise_no_alarm():
    from sklearn.datasets import load_digits

    from densecal.demo import load_demo

    train, val = load_demo("train"), load_demo("val")
    check = DuplicateCheck(val.features)
    check.update(train.features)
    assert check.share == 0 and not warned(check)
    images = load_digits().data
    assert share(images[:300], images[300:]) == 0
