# %% [markdown]
# # A scikit-learn model
#
# `CalibratedClassifier` wraps any classifier, like scikit-learn's `CalibratedClassifierCV`. It fits the classifier by
# cross-validation and the calibrators on the held-out folds.

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from densecal import CalibratedClassifier
from densecal.metrics import expected_calibration_error
from densecal.plots import reliability_diagram
from densecal.shift import table_domains

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
names = y.map({0: "malignant", 1: "benign"})
X_train, X_test, y_train, y_test = train_test_split(X, names, test_size=0.4, random_state=0, stratify=names)

calibrated = CalibratedClassifier(RandomForestClassifier(random_state=0)).fit(X_train, y_train)
print(calibrated.classes_, calibrated.predict(X_test)[:3])
print(calibrated.predict_proba(X_test)[:3].round(3))

# %% [markdown]
# The default method is [beta calibration](../methods/beta.md) for two classes and [matrix scaling](../methods/dir.md)
# for more. Both were chosen on eight real tables and checked on [eight others](../which-method.md#tables). `method=`
# takes any other method. As in scikit-learn, the classifiers of the five folds are averaged, each with its own
# calibrator; `ensemble=False` fits one calibrator on all held-out outputs and one classifier on all samples instead.

# %%
for estimator in (RandomForestClassifier(random_state=0), SVC(), GaussianNB()):
    losses = {}
    for method in ("sigmoid", "isotonic", "temperature"):
        theirs = CalibratedClassifierCV(estimator, method=method).fit(X_train, y_train)
        losses[f"scikit-learn's {method}"] = log_loss(y_test, theirs.predict_proba(X_test))
    for method in ("auto", "ets"):
        ours = CalibratedClassifier(estimator, method).fit(X_train, y_train)
        losses[method] = log_loss(y_test, ours.predict_proba(X_test))
    print(type(estimator).__name__, {name: round(loss, 3) for name, loss in losses.items()})

# %% The random forest before (left) and after calibration (right). Bars above the diagonal show underconfidence.
forest = RandomForestClassifier(random_state=0).fit(X_train, y_train)
figure, axes = plt.subplots(1, 2, figsize=(9, 4.6))
labels = np.searchsorted(forest.classes_, y_test)
for ax, title, model in zip(axes, ("random forest", "calibrated"), (forest, calibrated), strict=True):
    reliability_diagram(model.predict_proba(X_test), labels, n_bins=10, ax=ax)
    ax.set_title(title)

# %% [markdown]
# ## A classifier that is already fitted
#
# A fitted classifier, or a `FrozenEstimator`, is not refitted, and `fit` needs samples that it was not trained on. Your
# object is never changed. With `cv=5`, clones of it are refitted.

# %%
X_fit, X_val, y_fit, y_val = train_test_split(X_train, y_train, random_state=0, stratify=y_train)
forest = RandomForestClassifier(random_state=0).fit(X_fit, y_fit)
print(CalibratedClassifier(forest).fit(X_val, y_val).score(X_test, y_test))
print(CalibratedClassifier(FrozenEstimator(forest)).fit(X_val, y_val).score(X_test, y_test))

# %% [markdown]
# ## Searches, pipelines, weights
#
# `GridSearchCV` searches over the parameters of the calibration and of the classifier. The parameters of a classifier
# that is already fitted cannot be searched: `estimator__...` is then an error. `sample_weight` is passed to the
# classifier and to the methods `beta`, `platt` and `dir`.

# %%
search = GridSearchCV(
    CalibratedClassifier(make_pipeline(StandardScaler(), SVC())),
    {"estimator__svc__C": [0.1, 1, 10], "method": ["beta", "platt"]},
    scoring="neg_log_loss",
    cv=3,
)
print(search.fit(X_train, y_train).best_params_)
weighted = CalibratedClassifier(GaussianNB()).fit(X_train, y_train, sample_weight=np.where(y_train == "benign", 1, 2))

# %% [markdown]
# ## Save and load
#
# `save` writes only the calibration, as safetensors and JSON. Store the classifiers, `estimators_`, in your usual way.
# `load` combines both.

# %%
with tempfile.TemporaryDirectory() as folder:
    calibrated.save(f"{folder}/forest.densecal")
    loaded = CalibratedClassifier.load(f"{folder}/forest.densecal", calibrated.estimators_)
print(np.array_equal(loaded.predict_proba(X_test), calibrated.predict_proba(X_test)))

# %% [markdown]
# ## Density
#
# With `dac`, the calibrator also measures how far a sample lies from the training data, in the hidden layers of an
# `MLPClassifier` or in the space given by `features=`: the name of a pipeline step, a transformer, or a function. For a
# classifier that is already fitted, pass its training samples as `X_train=`. Labelled shifted samples, here digits with
# an erased square, enable the shift fit. The test digits have noise that no calibrator was fitted on.

