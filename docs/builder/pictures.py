"""The figures of the home page: accuracy against confidence, on clean and on shifted data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from densecal import DAC, FeatureBank, TemperatureScaling
from densecal.arrays import softmax, to_numpy
from densecal.demo import load_demo
from densecal.metrics import accuracy, expected_calibration_error, reliability_curve

INKS = {"light": ("#1f2937", "#d5dae1"), "dark": ("#e5e9ef", "#3a424e")}
COLOURS = {
    "light": {"before": "#c2570c", "ts": "#0072b2", "after": "#7b2d8b"},
    "dark": {"before": "#f0a35e", "ts": "#5ab4e6", "after": "#d9a1e6"},
}
NAMES = {"before": "uncalibrated", "ts": "temperature scaling", "after": "densecal"}
MARKERS = {"before": "o", "ts": "s", "after": "D"}
MIN_SAMPLES = 20
"""Bins with fewer samples are not drawn."""


def draw_home(folder: Path) -> dict[str, Any]:
    """Draw the figures for light and dark pages; return the numbers of the text."""
    curves, numbers = _evaluate()
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in INKS:
        for place, panel in curves.items():
            _draw(panel, place, scheme, folder / f"home-{place}-{scheme}.svg")
    return numbers


def _evaluate() -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    val = load_demo("val")
    scaling = TemperatureScaling().fit(val)
    dac = DAC(FeatureBank(load_demo("train").features)).fit(val, shifted=load_demo("perturbed"))
    curves: dict[str, dict[str, Any]] = {}
    numbers: dict[str, Any] = {}
    for place, name in (("clean", "clean"), ("shifted", "shifted-5")):
        test = load_demo(name)
        answers = {
            "before": softmax(test.logits),
            "ts": scaling.predict_proba(test),
            "after": dac.predict_proba(test),
        }
        curves[place] = {
            method: (
                reliability_curve(probabilities, test.labels, n_bins=10),
                100 * expected_calibration_error(probabilities, test.labels),
            )
            for method, probabilities in answers.items()
        }
        numbers[place] = {
            "accuracy": f"{100 * accuracy(answers['before'], test.labels):.0f}",
            **{method: f"{100 * answer.max(axis=1).mean():.0f}" for method, answer in answers.items()},
        }
    return curves, numbers


def _draw(curves: dict[str, Any], place: str, scheme: str, path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ink, _ = INKS[scheme]
    with rc_context({"svg.hashsalt": path.stem, "font.size": 11, "text.color": ink, "axes.labelcolor": ink}):
        figure = Figure(figsize=(5.2, 4.8), layout="constrained")
        ax = figure.subplots()
        _draw_panel(ax, curves, scheme)
        ax.set_title(f"{place.capitalize()} data", color=ink, fontsize=13, weight="bold", loc="left", pad=10)
        figure.savefig(path, transparent=True, metadata={"Date": None})


def _draw_panel(ax: Any, curves: dict[str, Any], scheme: str) -> None:
    ink, faint = INKS[scheme]
    ax.plot([0.2, 1], [0.2, 1], color=ink, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
    beside = {"rotation": 45, "rotation_mode": "anchor", "transform_rotates_text": True}
    ax.text(0.62, 0.67, "calibrated", color=ink, fontsize=10, alpha=0.8, **beside)
    for method, (curve, error) in curves.items():
        counts = to_numpy(curve.counts)
        shown = counts >= MIN_SAMPLES
        x, y = to_numpy(curve.confidence)[shown], to_numpy(curve.accuracy)[shown]
        colour = COLOURS[scheme][method]
        ax.plot(x, y, color=colour, linewidth=2, zorder=2)
        label = f"{NAMES[method]}: ECE {error:.1f} points"
        sizes = 14 + 130 * np.sqrt(counts[shown] / counts.sum())
        ax.scatter(x, y, sizes, color=colour, marker=MARKERS[method], zorder=3, linewidths=0)
        ax.plot([], [], color=colour, marker=MARKERS[method], linewidth=2, label=label)
    ax.set(xlim=(0.2, 1.02), ylim=(0.0, 1.02), xlabel="confidence")
    ax.set_ylabel("accuracy")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    ax.tick_params(colors=ink, length=3)
    ax.grid(color=faint, linewidth=0.7)
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(faint)
    ax.legend(frameon=False, loc="lower right", fontsize=10, borderaxespad=0.1)
