"""The site's page on real shift: its numbers are those of the results, and its rule follows from them."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reproduction.measuring.measurements import MeasuredSet, Measurements
from reproduction.natural.cases import CORRUPTED, NATURAL, STUDIES, read_results, shifted_cases
from reproduction.natural.figure import claims
from reproduction.natural.site import LARGE_DROP, page
from reproduction.studies import cifar100

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cases() -> pd.DataFrame:
    return shifted_cases(read_results(ROOT / "results"))


def test_the_page_is_that_of_the_committed_results(cases):
    committed = (ROOT / "docs/pages/real-shift.md").read_text(encoding="utf-8")
    assert committed == page(cases), "run `python -m reproduction.natural site`"


def test_every_case_of_every_study_is_in_the_table_and_the_picture(cases):
    assert set(cases["study"]) == set(STUDIES)
    natural = pd.read_csv(ROOT / "results/natural/pacs.csv")
    pair = natural[(natural["source"] == "photo") & (natural["target"] == "sketch")].groupby("method").mean(True)
    row = cases[(cases["source"] == "photo") & (cases["target"] == "sketch")].iloc[0]
    assert row["claim ts"] == pytest.approx(pair.loc["ts", "mean_confidence"])
    assert row["ece adapted"] == pytest.approx(pair.loc["adapted", "ece"])
    sizes = cases["study"].value_counts()
    titles = [ax.get_title(loc="left") for ax in claims(cases).axes]
    assert all(title.endswith(f"({sizes[study]})") for study, title in zip(STUDIES, titles, strict=True))


def test_the_rule_of_thumb_follows_from_the_table(cases):
    far = cases["drop"] > LARGE_DROP
    for group, most in ((NATURAL, 0.6), (CORRUPTED, 0.6)):
        part = cases[far & cases["study"].isin(group)]
        assert part["ece default"].mean() < most * part["ece ts"].mean()
        assert part["worse default"].mean() < 0.05
    near = cases[~far & cases["study"].isin(NATURAL)]
    assert near["ece default"].mean() == pytest.approx(near["ece ts"].mean(), abs=0.01)
    corrupted = cases[far & cases["study"].isin(CORRUPTED)]
    assert corrupted["off adapted"].mean() < 0.8 * corrupted["off default"].mean()
    natural = cases[far & cases["study"].isin(NATURAL)]
    assert natural["off adapted"].mean() < 0.9 * natural["off default"].mean()
    assert near["off adapted"].mean() == pytest.approx(near["off default"].mean(), abs=0.001)


def test_cases_average_seeds_and_leave_out_the_source_itself():
    rows = [
        {"study": "s", "source": "a", "target": target, "seed": seed, "method": method, "accuracy": accuracy,
         "mean_confidence": claim, "accuracy error": abs(claim - accuracy), "ece": 0.1, "low": low, "high": 0.2}
        for target, accuracy in (("a", 0.9), ("b", 0.5))
        for seed, claim, low in ((0, 0.4, 0.1), (1, 0.8, 0.1), (2, 0.6, -0.1))
        for method in ("ts", "default", "adapted", "oracle")
    ]  # fmt: skip
    (case,) = shifted_cases(pd.DataFrame(rows)).to_dict("records")
    assert case["target"] == "b" and case["drop"] == pytest.approx(0.4)
    assert case["claim default"] == pytest.approx(0.6)
    assert case["off default"] == pytest.approx((0.1 + 0.3 + 0.1) / 3)
    assert case["worse default"] and not case["better default"]


def test_cifar100_is_judged_in_every_condition(tmp_path, monkeypatch, measured):
    monkeypatch.setattr("reproduction.natural.judge.N_RESAMPLES", 20)
    sets = {name: one for name, one in measured.sets.items() if name != "ood-fashion"}
    for family in ("geometric", "tonal", "colour", "occlusion"):
        sets[f"perturbed-{family}-0"] = MeasuredSet(sets["val"].logits, sets["val"].distances * 1.1)
    nearest = {name: MeasuredSet(one.logits, np.dstack([one.distances, one.distances[..., :1]]), one.labels)
               for name, one in sets.items()}  # fmt: skip
    ours = Measurements("c100-vgg16", measured.layers, (*measured.ks, None), nearest)
    domains = cifar100.shifted_domains(ours)
    assert sum(map(len, domains.values())) == 3 * len(sets["val"])
    assert {"rotate/weak", "cutout/strong"} <= set(domains)
    ours.save(tmp_path / "measured" / "c100-vgg16")
    cifar100.main(["c100-vgg16"], tmp_path / "measured", tmp_path / "results")
    means = pd.read_csv(tmp_path / "results/c100-vgg16-means.csv")
    assert set(means["severity"]) == {"all", "0", "1", "2", "3", "4", "5"}
    with gzip.open(tmp_path / "results/c100-vgg16.csv.gz") as file:
        assert pd.read_csv(file).groupby("method").size().eq(11).all()
