"""Memory over the data: each measurement runs in a process of its own, which prints the peak in MiB."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PEAK = """
import os, threading, warnings
import numpy as np
import densecal
warnings.simplefilter("ignore")

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

def measure(call):
    before, peak, done = resident(), [0.0], threading.Event()
    def watch():
        while not done.wait(0.002):
            peak[0] = max(peak[0], resident())
    watcher = threading.Thread(target=watch)
    watcher.start()
    kept = call()
    done.set()
    watcher.join()
    print(max(peak[0], resident()) - before)

def data(samples, classes):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((samples, classes), dtype=np.float32)
    logits *= 3
    return logits, rng.integers(0, classes, samples)

def fit(name, classes):
    logits, labels = data(2000, classes)
    labels = (logits / 2 + np.random.default_rng(1).gumbel(size=logits.shape)).argmax(axis=1)
    return densecal.make_calibrator(name).fit(logits, labels)
"""
EVALUATE = """
import scipy.fft, scipy.sparse
from densecal.evaluation import Condition, evaluate_conditions
from densecal.report import write_report
methods = {{name: fit(name, {classes}) for name in ("ts", "ets")}}
conditions = [Condition("clean", densecal.Outputs(*data({samples}, {classes})))]
if {report}:
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        measure(lambda: write_report(folder + "/report.html", methods, conditions))
else:
    measure(lambda: evaluate_conditions(methods, conditions))
"""
PREDICT = """
calibrator, (logits, _) = fit({name!r}, {classes}), data({samples}, {classes})
measure(lambda: calibrator.predict_proba(logits))
"""
SEARCH = """
import torch
torch.set_num_threads(1)
rng = np.random.default_rng(0)
train, queries = (rng.standard_normal((rows, 1024), dtype=np.float32) for rows in (30_000, 1_000))
bank = densecal.FeatureBank({{"pool": train}}, k=10, backend={backend!r}, memory_budget={budget})
bank.distances({{"pool": queries[:2]}})
measure(lambda: bank.distances({{"pool": queries}}))
"""


def peak_of(program: str, **values: object) -> float:
    """Return how many MiB a program needs over what it holds before."""
    source = PEAK + textwrap.dedent(program).format(**values)
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    return float(ran.stdout.splitlines()[-1])
