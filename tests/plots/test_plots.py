from __future__ import annotations

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("agg")
import matplotlib.pyplot as plt

from densecal import plots
from densecal.metrics import reliability_curve
from densecal.plots.confidence import accuracy_band


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, 800)
    return confidence, rng.random(800) < confidence**2


def severity_table():
    rows = [
        (method, severity, value * (1 + severity), value * (1 + severity) - 0.005, value * (1 + severity) + 0.005)
        for method, value in (("uncalibrated", 0.08), ("ts", 0.03), ("dac+ts", 0.02))
        for severity in range(6)
    ]
    return pd.DataFrame(rows, columns=["method", "severity", "value", "low", "high"])


def draw_everything(predictions, ax):
    k_table = pd.DataFrame({"method": ["ts", "dac+ts", "dac+ts"], "k": [np.nan, 1, 50], "value": [0.1, 0.09, 0.08]})
    share = pd.DataFrame({"method": ["ts"] * 4, "fraction": [0.1, 0.1, 1.0, 1.0], "value": [0.1, 0.12, 0.1, 0.11]})
    return [
        plots.reliability_diagram(*predictions, ax=ax()),
        plots.severity_curves(severity_table(), ax=ax()),
        plots.severity_bars(severity_table(), ax=ax()),
        plots.layer_importance({"layer1": 0.2, "layer2": 0.8, "logits": 0.0}, ax=ax()),
        plots.layer_weights({"all": {"a": 1.0, "b": 2.0}}, ax=ax()),
        plots.temperature_against_distance(predictions[0], 1 + predictions[0], ax=ax()),
        plots.confidence_boxplots({"ts": {"in-domain": predictions[0], "OOD": predictions[0] / 2}}, ax=ax()),
        plots.confidence_histogram(*predictions, ax=ax()),
        plots.k_sensitivity(k_table, ax=ax()),
        plots.data_efficiency(share, ax=ax()),
    ]


def test_every_plot_draws_into_the_axes_it_is_given_and_returns_them(predictions):
    given = []

    def ax():
        given.append(plt.figure().add_subplot())
        return given[-1]

    assert draw_everything(predictions, ax) == given


def test_every_plot_makes_a_figure_of_its_own_when_given_no_axes(predictions):
    drawn = draw_everything(predictions, lambda: None)
    assert len({ax.figure.number for ax in drawn}) == len(drawn)


def test_plots_leave_the_global_settings_alone(predictions):
    before = dict(mpl.rcParams)
    draw_everything(predictions, lambda: None)
    assert dict(mpl.rcParams) == before


def test_the_plots_module_does_not_import_matplotlib_until_something_is_drawn():
    code = "import sys, densecal.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_bars_of_a_reliability_diagram_are_the_bins_accuracies(predictions):
    ax = plots.reliability_diagram(*predictions, n_bins=10)
    curve = reliability_curve(*predictions, n_bins=10)
    filled = curve.counts > 0
    heights = [bar.get_height() for bar in ax.patches[: filled.sum()]]
    np.testing.assert_allclose(heights, curve.accuracy[filled])


def test_the_band_covers_the_accuracy_and_narrows_with_more_samples():
    few = reliability_curve(np.full(50, 0.9), np.arange(50) % 5 > 0, n_bins=1)
    many = reliability_curve(np.full(5000, 0.9), np.arange(5000) % 5 > 0, n_bins=1)
    (low_few, high_few), (low_many, high_many) = accuracy_band(few), accuracy_band(many)
    assert low_few[0] < low_many[0] < 0.8 < high_many[0] < high_few[0]
    # The interval of a share is known: 1.96 standard errors.
    assert high_many[0] - 0.8 == pytest.approx(1.96 * np.sqrt(0.8 * 0.2 / 5000), rel=0.15)


def test_an_empty_bin_has_no_band():
    low, high = accuracy_band(reliability_curve([0.9], [True], n_bins=2))
    assert np.isnan([low[0], high[0]]).all()


def test_a_method_with_dac_is_solid_in_the_colour_of_the_dashed_one_without():
    ax = plots.severity_curves(severity_table())
    lines = {line.get_label(): line for line in ax.lines}
    assert lines["TS"].get_color() == lines["DAC + TS"].get_color()
    assert lines["TS"].get_linestyle() == "--"
    assert lines["DAC + TS"].get_linestyle() == "-"


def test_severity_curves_show_a_hundred_times_the_value_from_clean_to_the_strongest_shift():
    ax = plots.severity_curves(severity_table())
    line = next(line for line in ax.lines if line.get_label() == "TS")
    np.testing.assert_allclose(line.get_ydata(), 100 * 0.03 * np.arange(1, 7))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["clean", "1", "2", "3", "4", "5"]


def test_the_area_of_a_blob_is_its_layers_share():
    ax = plots.layer_importance({"a": 0.25, "b": 0.75})
    areas = ax.collections[-1].get_sizes()
    assert areas[1] / areas[0] == pytest.approx(3)


def test_a_fifth_data_set_and_a_fifth_choice_of_layers_are_drawn_too():
    sets = {f"set {number}": np.linspace(0, 1, 5) for number in range(5)}
    axes = plots.confidence_boxplots({"ts": sets})
    assert axes.get_legend_handles_labels()[1] == list(sets)
    choices = {f"choice {number}": {"a": 1, "b": 2} for number in range(5)}
    assert len(plots.layer_weights(choices).lines) == 5


def test_methods_without_k_alone_are_horizontal_lines():
    table = pd.DataFrame({"method": ["ts", "ets"], "k": [np.nan] * 2, "value": [0.1, 0.09]})
    assert [line.get_ydata()[0] for line in plots.k_sensitivity(table).lines] == [10, 9]


def test_several_draws_become_their_mean_with_a_band_of_their_spread():
    table = pd.DataFrame({"method": ["ts"] * 4, "fraction": [0.5, 0.5, 1.0, 1.0], "value": [0.1, 0.2, 0.1, 0.1]})
    ax = plots.data_efficiency(table)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [15, 10])
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(10)
    assert heights.max() == pytest.approx(20)


def test_a_table_without_the_needed_columns_is_refused_by_name():
    with pytest.raises(ValueError, match=r"columns \['severity', 'value'\].*got \['method'\]"):
        plots.severity_curves(pd.DataFrame({"method": ["ts"]}))


def test_distances_and_temperatures_of_other_conditions_are_refused():
    with pytest.raises(ValueError, match="same conditions"):
        plots.temperature_against_distance({"clean": np.ones(2)}, {"fog": np.ones(2)})


def test_a_dac_without_layers_has_no_importance_to_draw():
    with pytest.raises(ValueError, match="fitted without layers"):
        plots.layer_importance({})


def test_every_name_of_the_stub_is_there_and_listed():
    assert len(plots.__all__) == 10
    assert set(plots.__all__) <= set(dir(plots))
    assert all(callable(getattr(plots, name)) for name in plots.__all__)


def test_a_reliability_diagram_takes_half_precision_tensors():
    torch = pytest.importorskip("torch")
    probabilities = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.bfloat16)
    axes = plots.reliability_diagram(probabilities, torch.tensor([0, 0]))
    assert "ECE" in axes.texts[0].get_text()
