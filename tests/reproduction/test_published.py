from __future__ import annotations

import pytest

from reproduction.classifiers import CLASSIFIERS
from reproduction.published import published_numbers

MEANS = ("ece", "brier", "ece-mass", "ece-kde", "classwise-ece", "nll")


@pytest.mark.parametrize(("table", "cells"), [("ece", 132), ("brier", 108), ("ece-mass", 132), ("ece-kde", 132)])
def test_every_cell_of_a_mean_table_is_there_for_all_twelve_classifiers(table, cells):
    numbers = published_numbers(table)
    assert len(numbers) == cells
    assert {classifier for classifier, _, _ in numbers} == {n for n, c in CLASSIFIERS.items() if c.in_paper}


def test_cells_copied_by_hand_agree_with_the_parsed_ones():
    ece, brier, nll = (published_numbers(name) for name in ("ece", "brier", "nll"))
    assert ece["c10-densenet121", "dac+spl", "mean"] == 4.42
    assert ece["img-xception", "irm", "mean"] == 12.93
    assert ece["img-vit-b", "uncalibrated", "mean"] == 3.78
    assert brier["c10-resnet18", "dac+ets", "mean"] == 0.3841
    assert nll["img-resnext-wsl", "irm", "mean"] == 1.7881
    assert published_numbers("classwise-ece")["c100-densenet121", "dac+dia", "mean"] == 56.51
    assert published_numbers("ece-additional")["c10-vgg16", "dac+dir", "mean"] == 7.62
    assert published_numbers("ood")["img-vit-b", "dac+irm", "fpr_at_95_tpr"] == 5.42
    assert published_numbers("cost-training")["img-densenet169", "dia", "total"] == 11090.09


def test_the_method_that_did_not_run_on_imagenet_has_no_numbers_there():
    assert ("img-resnet152", "dir", "mean") not in published_numbers("ece-additional")


def test_table_one_is_the_mean_over_91_conditions_and_table_two_the_mean_over_six_severities():
    ece, delta = published_numbers("ece"), published_numbers("delta")
    for (classifier, method, column), all_six in delta.items():
        if column != "all":
            continue
        in_domain = delta[classifier, method, "in-domain"]
        shifted = (6 * all_six - in_domain) / 5
        over_91 = (in_domain + 90 * shifted) / 91
        printed = ece[classifier, f"dac+{method}", "mean"] - ece[classifier, method, "mean"]
        assert over_91 == pytest.approx(printed, abs=0.025)


def test_an_unknown_table_is_named():
    with pytest.raises(ValueError, match="no table 'table9'"):
        published_numbers("table9")
