from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from densecal import Outputs, TemperatureScaling
from reproduction.studies.accuracy_peers import accuracy_of, atc, cbpe, doc, mean_confidence
from reproduction.studies.estimation_page import summary

RESULTS = Path(__file__).parents[2] / "results" / "estimation"


def test_the_page_follows_from_the_committed_batches():
    assert (RESULTS / "README.md").read_text() == summary(pd.read_csv(RESULTS / "study.csv.gz"))


@pytest.mark.parametrize("peer", ["ts", "atc", "doc", "cbpe"])
def test_every_peer_knows_the_accuracy_without_a_shift(peer):
    rng = np.random.default_rng(0)
    honest = rng.normal(0, 2, (8000, 4))
    outputs = Outputs(2 * honest, (honest + rng.gumbel(size=honest.shape)).argmax(axis=1))
    val, test = outputs[:5000], outputs[5000:]
    scaling = TemperatureScaling(loss="nll").fit(val)
    estimates = {
        "ts": mean_confidence(scaling),
        "atc": atc(val, scaling),
        "doc": doc(val, scaling),
        "cbpe": cbpe(val),
    }
    assert abs(estimates[peer](test) - accuracy_of(test)) < 0.02
