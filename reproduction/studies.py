"""The paper's studies that fit again and again: k, the validation set's size, the choice of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.progress import track
from reproduction.methods import DAC, MAIN
from reproduction.protocol import ECE_ONLY, Protocol
from reproduction.results import MethodResult

if TYPE_CHECKING:
    import pandas as pd

FRACTIONS = tuple(round(0.1 * tenth, 1) for tenth in range(1, 11))
DRAWS = 5


def k_sensitivity(protocol: Protocol, row: str, methods: Sequence[str] = ("ets", "spl")) -> pd.DataFrame:
    """Judge DAC with every measured k; columns method, k (missing without DAC), value, low, high."""
    import pandas as pd

    ks = protocol.measurements(row).ks
    plan = [entry for base in methods for entry in ((base, None), *((f"{DAC}+{base}", k) for k in ks))]
    found: list[tuple[Any, ...]] = []
    for method, k in track(plan, row):
        each = protocol.result(row, method, k=k, **ECE_ONLY).estimate()
        found.append((method, np.nan if k is None else k, each.estimate, each.low, each.high))
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
    import pandas as pd

    plan = [(m, f, d) for m in methods for f in fractions for d in range(draws if f < 1 else 1)]
    found = []
    for method, fraction, draw in track(plan, "data efficiency"):
        result = protocol.result(row, method, fraction=fraction, draw=draw, resamples=0, **ECE_ONLY)
        ends = (_value(result, 0), _value(result, int(result.levels[-1])), _value(result, "all"))
        found.append((method, fraction, draw, *ends))
    return pd.DataFrame(found, columns=["method", "fraction", "draw", "in-domain", "severity-5", "all"])


def layer_choice(protocol: Protocol, row: str, methods: Sequence[str] = MAIN) -> pd.DataFrame:
    """Judge DAC with no layer, the logits alone, the selected and, where they were measured, all layers.

    The all-layers sets may be shorter than the test sets (``CLASSIFIER-all-layers``); every choice is judged there, so
    that the choices compare.
    """
    import pandas as pd

    whole = f"{row}-all-layers"
    source = whole if whole in protocol.classifiers else row
    measured, selected = protocol.measurements(source), protocol.measurements(row).layers
    k = measured.about.k
    logits = measured.layers[-1]
    choices: dict[str, Sequence[str]] = {"no layer": (), "logits layer": (logits,)}
    choices["selected layers"] = [_same_layer(layer, measured.layers) for layer in selected]
    if source == whole:
        choices["all layers"] = measured.layers
    found = []
    for base in track(methods, row):
        results = {"without DAC": protocol.result(source, base, k=k, **ECE_ONLY)}
        for choice, layers in choices.items():
            results[choice] = protocol.result(source, f"{DAC}+{base}", k=k, layers=layers, **ECE_ONLY)
        for choice, result in results.items():
            each = result.estimate()
            found.append((base, choice, each.estimate, each.low, each.high))
    return pd.DataFrame(found, columns=["method", "layers", "value", "low", "high"])


def layer_weights(protocol: Protocol, row: str) -> dict[str, dict[str, float]]:
    """Return DAC's normalised weights for the selected and, where they were measured, all layers."""
    found = {}
    for choice, source in (("selected layers", row), ("all layers", f"{row}-all-layers")):
        if source not in protocol.classifiers:
            continue
        metadata = protocol.result(source, DAC, k=protocol.measurements(source).about.k, **ECE_ONLY).metadata
        total = sum(metadata["weights"]) or 1.0
        names = metadata["layers"]
        if choice == "selected layers":
            names = [_same_layer(layer, _all_names(protocol, row)) for layer in names]
        found[choice] = {layer: weight / total for layer, weight in zip(names, metadata["weights"], strict=True)}
    return found


def _all_names(protocol: Protocol, row: str) -> Sequence[str]:
    whole = f"{row}-all-layers"
    return protocol.measurements(whole if whole in protocol.classifiers else row).layers


def _same_layer(layer: str, names: Sequence[str]) -> str:
    """Find a selected layer among all layers: a block's output is its last call's, the logits are the last layer's."""
    if layer in names:
        return layer
    if layer == "logits":
        return names[-1]
    inside = [name for name in names if name.startswith(f"{layer}.")]
    if not inside:
        raise ValueError(f"The layer {layer!r} is not among the layers that were measured: {', '.join(names)}.")
    return inside[-1]


def _value(result: MethodResult, over: Any) -> float:
    return result.estimate("ece", over).estimate