# %%
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=600, random_state=0, stratify=y)
X_fit, X_val, y_fit, y_val = train_test_split(X_train, y_train, test_size=400, random_state=0, stratify=y_train)
network = make_pipeline(PCA(40), MLPClassifier((64, 32), random_state=0, max_iter=400)).fit(X_fit, y_fit)
rng = np.random.default_rng(0)


def erase_squares(X, size):
    images = X.reshape(-1, 8, 8).copy()
    for image in images:
        row, column = rng.integers(0, 9 - size, 2)
        image[row : row + size, column : column + size] = rng.random()
    return images.reshape(X.shape)


sizes = (2, 3, 4)
X_erased, y_erased = np.concatenate([erase_squares(X_val, size) for size in sizes]), np.tile(y_val, len(sizes))
noisy = {noise: np.clip(X_test + rng.normal(0, noise, X_test.shape), 0, 1) for noise in (0, 0.2, 0.3, 0.4)}
models = {
    "ets": CalibratedClassifier(network, "ets").fit(X_val, y_val),
    "dac+ets": CalibratedClassifier(network, "dac+ets").fit(X_val, y_val, X_train=X_fit),
    "dac+ets on components": CalibratedClassifier(network, "dac+ets", features="pca").fit(X_val, y_val, X_train=X_fit),
    "dac, shift fit": CalibratedClassifier(network, "dac").fit(
        X_val, y_val, X_train=X_fit, X_shifted=X_erased, y_shifted=y_erased
    ),
}
for name, model in models.items():
    errors = [100 * expected_calibration_error(model.predict_proba(X), y_test) for X in noisy.values()]
    print(f"{name}: ECE by noise", dict(zip(noisy, np.round(errors, 1).tolist(), strict=True)))

# %% [markdown]
# Compared with `ets`, the shift fit costs about one point on clean digits and two at a noise of 0.2; it helps only
# under the strongest noise.
#
# **On real tables, distances hardly improve the probabilities** ([the study](../which-method.md#tables)). Therefore
# `dac` is not the default here.
#
# ## Accuracy without labels
#
# With the distances, `dac` can still [estimate the accuracy on new samples](is-my-model-still-right.md) without their
# labels. The fit learns this from labelled samples under several shifts. If you have none, `table_domains` makes
# perturbed copies of the validation samples: with noise, with shuffled columns and with missing values, at three
# strengths. The table below is synthetic, and the shifts of the new samples are not among the copies.

# %%
X, y = make_classification(8000, 20, n_informative=8, n_classes=3, class_sep=1.3, random_state=0)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=5000, random_state=0)
X_val, X_new, y_val, y_new = train_test_split(X_rest, y_rest, test_size=2500, random_state=0)
network = make_pipeline(StandardScaler(), MLPClassifier((64, 32), early_stopping=True, random_state=0))
network.fit(X_train, y_train)

domains = table_domains(X_val)
print(*domains)
calibrated = CalibratedClassifier(network, "dac").fit(X_val, y_val, X_train=X_train, X_shifted=domains, y_shifted=y_val)
five_lost = X_new.copy()
five_lost[:, :5] = X_train[:, :5].mean(axis=0)
offset = X_new + 0.7 * X_train.std(axis=0)
for name, samples in (("like the validation set", X_new), ("five columns lost", five_lost), ("offset", offset)):
    estimate = calibrated.estimate_accuracy(samples)
    print(f"{name}: {estimate}; the truth is {network.score(samples, y_new):.1%}")

# %% [markdown]
# Compare the estimate with what temperature scaling claims, its mean confidence (`estimate.plain_confidence`). On data
# like those of the validation set, and sometimes under a mild shift, this claim is as good an estimate or a better one.
# Under the offset it is much too high.
#
# The offset moves the samples farther away than every copy, so its estimate is marked as an extrapolation. A PyTorch
# model of a table is calibrated in the same way: `calibrate(..., shifted={name: loader})`, with one loader of
# `(copy, labels)` per entry of `table_domains`.
#
# ## Files for the command line
#
# `save` writes the calibrator, and `outputs(X).save` its input for new samples. Commands such as `densecal monitor`
# need only these files, not the estimator.

# %%
calibrated.save("network.densecal")
for day, samples in (("monday", X_new[:1200]), ("tuesday", five_lost[1200:])):
    calibrated.outputs(samples).save(f"{day}.safetensors")

# %% [markdown]
# ```console
# $ densecal monitor network.densecal --assume-logits --data monday.safetensors --data tuesday.safetensors
# ```
#
# For an estimator with `predict_proba`, the logits in these files are the logarithms of its probabilities, and
# `--assume-logits` says that they are not the probabilities themselves. An estimator that has only a
# `decision_function` does not need it. `outputs(X, y)` adds the labels, as positions in `classes_`, for
# `densecal evaluate` and `densecal report`.
#
# Refit the calibrator whenever the classifier is refitted.
#
# **Next:** [which method should I use?](../which-method.md)
