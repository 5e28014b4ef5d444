"""Masked classes have probability zero and no part in the answer, whatever number masks them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import densecal
from densecal import DAC, CalibrationWarning
from densecal.calibrators.registry import METHODS

MASKS = (-1e4, -1e9, float(np.finfo(np.float32).min))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(600, 4)).astype(np.float32) * 3
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits, labels


def masked(logits, value, column=3):
    logits = logits.copy()
    logits[:, column] = value
    return logits


@pytest.mark.parametrize("name", [name for name in METHODS if name != "dac"])
def test_the_number_that_masks_does_not_matter(name, problem):
    calibrator = densecal.make_calibrator(name).fit(*problem)
    answers = [calibrator.predict_proba(masked(problem[0][:50], value)) for value in MASKS]
    for answer in answers:
        np.testing.assert_allclose(answer.sum(axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(answer, answers[0], atol=1e-6)
        assert (answer[:, 3] <= answer[:, :3].min(axis=1) + 1e-6).all()
        if name in ("ts", "vs", "dir", "dia", "pts", "spl"):
            assert (answer[:, 3] == 0).all()


@pytest.mark.parametrize("name", ["vs", "dir", "dia", "pts"])
def test_masked_validation_samples_are_left_out_of_the_fit(name, problem):
    logits, labels = problem
    expected = densecal.make_calibrator(name).fit(logits[100:], labels[100:])
    mixed = np.concatenate([masked(logits[:100], -1e9), logits[100:]])
    kept = np.concatenate([np.where(labels[:100] == 3, 0, labels[:100]), labels[100:]])
    with pytest.warns(CalibrationWarning, match="100 of 600 validation samples have masked classes"):
        calibrator = densecal.make_calibrator(name).fit(mixed, kept)
    np.testing.assert_allclose(calibrator.predict_proba(logits), expected.predict_proba(logits), atol=1e-3)


@pytest.mark.parametrize("name", ["vs", "dir", "dia", "pts"])
def test_a_class_that_is_masked_everywhere_leaves_a_useful_fit(name, problem):
    logits, labels = masked(problem[0], -1e4), np.where(problem[1] == 3, 0, problem[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        answer = densecal.make_calibrator(name).fit(logits, labels).predict_proba(logits)
        plain = densecal.make_calibrator("ts").fit(logits, labels).predict_proba(logits)
    assert (answer[:, 3] == 0).all() and np.isfinite(answer).all()
    losses = [-np.log(p[np.arange(600), labels]).mean() for p in (answer, plain)]
    assert losses[0] < losses[1] + 0.05


def test_masked_classes_have_no_part_in_the_temperature_of_a_shift_fit(problem):
    logits, labels = problem
    rng = np.random.default_rng(1)
    near, far = (rng.uniform(low, low + 0.3, (600, 2)) for low in (0.2, 0.5))
    shifted = (logits, rng.permutation(labels), far)
    dac = DAC(max_clean_cost=None).fit(logits, labels, distances=near, shifted=shifted)
    found = [dac.temperatures(masked(logits, value), distances=far) for value in (-40.0, *MASKS)]
    for temperatures in found[1:]:
        np.testing.assert_allclose(temperatures, found[1], rtol=1e-5)
        assert temperatures.max() < 100


def test_rows_do_not_sum_to_two_where_rescaled_logits_tie():
    spline = densecal.SplineCalibration()
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3)).astype(np.float32) * 4
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    distances = rng.uniform(0.2, 1, (400, 1)).astype(np.float32)
    chain = densecal.Chain(DAC(), spline).fit(logits, labels, distances=distances)
    chain.stages[0].weights_, chain.stages[0].bias_ = np.zeros(1), 3.0
    top = np.float32(9.0) + np.arange(50, dtype=np.float32)
    ties = np.stack([top, np.nextafter(top, np.float32(np.inf)), top - 30], axis=1)
    assert ((ties / 3)[:, 0] == (ties / 3)[:, 1]).any()
    answer = chain.predict_proba(ties, distances=distances[:50])
    np.testing.assert_allclose(answer.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(answer.argmax(axis=1), 1)
