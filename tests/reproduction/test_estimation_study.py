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


def test_the_study_reads_what_its_measuring_command_writes(tmp_path):
    torch = pytest.importorskip("torch")
    from reproduction.measuring.measurements import VAL, Measurements
    from reproduction.studies.centre_banks import Measured
    from reproduction.studies.estimation import conditions, shifted_domains
    from reproduction.studies.estimation_measurements import to_measurements

    names = [VAL, "perturbed-copy-0", "perturbed-copy-1", "clean", "fog-3"]
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=len(names) * 40)
    logits = rng.normal(size=(len(labels), 3)).astype(np.float32)
    rows = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(len(labels), 5)).astype(np.float32)))
    parts = {name: slice(40 * place, 40 * place + 40) for place, name in enumerate(names)}
    measured = Measured({"pool": rows[:60]}, {"pool": rows}, logits, labels, parts)
    to_measurements("c10-resnet20", measured).save(tmp_path)
    stored = Measurements.load(tmp_path)
    assert list(conditions(stored)) == ["clean", "fog-3"]
    assert stored.outputs("fog-3", None).logits == pytest.approx(logits[parts["fog-3"]], abs=0.004)
    domains = shifted_domains(stored)
    assert sum(len(outputs) for outputs in domains.values()) == 80 and len(domains) > 2
