# %% [markdown]
# ## How other libraries differ
#
# This cell computes the same ECE with three libraries. They agree in general and differ in corner cases.

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


def by_densecal(probabilities, labels, bins):
    return expected_calibration_error(probabilities, labels, n_bins=bins)


def by_torchmetrics(probabilities, labels, bins):
    classes = probabilities.shape[1]
    return multiclass_calibration_error(
        torch.tensor(probabilities), torch.tensor(labels), num_classes=classes, n_bins=bins
    ).item()


def by_netcal(probabilities, labels, bins):
    return float(ECE(bins).measure(probabilities, labels))


def two_classes(confidence, correct):
    """Return probabilities with the given top-1 confidence, and labels that make them correct or wrong."""
    confidence = np.asarray(confidence)
    return np.stack([confidence, 1 - confidence], axis=1), np.where(correct, 0, 1)


test = load_demo("clean")
probabilities = softmax(test.logits.astype(np.float64))
cases = {
    f"{len(test):,} samples of CIFAR-10": (probabilities, test.labels.astype(int), 15),
    "a confidence on a bin edge: 0.8 correct, 0.81 wrong, 5 bins": (*two_classes([0.8, 0.81], [True, False]), 5),
    "the same with 0.6 and 0.61": (*two_classes([0.6, 0.61], [True, False]), 5),
    "full confidence, three of four correct": (*two_classes([1.0] * 4, [True, True, True, False]), 15),
    "a class that never occurs": (np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]] * 2), np.array([0, 1, 1, 1]), 15),
    "one sample": (*two_classes([0.7], [True]), 15),
}
rows = []
for name, (probabilities, labels, bins) in cases.items():
    row = {"ECE of": name}
    for library in (by_densecal, by_torchmetrics, by_netcal):
        try:
            row[library.__name__[3:]] = f"{library(probabilities, labels, bins):.4f}"
        except Exception as error:
            row[library.__name__[3:]] = type(error).__name__
    rows.append(row)
print(pd.DataFrame(rows).to_string(index=False))

# %% [markdown]
# densecal puts a confidence on a bin edge into the bin below, `(0.6, 0.8]`, as defined. In other libraries the bin
# depends on how the edges are rounded, and with few samples the difference is large. Confidences on bin edges are
# common: the votes of a random forest are often multiples of 0.1, and float16 has few values near 1.
