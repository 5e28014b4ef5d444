from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from densecal.metrics import aupr_in, aupr_out, auroc, detection_error, fpr_at_95_tpr, ood_scores

tied_scores = st.lists(st.integers(0, 10), min_size=1, max_size=60)


@settings(max_examples=100, deadline=None)
@given(tied_scores, tied_scores)
def test_all_five_metrics_agree_with_scikit_learn_ties_included(inside, outside):
    inside, outside = np.array(inside) / 10, np.array(outside) / 10
    scores, is_inside = np.concatenate([inside, outside]), np.repeat([1, 0], [len(inside), len(outside)])
    fpr, tpr, _ = roc_curve(is_inside, scores, drop_intermediate=False)
    ours = ood_scores(inside, outside)
    assert ours.auroc == pytest.approx(roc_auc_score(is_inside, scores))
    assert ours.aupr_in == pytest.approx(average_precision_score(is_inside, scores))
    assert ours.aupr_out == pytest.approx(average_precision_score(1 - is_inside, -scores))
    assert ours.fpr_at_95_tpr == pytest.approx(fpr[tpr >= 0.95 - 1e-12].min())
    assert ours.detection_error == pytest.approx(np.min((1 - tpr + fpr) / 2))


def test_exactly_95_percent_is_enough():
    inside = np.arange(1, 21) / 20  # 19 of 20 lie above 0.05
    assert fpr_at_95_tpr(inside, [0.07]) == 0.0
    assert fpr_at_95_tpr(inside, [0.10]) == 1.0


def test_separate_domains_are_told_apart_perfectly():
    scores = ood_scores([0.8, 0.9], [0.1, 0.2, 0.3])
    assert scores.as_dict() == {
        "fpr_at_95_tpr": 0.0,
        "detection_error": 0.0,
        "auroc": 1.0,
        "aupr_in": 1.0,
        "aupr_out": 1.0,
    }


def test_scores_that_say_nothing_give_one_half():
    same = np.full(10, 0.5)
    scores = ood_scores(same, same)
    assert scores.auroc == 0.5
    assert scores.detection_error == 0.5
    assert scores.fpr_at_95_tpr == 1.0


def test_probabilities_are_taken_as_their_top_confidence():
    inside, outside = np.array([[0.1, 0.9], [0.6, 0.4]]), np.array([[0.7, 0.3]])
    for metric in (auroc, aupr_in, aupr_out, detection_error, fpr_at_95_tpr):
        assert metric(inside, outside) == metric([0.9, 0.6], [0.7])


def test_any_score_will_do_not_only_a_probability():
    assert auroc([3.0, 12.0], [-5.0, 1.0]) == 1.0


@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        ([], [0.5], "in_domain must be scores of shape"),
        ([0.5], np.zeros((1, 2, 3)), "out_of_domain must be scores of shape"),
        ([0.5], [np.nan], "out_of_domain must be finite"),
        ([[0.9, 0.9]], [0.5], "in_domain must lie in"),
    ],
)
def test_what_is_no_score_is_refused_by_name(inside, outside, message):
    with pytest.raises(ValueError, match=message):
        auroc(inside, outside)
