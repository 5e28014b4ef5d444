"""The paper's sensitivity studies: k, the size of the validation set, the choice of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from densecal.calibrators import DAC_NAME as DAC
from reproduction.methods import MAIN, fit_method
from reproduction.protocol import ALL_LAYERS, Protocol

FRACTIONS = tuple(round(0.1 * tenth, 1) for tenth in range(1, 11))
DRAWS = 5


def k_sensitivity(protocol: Protocol, row: str, methods: Sequence[str] = ("ets", "spl")) -> pd.DataFrame:
    """Evaluate DAC with every measured k; columns method, k (missing without DAC), value, low, high."""
    plain = protocol.table(row, methods)
    ks = [k for k in protocol.measurements(row).ks if k is not None]
    by_k = {k: protocol.table(row, [f"{DAC}+{base}" for base in methods], k=k) for k in ks}
    found: list[tuple[Any, ...]] = []
    for base in methods:
        each = plain.estimate(base)
        found.append((base, np.nan, each.estimate, each.low, each.high))
        for k, table in by_k.items():
            each = table.estimate(f"{DAC}+{base}")
            found.append((f"{DAC}+{base}", k, each.estimate, each.low, each.high))
    return pd.DataFrame(found, columns=["method", "k", "value", "low", "high"])


def data_efficiency(
    protocol: Protocol,
    row: str,
    methods: Sequence[str] = ("ts", "ets", "spl", "dac+ets", "dac+spl"),
    *,
    fractions: Sequence[float] = FRACTIONS,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """Fit on random shares of the validation set; columns method, fraction, draw, in-domain, severity-5, all."""
    plan = [(fraction, draw) for fraction in fractions for draw in range(draws if fraction < 1 else 1)]
    tables = {(f, d): protocol.table(row, methods, fraction=f, draw=d) for f, d in plan}
    found = []
    for method in methods:
        for (fraction, draw), table in tables.items():
            values = [table.estimate(method, "ece", over).estimate for over in (0, table.severities[-1], None)]
            found.append((method, fraction, draw, *values))
    return pd.DataFrame(found, columns=["method", "fraction", "draw", "in-domain", "severity-5", "all"])


def layer_choice(protocol: Protocol, row: str, methods: Sequence[str] = MAIN) -> pd.DataFrame:
    """Evaluate DAC with no layer, only the logits, the selected layers and, if measured, all layers.

    The sets measured at all layers (``CLASSIFIER-all-layers``) may be smaller than the test sets. All choices are
    evaluated on these sets, so they are comparable.
    """
    source = _with_all_layers(protocol, row)
    measured, selected = protocol.measurements(source), protocol.measurements(row).layers
    choices: dict[str, Sequence[str]] = {"no layer": (), "logits layer": measured.layers[-1:]}
    choices["selected layers"] = [_same_layer(layer, measured.layers) for layer in selected]
    if source != row:
        choices["all layers"] = measured.layers
    k = measured.about.k
    plain = protocol.table(source, methods, k=k)
    tables = {
        choice: protocol.table(source, [f"{DAC}+{base}" for base in methods], k=k, layers=layers)
        for choice, layers in choices.items()
    }
    found = []
    for base in methods:
        estimates = {"without DAC": plain.estimate(base)}
        estimates |= {choice: table.estimate(f"{DAC}+{base}") for choice, table in tables.items()}
        found += [(base, choice, each.estimate, each.low, each.high) for choice, each in estimates.items()]
    return pd.DataFrame(found, columns=["method", "layers", "value", "low", "high"])


def layer_importance(protocol: Protocol, row: str) -> pd.DataFrame:
    """Return DAC's weight of each layer, and each layer's share of the temperature."""
    dac = fit_method(DAC, protocol.measurements(row))
    layers, shares = protocol.measurements(row).layers, list(dac.layer_importance_.values())
    return pd.DataFrame({"layer": layers, "weight": dac.weights_, "share": shares})


def layer_weights(protocol: Protocol, row: str) -> dict[str, dict[str, float]]:
    """Return DAC's normalised weights for the selected and, if measured, all layers."""
    source = _with_all_layers(protocol, row)
    names = protocol.measurements(source).layers
    selected = _normalised(protocol, row)
    found = {"selected layers": {_same_layer(layer, names): weight for layer, weight in selected.items()}}
    if source != row:
        found["all layers"] = _normalised(protocol, source)
    return found


def _normalised(protocol: Protocol, row: str) -> dict[str, float]:
    table = layer_importance(protocol, row)
    total = float(table["weight"].sum()) or 1.0
    return {layer: float(weight) / total for layer, weight in zip(table["layer"], table["weight"], strict=True)}


def _with_all_layers(protocol: Protocol, row: str) -> str:
    whole = f"{row}{ALL_LAYERS}"
    return whole if whole in protocol.classifiers else row


def _same_layer(layer: str, names: Sequence[str]) -> str:
    """Return the name of a selected layer among all layers: the last one in a block, or the last of all for logits."""
    if layer in names:
        return layer
    if layer == "logits":
        return names[-1]
    inside = [name for name in names if name.startswith(f"{layer}.")]
    if not inside:
        raise ValueError(f"The layer {layer!r} is not among the measured layers: {', '.join(names)}.")
    return inside[-1]
