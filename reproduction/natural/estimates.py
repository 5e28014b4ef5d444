"""Estimate the accuracy on every target without its labels, and compare with other methods."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import densecal
from reproduction.measuring.measurements import CLEAN, OOD, PERTURBED, VAL, Measurements
from reproduction.page.markdown import markdown
from reproduction.studies.accuracy_peers import compare, estimates

PEERS = ("ts", "shift fit", "cbpe", "atc", "doc")
SECTION = """
## Accuracy estimated without labels, compared with other methods: error in points

`densecal` is `estimate_accuracy` with its 95 % interval; `shift fit` is the mean confidence of the default, `ts` that
of temperature scaling; CBPE is as in NannyML, ATC and DoC are as published. `holds` is the share of the targets whose
accuracy lies in the interval, `width` the mean width of the interval in points; `above` counts the pairs (means over
the seeds) where the error of densecal exceeds that of the shift fit's mean confidence by more than 1 point.

{table}
{alternatives}"""
ALTERNATIVES = Path(__file__).with_name("alternatives.md")
"""Text that was written once: what was measured before the rules of the estimates were fixed."""


def estimate_targets(measured: Measurements, dac: densecal.DAC) -> pd.DataFrame:
    """Return one row per test set: its accuracy, the estimate with its interval, and the estimates of the peers."""
    study, source, seed = measured.classifier.rsplit("-", 2)
    if dac.accuracy_model_ is None:
        return pd.DataFrame()
    peers = estimates(measured.outputs(VAL, None), dac)
    names = [name for name in measured.sets if name != VAL and not name.startswith((PERTURBED, OOD))]
    about = {"study": study, "source": source, "seed": int(seed)}
    return pd.DataFrame(
        [
            {**about, "target": source if name == CLEAN else name, **compare(dac, measured.outputs(name, None), peers)}
            for name in names
        ]
    )


def errors_by_pair(table: pd.DataFrame) -> pd.DataFrame:
    """Return the errors in points, and whether the interval holds, of each pair of source and target."""
    shifted = table[table["source"] != table["target"]]
    errors = shifted.assign(
        **{name: 100 * np.abs(shifted[name] - shifted["accuracy"]) for name in ("densecal", *PEERS)}
    )
    errors["holds"] = 100 * shifted["accuracy"].between(shifted["low"], shifted["high"])
    errors["width"] = 100 * (shifted["high"] - shifted["low"])
    return errors.groupby(["study", "source", "target"], sort=False).mean(numeric_only=True)


def section(table: pd.DataFrame) -> str:
    pairs = errors_by_pair(table)
    pairs["above"] = pairs["densecal"] > pairs["shift fit"] + 1
    columns = ["densecal", *PEERS, "holds", "width"]
    lines = [
        [str(name), *(f"{value:.1f}" for value in part[columns].mean()), f"{int(part['above'].sum())} of {len(part)}"]
        for name, part in [*pairs.groupby("study"), ("all", pairs)]
    ]
    return SECTION.format(
        table=markdown(["study", *columns, "above"], lines), alternatives=ALTERNATIVES.read_text(encoding="utf-8")
    )
