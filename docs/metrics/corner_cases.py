# %% [markdown]
# ## Corner cases
#
# Definitions differ mostly in corner cases. The results below are computed when the site is built, and each case has a
# test.

# %%
import numpy as np

from densecal.metrics import (
    auroc,
    expected_calibration_error,
    expected_calibration_error_kde,
    fpr_at_95_tpr,
    kolmogorov_smirnov_error,
    negative_log_likelihood,
    reliability_curve,
)

# Bins are open below and closed above: 0.2 belongs to (0, 0.2], even as a float32, and 0 belongs to the first bin.
for kind in (np.float32, np.float64):
    print(kind.__name__, reliability_curve(kind([0.0, 0.2, 0.21, 1.0]), [True] * 4, n_bins=5).counts)

# Full confidence has the smallest error if the prediction is correct, and the largest if it is wrong.
print(
    "full confidence:", expected_calibration_error([1.0, 1.0], [True, True]), expected_calibration_error([1.0], [False])
)

# Bins of equal mass never split equal confidences, so the order of the samples does not matter.
confidence, correct = np.array([0.9] * 6 + [0.99] * 2), np.array([1, 1, 1, 0, 0, 0, 1, 1], bool)
print("equal mass:", expected_calibration_error(confidence, correct, n_bins=4, binning="mass"),
      expected_calibration_error(confidence[::-1], correct[::-1], n_bins=4, binning="mass"))  # fmt: skip

# Equal confidences enter the cumulative sums together; zero variance does not cause a division by zero.
print("KS:", kolmogorov_smirnov_error([0.5] * 4, np.ones(4) == [1, 0, 1, 0]))
print("ECE-KDE:", round(expected_calibration_error_kde([0.8] * 4, [True, True, False, False]), 3))

# A probability of exactly zero for the true class costs -log 1e-20, not infinity.
print("NLL:", round(negative_log_likelihood([[1.0, 0.0]], [1]), 2))

# A tie between in-domain and out-of-domain counts as 1/2; the threshold is the highest with a TPR of at least 95 %.
print("AUROC:", auroc([0.5, 0.5], [0.5, 0.5]), "FPR@95:", fpr_at_95_tpr([0.9] * 19 + [0.1], [0.5, 0.05]))

# %% [markdown]
# Invalid input raises an error:

# %%
invalid = [
    (np.array([[0.9, 0.1], [np.nan, 0.5]]), [0, 1]),
    (np.array([[2.0, -1.0]]), [0]),
    (np.array([[0.9, 0.1]]), [2]),
    (np.array([[0.9, 0.1]]), [0, 1]),
    (np.zeros((0, 2)), []),
]
for probabilities, labels in invalid:
    try:
        expected_calibration_error(probabilities, labels)
    except ValueError as error:
        print("-", error)
