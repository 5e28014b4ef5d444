# %% [markdown]
# # A scikit-learn model
#
# `CalibratedClassifier` calibrates a classifier that is already fitted, with any method of densecal. DAC needs features
# to measure distances in. For an `MLPClassifier` these are its hidden layers.

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
# ## Overconfident and underconfident classifiers
#
# Naive Bayes is overconfident, a random forest is underconfident. The same call calibrates both. The classifier must
# not have been fitted on the validation set.

# %%
for estimator in (GaussianNB(), RandomForestClassifier(random_state=0)):
    estimator.fit(X_train, y_train)
    calibrated = CalibratedClassifier(estimator, method="ets").fit(X_val, y_val)
    before, after = estimator.predict_proba(X_test), calibrated.predict_proba(X_test)
    confidences = f"{before.max(1).mean():.1%} -> {after.max(1).mean():.1%}"
    errors = [100 * expected_calibration_error(answer, y_test) for answer in (before, after)]
    print(f"{type(estimator).__name__}: accuracy {accuracy(before, y_test):.1%}, mean confidence {confidences}")
    print(f"    ECE {errors[0]:.1f} -> {errors[1]:.1f}")

# %% The random forest before (left) and after calibration (right). Bars above the diagonal show underconfidence.
figure, axes = plt.subplots(1, 2, figsize=(9, 4.6))
for ax, title, answer in zip(axes, ("random forest", "calibrated"), (before, after), strict=True):
    reliability_diagram(answer, y_test, n_bins=10, ax=ax)
    ax.set_title(title)

# %% [markdown]
# ## DAC on a perceptron
#
# `method="dac+ets"` also needs the training data, `X_train=`, for the bank. Wrap the whole pipeline, as below. If
# `CalibratedClassifier` is itself the last step of a pipeline, use metadata routing to transform `X_train` as well:
# `.set_fit_request(X_train=True)` and `Pipeline(..., transform_input=["X_train"])`.

# %%
network = make_pipeline(PCA(40), MLPClassifier((64, 32), random_state=0, max_iter=400)).fit(X_train, y_train)
ets = CalibratedClassifier(network, method="ets").fit(X_val, y_val)
dac_ets = CalibratedClassifier(network, method="dac+ets").fit(X_val, y_val, X_train=X_train)
print(dac_ets.calibrator_.density_stage.layer_importance_)

rng = np.random.default_rng(0)
for noise in (0, 0.1, 0.2, 0.3):
    X_noisy = np.clip(X_test + rng.normal(0, noise, X_test.shape), 0, 1) if noise else X_test
    errors = {
        name: round(100 * expected_calibration_error(model.predict_proba(X_noisy), y_test), 1)
        for name, model in (("uncalibrated", network), ("ets", ets), ("dac+ets", dac_ets))
    }
    print(f"noise {noise}: accuracy {accuracy(network.predict_proba(X_noisy), y_test):.1%}, ECE {errors}")

# %% [markdown]
# ## Your own features
#
# For other classifiers, `features=` maps X to named arrays. This example uses the pixels, for the forest. The warning
# says that they do not help on clean data, and suggests what to do.

# %%
forest = RandomForestClassifier(random_state=0).fit(X_train, y_train)
by_pixels = CalibratedClassifier(forest, method="dac", features=lambda X: {"pixels": np.asarray(X)}, k=10)
by_pixels.fit(X_val, y_val, X_train=X_train)
print(by_pixels.calibrator_.density_stage.bank)
print(f"ECE {100 * expected_calibration_error(by_pixels.predict_proba(X_test), y_test):.1f}")

# %% [markdown]
# ## Shifted data and model selection
#
# `fit(X_val, y_val, X_train=X_train, X_shifted=..., y_shifted=...)` is the shift fit, with labelled shifted samples
# such as perturbed copies of the validation set.
#
# `predict`, `predict_proba`, `classes_` and `get_params` work as in any estimator, and `confidence(X)` returns the
# calibrated confidence of each prediction. `clone`, `cross_val_score` and `GridSearchCV` refit the calibrator and keep
# the fitted classifier, so pass data that the classifier was not fitted on.
#
# **Next:** [which method should I use?](../which-method.md)
