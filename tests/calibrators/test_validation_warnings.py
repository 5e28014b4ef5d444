"""Warnings about validation data are true: they come where they should, and nowhere else."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from densecal import DAC, FeatureBank, Outputs
from densecal.calibrators.validation_warnings import label_cautions
from densecal.demo import load_demo
from densecal.errors import CalibrationWarning


def problem(unit: float):
    rng = np.random.default_rng(0)
    logits, labels = unit * rng.normal(size=(500, 4)), rng.integers(0, 4, 500)
    logits[np.arange(500), labels] += unit
    return logits, labels


def masked_labels(logits, labels) -> bool:
    return any("masked class" in caution for caution in label_cautions(Outputs(logits, labels)))


def test_mistakes_of_a_classifier_with_large_scores_are_not_taken_for_masks():
    for unit in (1.0, 1e6):
        assert not masked_labels(*problem(unit))


def test_labels_of_masked_classes_are_found():
    for mask in (-1e4, -1e9, np.finfo(np.float32).min):
        logits, labels = problem(1.0)
        logits[7, labels[7]] = mask
        assert masked_labels(logits.astype(np.float32), labels)


def test_features_of_other_rows_or_classes_than_the_logits_are_noticed():
    val, new = load_demo("val"), load_demo("clean")
    calibrator = DAC(FeatureBank(load_demo("train").features, k=10)).fit(val)
    order = np.random.default_rng(0).permutation(len(new))
    shuffled = {layer: values[order] for layer, values in new.features.items()}
    with pytest.warns(CalibrationWarning, match="another order"):
        calibrator.measure(Outputs(new.logits, features=shuffled))
    with pytest.warns(CalibrationWarning, match="another order"):
        calibrator.predict_proba(new.logits[:, ::-1], features=new.features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrator.predict_proba(new)
        calibrator.predict_proba(new.logits[0:1], features={name: one[0:1] for name, one in new.features.items()})
