"""The paper's figures, drawn from the protocol's evaluations with `densecal.plots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from densecal import plots
from densecal.calibrators import DAC_NAME as DAC
from densecal.calibrators import UNCALIBRATED
from densecal.metrics import reliability_curve
from densecal.plots.style import method_style
from reproduction.classifiers import CLASSIFIERS
from reproduction.methods import MAIN, label_of
from reproduction.protocol import Protocol
from reproduction.studies import sensitivity

SHADES = ("#9aa1ab", "#c9d6e3", "#8ccbf2", "#2f7fb5", "#0b3a5e")


def panels(count: int, *, width: float = 5.2, height: float = 3.8, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """Return an off-screen figure with this many axes."""
    columns = min(columns, count)
    lines = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(lines, columns, place + 1) for place in range(count)]


def severity(protocol: Protocol, rows: Sequence[str], methods: Sequence[str] = MAIN) -> Figure:
    """Draw the ECE by severity as lines, and its mean as bars, with and without DAC."""
    figure, axes = panels(2 * len(rows), width=6.4, height=4.4)
    pairs = _pairs(methods)
    for place, row in enumerate(rows):
        evaluated = protocol.table(row, (UNCALIBRATED, *pairs))
        lines, bars = axes[2 * place : 2 * place + 2]
        plots.severity_curves(_only(evaluated.by_severity(), (UNCALIBRATED, *pairs)), ax=lines)
        plots.severity_bars(_only(evaluated.overall(), pairs), ax=bars)
        lines.set_title(CLASSIFIERS[row].label)
        bars.set_title(f"{CLASSIFIERS[row].label}: mean over severities 0 to 5")
    return figure


def _pairs(methods: Sequence[str]) -> list[str]:
    return [f"{before}{method}" for method in methods for before in ("", f"{DAC}+")]


def _only(table: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    return pd.concat([table[table["method"] == method] for method in methods], ignore_index=True)


def importance(protocol: Protocol, rows: Sequence[str]) -> Figure:
    """Draw the contribution of each layer to DAC's temperature, one line per classifier."""
    shares = {}
    for row in rows:
        table = sensitivity.layer_importance(protocol, row)
        shares[CLASSIFIERS[row].label] = dict(zip(table["layer"], table["share"], strict=True))
    figure, (axes,) = panels(1, width=7.0, height=1.4 + 0.8 * len(rows))
    plots.layer_importance(shares if len(shares) > 1 else next(iter(shares.values())), ax=axes)
    return figure


def all_layers(protocol: Protocol, rows: Sequence[str]) -> Figure:
    """Draw DAC's weights along the depth of the network: the selected layers against all of them."""
    figure, axes = panels(len(rows), width=7.0)
    for axis, row in zip(axes, rows, strict=True):
        plots.layer_weights(sensitivity.layer_weights(protocol, row), ax=axis)
        axis.set_title(CLASSIFIERS[row].label)
    return figure


def k_sensitivity(protocol: Protocol, rows: Sequence[str]) -> Figure:
    figure, axes = panels(len(rows))
    for axis, row in zip(axes, rows, strict=True):
        plots.k_sensitivity(sensitivity.k_sensitivity(protocol, row), ax=axis)
        axis.set_title(CLASSIFIERS[row].label)
    return figure


def data_efficiency(protocol: Protocol, rows: Sequence[str], columns: Sequence[str] = ("all",)) -> Figure:
    """Draw the mean ECE against the share of the validation set used for the fit, one panel per column."""
    figure, axes = panels(len(columns) * len(rows))
    places = [(row, column) for row in rows for column in columns]
    for axis, (row, column) in zip(axes, places, strict=True):
        table = sensitivity.data_efficiency(protocol, row)
        plots.data_efficiency(table.assign(value=table[column]), ax=axis)
        axis.set_title(f"{CLASSIFIERS[row].label}: {column.replace('-', ' ')}")
    return figure


def layer_choice(protocol: Protocol, rows: Sequence[str]) -> Figure:
    """Draw the mean ECE of every method without DAC, and with DAC on no layer, the logits, selected and all layers."""
    figure, axes = panels(len(rows), width=8.0, columns=1)
    for axis, row in zip(axes, rows, strict=True):
        _grouped_bars(axis, sensitivity.layer_choice(protocol, row))
        axis.set_title(CLASSIFIERS[row].label)
    return figure


def _grouped_bars(axis: Axes, table: Any) -> None:
    choices, methods = list(dict.fromkeys(table["layers"])), list(dict.fromkeys(table["method"]))
    width = 0.8 / len(choices)
    for place, (choice, shade) in enumerate(zip(choices, SHADES, strict=False)):
        part = table[table["layers"] == choice].set_index("method").loc[methods]
        values = 100 * part["value"].to_numpy()
        reach = np.abs(100 * part[["low", "high"]].to_numpy().T - values)
        at = np.arange(len(methods)) + (place - (len(choices) - 1) / 2) * width
        axis.bar(at, values, width * 0.92, yerr=reach, color=shade, label=choice, error_kw={"elinewidth": 0.8})
    axis.set_xticks(range(len(methods)), [label_of(method) for method in methods])
    axis.set_ylabel("ECE (×100)")
    axis.legend(frameon=False, fontsize="small", ncols=3)


def reliability(protocol: Protocol, rows: Sequence[str]) -> Figure:
    """Draw confidence minus accuracy in 15 bins of equal mass, all corruptions and severities together."""
    methods = (UNCALIBRATED, "ets", "dac+ets", "spl", "dac+spl")
    figure, axes = panels(len(rows))
    for axis, row in zip(axes, rows, strict=True):
        evaluated = protocol.predictions(row, methods)
        for method in methods:
            shifted = [evaluated.pooled(method, level) for level in evaluated.severities if level > 0]
            confidence, correct = (np.concatenate(parts) for parts in zip(*shifted, strict=True))
            curve = reliability_curve(confidence, correct, n_bins=15, binning="mass")
            style = method_style(method)
            axis.plot(
                curve.confidence,
                np.asarray(curve.confidence) - np.asarray(curve.accuracy),
                color=style.colour,
                marker=style.marker,
                linestyle="-" if style.with_dac else (0, (4, 2)),
                markersize=4,
                label=style.label,
            )
        axis.axhline(0, color=SHADES[0], linewidth=1)
        axis.set_xlabel("confidence (bins of equal mass)")
        axis.set_ylabel("confidence - accuracy")
        axis.set_title(CLASSIFIERS[row].label)
        axis.legend(frameon=False, fontsize="small")
    return figure


def ood_boxplots(protocol: Protocol, rows: Sequence[str]) -> Figure:
    """Draw boxplots of the confidence on the clean test set and on every out-of-domain set."""
    figure, axes = panels(len(rows), width=9.0, columns=1)
    pairs = _pairs(MAIN)
    for axis, row in zip(axes, rows, strict=True):
        evaluated = protocol.predictions(row, pairs)
        sets = [evaluated.conditions[0], *evaluated.out_of_domain]
        groups = {
            method: {each.name: evaluated.predictions[method, str(each)].confidence for each in sets}
            for method in pairs
        }
        plots.confidence_boxplots(groups, ax=axis)
        axis.set_title(CLASSIFIERS[row].label, loc="left")
    return figure
