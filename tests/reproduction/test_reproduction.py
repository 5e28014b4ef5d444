from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from densecal.metrics import OOD_METRICS
from reproduction.experiments import EXPERIMENTS, Reproduction, reproduce
from reproduction.measuring.measurements import MeasuredSet, Measurements
from reproduction.page.write import write_page
from reproduction.protocol import ALL_METRICS, Protocol
from reproduction.published import published_numbers
from reproduction.studies import sensitivity

ROW = "c10-resnet18"
N_RESAMPLES = 20


@pytest.fixture(scope="module")
def everything(measured, tmp_path_factory):
    """Results with the selected layers, and with all layers on fewer images."""
    folder = tmp_path_factory.mktemp("everything")
    measured.save(folder / "measurements" / ROW)
    names = ("conv1", "maxpool", "layer1.0.relu", "layer1.1.relu:2", "layer2.0.relu", "layer3.1.relu:2")
    names += ("layer4.1.conv2", "layer4.1.relu:2", "avgpool", "fc")
    sets = {}
    for name, each in measured.sets.items():
        few = each if name == "val" else each.rows(np.arange(100))
        deep = np.repeat(few.distances[:, :1, 2:3], len(names), axis=1) * np.linspace(0.9, 1.1, len(names))[:, None]
        sets[name] = MeasuredSet(few.logits, deep, few.labels)
    Measurements(ROW, names, (50,), sets).save(folder / "measurements" / f"{ROW}-all-layers")
    return Protocol(folder, (*ALL_METRICS, *OOD_METRICS), N_RESAMPLES)


def make(name, protocol):
    return reproduce(name, [ROW], protocol=protocol)


@pytest.mark.parametrize("name", ["table1", "brier", "additional", "ece-mass", "ece-kde", "classwise-ece", "nll"])
def test_a_mean_table_has_the_papers_number_beside_ours_in_every_cell_of_the_paper(everything, name):
    table = make(name, everything).table
    paper = published_numbers({"table1": "ece", "additional": "ece-additional"}.get(name, name))
    wanted = {method: value for (row, method, _), value in paper.items() if row == ROW}
    means = table[table["column"] == "mean"].set_index("method")
    assert means["paper"].dropna().to_dict() == wanted
    assert means["ours"].notna().all()
    assert {"oracle", "published+ts" if name != "additional" else "published+pts"} <= set(means.index)


def test_table2_is_the_paired_change_of_the_ece(everything):
    table = make("table2", everything).table
    change = everything.table(ROW, ["dac+ets", "ets"]).difference("dac+ets", "ets", "ece", 5)
    cell = table[(table["method"] == "dac+ets") & (table["column"] == "severity-5")].iloc[0]
    assert (cell["ours"], cell["paper"]) == (pytest.approx(100 * change.estimate), -1.25)
    assert cell["low"] <= cell["ours"] <= cell["high"]


@pytest.mark.parametrize(
    "name", [name for name, e in EXPERIMENTS.items() if name not in ("data-efficiency", "trade-off", "others")]
)
def test_every_experiment_makes_a_table_or_a_figure_and_saves_it(everything, tmp_path, name):
    made = make(name, everything)
    written = made.save(tmp_path)
    assert written
    assert all(path.stat().st_size > 100 for path in written)


def test_saving_keeps_the_rows_of_other_classifiers_in_the_papers_order(tmp_path):
    table = pd.DataFrame({"classifier": ["c100-vgg16", "c10-vgg16"], "value": [1.0, 2.0]})
    (path,) = Reproduction("table1", "", table).save(tmp_path)
    path.write_text(path.read_text().replace("c10-vgg16,2", "c10-vgg16,2.1250000001"))
    fresh = pd.DataFrame({"classifier": ["c100-vgg16", "c10-resnet18"], "value": [3.0, 4.0]})
    (path,) = Reproduction("table1", "", fresh).save(tmp_path)
    found = pd.read_csv(path).set_index("classifier")["value"]
    assert found.to_dict() == {"c10-resnet18": 4.0, "c10-vgg16": 2.1250000001, "c100-vgg16": 3.0}
    assert list(found.index) == ["c10-resnet18", "c10-vgg16", "c100-vgg16"]


def test_data_efficiency_fits_on_random_shares(everything):
    table = sensitivity.data_efficiency(everything, ROW, ("ts", "dac+ets"), fractions=(0.5, 1.0), draws=2)
    assert list(table["fraction"]) == [0.5, 0.5, 1.0] * 2
    assert table[table["fraction"] == 0.5]["all"].nunique() == 4
    assert (table["severity-5"] > table["in-domain"]).all()


def test_k_sensitivity_has_one_row_a_neighbour_and_one_without_dac(everything):
    table = sensitivity.k_sensitivity(everything, ROW, ("ets",))
    assert table[table["method"] == "dac+ets"]["k"].tolist() == [1, 10, 50, 100, 200]
    assert table[table["method"] == "ets"]["k"].isna().all()


def test_layer_choice_compares_on_the_sets_that_have_all_layers(everything):
    table = sensitivity.layer_choice(everything, ROW, ("ets",))
    assert table["layers"].tolist() == ["without DAC", "no layer", "logits layer", "selected layers", "all layers"]


def test_a_selected_layer_is_found_among_all_as_its_blocks_last_output(everything):
    weights = sensitivity.layer_weights(everything, ROW)
    assert list(weights["selected layers"]) == [
        "maxpool", "layer1.1.relu:2", "layer2.0.relu", "layer3.1.relu:2", "layer4.1.relu:2", "fc",
    ]  # fmt: skip
    assert sum(weights["all layers"].values()) == pytest.approx(1, abs=1e-6)


def test_the_same_figure_is_the_same_file(everything, tmp_path):
    first, second = (make("severity", everything).save(tmp_path / name)[0].read_bytes() for name in "ab")
    assert first == second


def test_the_page_shows_paper_ours_and_difference_and_what_was_not_run(everything, tmp_path):
    for name in ("table1", "table2", "effect", "accuracy", "conditions", "ood", "cost"):
        make(name, everything).save(tmp_path / "results" / "tables")
    path = tmp_path / "reproduction.md"
    write_page(path, tmp_path / "results")
    text = path.read_text()
    assert "| ETS + DAC | 4.39 | " in text
    assert "C10 ResNet18: paper | ours [95 %] | ours - paper" in text
    assert "| IMG ViT-B | imagenet | timm: vit_base_patch16_224" in text
    assert "DAC lowers the mean ECE of" in text


def test_the_tidy_table_has_a_row_for_every_method_condition_and_metric(everything):
    table = make("conditions", everything).table
    columns = ["classifier", "method", "condition", "severity", "metric", "value", "low", "high"]
    assert list(table.columns) == columns
    assert len(table) == 27 * 11 * 8
    assert {"clean", "shot_noise-5"} <= set(table["condition"])


def test_an_unknown_experiment_is_answered_with_the_known_ones(everything):
    with pytest.raises(ValueError, match=r"table1, brier, .*got 'table9'"):
        reproduce("table9", protocol=everything)
