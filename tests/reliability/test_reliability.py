"""A small count of every fuzzer and fault injector. The full count: ``make reliability``."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest

import densecal
from densecal.calibrators import temperature
from tests.reliability import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and measures memory in /proc")

pytest.importorskip("torch")

from tests.reliability.damaged_files import damaged_files, payload_flips  # noqa: E402
from tests.reliability.hostile_arrays import hostile_arrays  # noqa: E402
from tests.reliability.processes import (  # noqa: E402
    fork,
    kills_during_extraction,
    kills_during_saves,
    loads_beside_saves,
)
from tests.reliability.threads import calls_from_threads  # noqa: E402


@pytest.mark.parametrize(
    ("trial", "count"),
    [
        (hostile_arrays, 150),
        (damaged_files, 400),
        (payload_flips, 400),
        (kills_during_saves, 12),
        (kills_during_extraction, 4),
        (loads_beside_saves, 200),
        (calls_from_threads, 200),
    ],
)
def test_no_fault_has_a_bad_end(trial, count):
    tally = trial(count, seed=1)
    assert tally.tried == count and tally.bad == []


@pytest.mark.parametrize("name", ["ets", "ir"])
def test_predictions_need_little_more_memory_than_their_result(name):
    result = 30_000 * 500 * 4 / 2**20
    assert memory.peak_of(memory.PREDICT, name=name, samples=30_000, classes=500) < result + 160


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_the_search_keeps_its_memory_budget(backend):
    assert memory.peak_of(memory.SEARCH, backend=backend, budget=64 << 20) < 64 + 32


def test_a_forked_process_fits_after_its_parent_did(monkeypatch):
    monkeypatch.setattr(temperature, "NUMPY_BLOCK_BYTES", 1 << 12)
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(2000, 5)), rng.integers(0, 5, 2000)
    expected = densecal.TemperatureScaling().fit(logits, labels).temperature_

    def fit_again():
        signal.alarm(20)
        assert densecal.TemperatureScaling().fit(logits, labels).temperature_ == expected

    assert os.waitstatus_to_exitcode(os.waitpid(fork(fit_again), 0)[1]) == 0
