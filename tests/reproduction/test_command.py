from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reproduction.check import check_committed, compare
from reproduction.experiments import Reproduction
from reproduction.measuring.measurements import MeasuredSet, Measurements
from reproduction.page.write import write_page

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Made-up measurements of a CIFAR-10 classifier, small, in the folder layout of the real ones."""
    rng = np.random.default_rng(0)
    layers, ks = ("layer1", "layer4", "logits"), (1, 10, 50, 100, 200)

    def measured(samples, shift, labels=True):
        true = rng.integers(0, 10, samples)
        logits = rng.normal(0, 1 + shift, (samples, 10)) + 4 * np.eye(10)[true]
        near = rng.uniform(0.2, 0.4, (samples, len(layers), 1)) * (1 + shift)
        return MeasuredSet(2 * logits, near + np.linspace(0, 0.1, len(ks)), true if labels else None)

    sets = {"val": measured(300, 0), "clean": measured(200, 0)}
    for severity in range(1, 6):
        sets[f"fog-{severity}"] = measured(200, severity / 5)
    folder = tmp_path_factory.mktemp("results")
    Measurements("c10-resnet18", layers, ks, sets).save(folder / "measurements" / "c10-resnet18")
    return folder


def test_without_a_name_the_tables_and_figures_are_listed(command):
    answer = command()
    assert answer.code == 0, answer.err
    assert "table1" in answer.out
    assert "k-sensitivity" in answer.out


def test_a_table_is_shown_and_written(command, results, tmp_path):
    answer = command("k-sensitivity", "--rows", "c10-resnet18", "--results", results, "--resamples", 20, "-o", "made")
    assert answer.code == 0, answer.err
    table = pd.read_csv(tmp_path / "made" / "k-sensitivity.csv")
    assert set(table["classifier"]) == {"c10-resnet18"}
    assert (tmp_path / "made" / "k-sensitivity.svg").exists()


def test_machines_get_the_rows(command, results):
    answer = command("layer-importance", "--results", results, "--resamples", 20, "--json")
    assert answer.code == 0, answer.err
    assert [row["layer"] for row in answer.json["reproduced"][0]["rows"]] == ["layer1", "layer4", "logits"]


def test_an_unknown_table_is_answered_with_the_known_ones(command):
    answer = command("table99")
    assert answer.code == 1
    assert answer.err.startswith("densecal: ")
    assert answer.err.count("\n") == 1
    assert "table1" in answer.err


def test_without_measurements_it_says_so(command):
    answer = command("table1", "--results", "nowhere")
    assert answer.code == 1
    assert answer.err.startswith("densecal: ")
    assert answer.err.count("\n") == 1
    assert "no measurements" in answer.err


def test_a_table_comes_with_its_unit_its_legend_and_aligned_digits(command, results):
    answer = command("table1", "--results", results, "--resamples", 20)
    assert answer.code == 0, answer.err
    text = " ".join(answer.out.split())
    for words in ("points (x 100)", "mean: over all", "all: over", "published+X:", "*: outside the interval"):
        assert words in text
    numbers = [line.split()[-3:] for line in answer.out.splitlines() if line.startswith("c10-resnet18")]
    assert {len(cell.partition(".")[2]) for cells in numbers for cell in cells} == {2}


def test_a_paper_value_outside_our_interval_is_marked():
    from reproduction.__main__ import table_cells

    rows = [("c10-resnet18", "ts", "mean", 4.96, 5.604, 5.2, 5.7), ("c10-resnet18", "ts", "all", None, 5.6, 5.2, 5.7)]
    rows.append(("c10-resnet18", "ets", "mean", 5.5, 5.604, 5.2, 5.7))
    table = pd.DataFrame(rows, columns=["classifier", "method", "column", "paper", "ours", "low", "high"])
    assert [cells[3] for cells in table_cells("table1", table)] == ["*4.96", "–", "5.50"]


def test_a_figure_alone_says_where_it_went(command, results, tmp_path):
    answer = command("severity", "--results", results, "--resamples", 20)
    assert answer.code == 0, answer.err
    assert (tmp_path / "severity.svg").exists()
    assert str(tmp_path / "severity.svg") in answer.out
    assert "-o FOLDER" in answer.out


def test_from_another_folder_it_says_how_to_name_the_results(command):
    answer = command("table1")
    assert answer.err.startswith("densecal: ")
    assert answer.err.count("\n") == 1
    assert "--results" in answer.err


def test_a_table_is_checked_against_the_committed_one(command, results):
    made = ("k-sensitivity", "--results", results, "--resamples", 20)
    assert command(*made, "-o", results / "tables").code == 0
    answer = command(*made, "--check")
    assert answer.code == 0, answer.err
    path = results / "tables" / "k-sensitivity.csv"
    table = pd.read_csv(path)
    table.loc[3, "value"] += 0.001
    table.to_csv(path, index=False)
    answer = command(*made, "--check")
    assert answer.code == 1
    assert "1 values differ" in answer.err


def test_a_column_whose_name_is_no_identifier_is_checked_too(tmp_path):
    table = pd.DataFrame({"classifier": ["c10-resnet18"], "method": ["ts"], "in-domain": [0.02]})
    (tmp_path / "tables").mkdir()
    table.to_csv(tmp_path / "tables" / "data-efficiency.csv", index=False)
    made = Reproduction("data-efficiency", "", table.assign(**{"in-domain": 0.03}))
    assert compare(made, tmp_path).problems == ["data-efficiency c10-resnet18, ts: in-domain is 0.03, not 0.02"]


@pytest.mark.parametrize(
    ("method", "moved", "differs", "within"),
    [("dac+dia", 0.009, False, 1), ("dac+dia", 0.011, True, 0), ("dac+ets", 0.009, True, 0), ("dia", 1e-6, False, 0)],
)
def test_values_of_small_networks_may_differ_by_the_spread_of_their_refits(tmp_path, method, moved, differs, within):
    row = {"classifier": "c10-resnet18", "method": method, "column": "mean", "paper": 4.6, "ours": 5.9}
    table = pd.DataFrame([row])
    for folder in ("tables", "refits"):
        (tmp_path / folder).mkdir()
    table.to_csv(tmp_path / "tables" / "table1.csv", index=False)
    spread = {"classifier": "c10-resnet18", "base": "dia", "metric": "ece", "condition": 0.0, "mean": 1e-4}
    pd.DataFrame([spread]).to_csv(tmp_path / "refits" / "spread.csv", index=False)
    found = compare(Reproduction("table1", "", table.assign(ours=5.9 + moved)), tmp_path)
    assert (bool(found.problems), found.within_refits) == (differs, within)


@pytest.mark.parametrize(("moved", "code"), [(0.05, 0), (0.15, 1)])
def test_the_ends_of_intervals_may_differ_by_a_tenth_of_their_monte_carlo_error(command, results, moved, code):
    made = ("ece-kde", "--results", results, "--resamples", 150)
    assert command(*made, "-o", results / "tables").code == 0
    path = results / "tables" / "ece-kde.csv"
    table = pd.read_csv(path)
    error = 0.68 / 30**0.5 * (table["high"] - table["low"])  # ECE-KDE has a fifth of the resamples
    table.loc[3, "low"] -= moved * error[3]
    table.to_csv(path, index=False)
    answer = command(*made, "--check")
    assert answer.code == code, answer.err
    assert code == 0 or "low is" in answer.err


def test_the_committed_tables_are_those_of_the_committed_conditions():
    assert check_committed(RESULTS) == []


def test_the_page_is_that_of_the_committed_tables(tmp_path):
    page = RESULTS.parent / "docs" / "reproduction.md"
    (tmp_path / "reproduction").symlink_to(page.parent / "reproduction")
    write_page(tmp_path / "page.md", RESULTS)
    assert (tmp_path / "page.md").read_text() == page.read_text()
