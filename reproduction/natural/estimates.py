"""Estimate the accuracy on every target without its labels, beside what the peers say."""

from __future__ import annotations

import numpy as np
import pandas as pd

import densecal
from reproduction.measuring.measurements import CLEAN, OOD, PERTURBED, VAL, Measurements
from reproduction.page.tables import markdown
from reproduction.studies.accuracy_peers import compare, estimates

PEERS = ("ts", "shift fit", "cbpe", "atc", "doc")
SECTION = """
## Accuracy estimated without labels, and what others say: error in points

`densecal` is `estimate_accuracy`, with its interval of 95 %; `shift fit` the mean confidence of the default, `ts` that
of temperature scaling, CBPE as in NannyML, ATC and DoC as published. `holds` is the share of the targets whose accuracy
lies in the interval, `width` its mean width in points; `above` counts the pairs (means over the seeds) where densecal
is more than 1 point further off than the shift fit's mean confidence. The estimates for digits are older than the part
that the leverage of a batch has in its estimate and its interval.

{table}"""


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


def section(table: pd.DataFrame) -> str:
    """Return the section of the page."""
    shifted = table[table["source"] != table["target"]]
    errors = shifted.assign(
        **{name: 100 * np.abs(shifted[name] - shifted["accuracy"]) for name in ("densecal", *PEERS)}
    )
    errors["holds"] = 100 * ((shifted["low"] <= shifted["accuracy"]) & (shifted["accuracy"] <= shifted["high"]))
    errors["width"] = 100 * (shifted["high"] - shifted["low"])
    pairs = errors.groupby(["study", "source", "target"], sort=False).mean(numeric_only=True)
    pairs["above"] = pairs["densecal"] > pairs["shift fit"] + 1
    columns = ["densecal", *PEERS, "holds", "width"]
    lines = [
        [str(name), *(f"{value:.1f}" for value in part[columns].mean()), f"{int(part['above'].sum())} of {len(part)}"]
        for name, part in [*pairs.groupby("study"), ("all", pairs)]
    ]
    return SECTION.format(table=markdown(["study", *columns, "above"], lines))
