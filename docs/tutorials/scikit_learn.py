# %% [markdown]
# # A scikit-learn model
#
# `CalibratedClassifier` wraps a classifier that is already fitted. Every method of densecal works on it; DAC too, if
# there are features to measure distances in. For an `MLPClassifier` these are its hidden layers, found by themselves.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from densecal import CalibratedClassifier
from densecal.metrics import accuracy, expected_calibration_error
from densecal.plots import reliability_diagram

X, y = load_digits(return_X_y=True)
X = X / 16
X_rest, X_test, y_rest, y_test = train_test_split(X, y, test_size=600, random_state=0, stratify=y)
X_train, X_val, y_train, y_val = train_test_split(X_rest, y_rest, test_size=500, random_state=0, stratify=y_rest)

# %% [markdown]
# ## Two classifiers, two diseases
#
# Naive Bayes is far too sure of itself, a random forest not sure enough. The same call cures both. The validation set
# must be data that the classifier was not fitted on.

# %%
for estimator in (GaussianNB(), RandomForestClassifier(random_state=0)):
    estimator.fit(X_train, y_train)
    calibrated = CalibratedClassifier(estimator, method="ets").fit(X_val, y_val)
    before, after = estimator.predict_proba(X_test), calibrated.predict_proba(X_test)
    claims = f"{before.max(1).mean():.1%} -> {after.max(1).mean():.1%}"
    errors = [100 * expected_calibration_error(answer, y_test) for answer in (before, after)]
    print(f"{type(estimator).__name__}: accuracy {accuracy(before, y_test):.1%}, mean confidence {claims}")
    print(f"    ECE {errors[0]:.1f} -> {errors[1]:.1f}")

# %% The random forest before (left) and after (right): bars above the diagonal mean that it was too modest.
figure, axes = plt.subplots(1, 2, figsize=(9, 4.6))
for ax, title, answer in zip(axes, ("random forest", "calibrated"), (before, after), strict=True):
    reliability_diagram(answer, y_test, n_bins=10, ax=ax)
    ax.set_title(title)

# %% [markdown]
# ## With distances: a perceptron and DAC
#
# `method="dac+ets"` also takes the training data, `X_train=`, to know what the network has seen. Give it the whole
# pipeline, as below. As the last step *of* a pipeline it would get `X_train` past the steps before it; with metadata
# routing, `.set_fit_request(X_train=True)` and `Pipeline(..., transform_input=["X_train"])` lead it through them.

# %%
network = make_pipeline(PCA(40), MLPClassifier((64, 32), random_state=0, max_iter=400)).fit(X_train, y_train)
plain = CalibratedClassifier(network, method="ets").fit(X_val, y_val)
dense = CalibratedClassifier(network, method="dac+ets").fit(X_val, y_val, X_train=X_train)
print(dense.calibrator_.stages[0].layer_importance_)

rng = np.random.default_rng(0)
for noise in (0, 0.1, 0.2, 0.3):
    moved = np.clip(X_test + rng.normal(0, noise, X_test.shape), 0, 1) if noise else X_test
    right = accuracy(network.predict_proba(moved), y_test)
    errors = {
        name: round(100 * expected_calibration_error(model.predict_proba(moved), y_test), 1)
        for name, model in (("uncalibrated", network), ("ets", plain), ("dac+ets", dense))
    }
    print(f"noise {noise}: accuracy {right:.1%}, ECE {errors}")

# %% [markdown]
# ## Your own features
#
# For any other classifier say what to measure: `features=` maps X to named arrays. Here the pixels themselves, for
# the forest. (It tells that they are of no use for this forest's clean data, and what could be done about it.)

# %%
forest = RandomForestClassifier(random_state=0).fit(X_train, y_train)
by_pixels = CalibratedClassifier(forest, method="dac", features=lambda X: {"pixels": np.asarray(X)}, k=10)
by_pixels.fit(X_val, y_val, X_train=X_train)
print(by_pixels.calibrator_.bank)
print(f"ECE {100 * expected_calibration_error(by_pixels.predict_proba(X_test), y_test):.1f}")

# %% [markdown]
# Labelled samples that have moved, such as perturbed copies of the validation set, fit DAC for where the data will go:
# `fit(X_val, y_val, X_train=X_train, X_shifted=..., y_shifted=...)`.
#
# It is an estimator like any other: `predict`, `predict_proba`, `classes_` and `get_params` work, and `confidence(X)`
# gives the calibrated confidence of each prediction. `clone`, `cross_val_score` and `GridSearchCV` refit the
# calibration and keep the fitted classifier, so give them data that the classifier has not seen.
#
# **Next:** [which method should I use?](../which-method.md)
