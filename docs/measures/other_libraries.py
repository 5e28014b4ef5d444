# %% [markdown]
# ## How other libraries differ
#
# The same samples, three libraries, in one run. They agree except at the corners.

# %%
from importlib.metadata import version

import numpy as np
import pandas as pd
import torch
from netcal.metrics import ECE
from torchmetrics.functional.classification import multiclass_calibration_error

from densecal.arrays import softmax
from densecal.demo import load_demo
from densecal.metrics import expected_calibration_error

print(*(f"{name} {version(name)}" for name in ("densecal", "torchmetrics", "netcal")), sep=", ")


def by_densecal(probabilities, labels, n_bins):
    return expected_calibration_error(probabilities, labels, n_bins=n_bins)


def by_torchmetrics(probabilities, labels, n_bins):
    n_classes = probabilities.shape[1]
    return multiclass_calibration_error(
        torch.tensor(probabilities), torch.tensor(labels), num_classes=n_classes, n_bins=n_bins
    ).item()


def by_netcal(probabilities, labels, n_bins):
    return float(ECE(n_bins).measure(probabilities, labels))


def two_classes(confidence, correct):
    """Return probabilities with this top-1 confidence, and labels that make it right or wrong."""
    confidence = np.asarray(confidence)
    return np.stack([confidence, 1 - confidence], axis=1), np.where(correct, 0, 1)


test = load_demo("clean")
fine = softmax(test.logits.astype(np.float64))
cases = {
    "4,500 samples of CIFAR-10": (fine, test.labels.astype(int), 15),
    "a confidence on an edge: 0.8 right, 0.81 wrong, 5 bins": (*two_classes([0.8, 0.81], [True, False]), 5),
    "the same with 0.6 and 0.61": (*two_classes([0.6, 0.61], [True, False]), 5),
    "certain: 1.0, three of four right": (*two_classes([1.0] * 4, [True, True, True, False]), 15),
    "a class that never occurs": (np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]] * 2), np.array([0, 1, 1, 1]), 15),
    "one sample": (*two_classes([0.7], [True]), 15),
}
rows = []
for name, (probabilities, labels, n_bins) in cases.items():
    row = {"ECE of": name}
    for library in (by_densecal, by_torchmetrics, by_netcal):
        try:
            row[library.__name__[3:]] = f"{library(probabilities, labels, n_bins):.4f}"
        except Exception as error:
            row[library.__name__[3:]] = type(error).__name__
    rows.append(row)
print(pd.DataFrame(rows).to_string(index=False))

# %% [markdown]
# Where a confidence lies exactly on an edge, densecal puts it into the bin below, `(0.6, 0.8]`, as the definition
# says; whether another library does depends on how its edges are rounded, and a single sample can move a small set's
# ECE by half a point or by half of everything. Confidences on edges are common: forests vote in tenths, and float16
# has few values near 1.
