# %% [markdown]
# # Arrays
#
# DAC needs three kinds of arrays from a trained classifier: **logits** (the scores before the softmax), **labels**, and
# **features**, the outputs of some of its layers. They may come from PyTorch, JAX, TensorFlow or a file. This page does
# not need torch. [Concepts](../concepts.md) defines the terms.
#
# The data are bundled with the package: outputs of a ResNet18 on CIFAR-10 images, clean and corrupted at five
# severities. An `Outputs` object holds and checks the arrays of one data set.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import densecal
from densecal.arrays import softmax
from densecal.demo import load_demo
from densecal.metrics import accuracy, bootstrap_interval, expected_calibration_error
from densecal.plots import reliability_diagram, severity_curves

train, val, test = load_demo("train"), load_demo("val"), load_demo("shifted-5")
print(test)

# from your own arrays
print(densecal.Outputs(np.array([[2.0, 0.5], [0.1, 1.7]]), labels=[0, 1], features={"pool": np.eye(2)}))

# %% [markdown]
# `densecal.Outputs.load` reads the same from a file. The logits of a table keep the order of its columns, whatever
# their names, so all tables must have the same order. [The commands](command-line.md) compare the names and reorder the
# columns.

# %% [markdown]
# ## The uncalibrated classifier
#
# On clean data the classifier is overconfident by 10 points. On shifted data it is much more overconfident, because its
# confidence falls much less than its accuracy.

# %% Reliability diagrams of the uncalibrated classifier, on clean images (left) and at severity 5 (right).
clean = load_demo("clean")
figure, axes = plt.subplots(1, 2, figsize=(9, 4.6))
for ax, name, data in zip(axes, ("clean", "severity 5"), (clean, test), strict=True):
    probabilities = softmax(data.logits)
    print(
        f"{name:>10}: accuracy {accuracy(probabilities, data.labels):.1%}, "
        f"mean confidence {probabilities.max(axis=1).mean():.1%}"
    )
    reliability_diagram(probabilities, data.labels, ax=ax)
    ax.set_title(name)

# %% [markdown]
# ## Temperature scaling
#
# Temperature scaling divides all logits by one number, which is learned on a validation set. All calibrators have the
# same interface: `fit`, then `predict_proba`. Both take an `Outputs` object or arrays, as in `fit(logits, labels)`.

# %%
scaling = densecal.TemperatureScaling().fit(val)
print(f"T = {scaling.temperature_:.2f}")
for name, data in (("clean", clean), ("severity 5", test)):
    before = expected_calibration_error(softmax(data.logits), data.labels)
    after = expected_calibration_error(scaling.predict_proba(data), data.labels)
    print(f"{name:>10}: ECE {100 * before:.1f} -> {100 * after:.1f}")

# %% [markdown]
# This calibrates the classifier on clean data, but not on shifted data: a single temperature does not depend on the
# input.
#
# ## Density-aware calibration
#
# DAC gives each input its own temperature, which grows with its distance from the training data in several layers. A
# `FeatureBank` summarises the training features of each layer by a few hundred centres. The distance of an input is
# the distance to the nearest centre.

# %%
bank = densecal.FeatureBank(train.features)
print(bank)
distances = {"clean": bank.distances(clean.features), "severity 5": bank.distances(test.features)}
print(pd.DataFrame({name: values.mean(axis=0) for name, values in distances.items()}, index=bank.layers).round(3))

# %% [markdown]
# The paper uses the distance to the k-th nearest training sample instead. With `k`, the bank keeps the samples. Any
# other method can follow DAC, as in `dac+ets`; [Methods](../methods/index.md) lists the short names.

# %%
rows = densecal.FeatureBank(train.features, k=10)
clean_fit = densecal.make_calibrator("dac+ets", bank=rows).fit(val)
probabilities = clean_fit.predict_proba(test)
print(f"ECE at severity 5: {100 * expected_calibration_error(probabilities, test.labels):.1f}")
print("predicted classes changed:", int((probabilities.argmax(1) != test.logits.argmax(1)).sum()))

# %% [markdown]
# ## The shift fit
#
# On clean validation data, the errors of a good classifier hardly depend on the distances, so the fit learns little
# from them. `shifted=` adds labelled shifted data, such as perturbed copies of the validation inputs. The perturbations
# do not have to resemble the shift in production. Here the images were rotated, posterised, occluded and otherwise
# perturbed by `densecal.shift.perturb`; none of the perturbations is a test corruption.

# %%
shift_fit = densecal.DAC(bank).fit(val, shifted=load_demo("perturbed"))
probabilities = shift_fit.predict_proba(test)
error = bootstrap_interval(expected_calibration_error, probabilities, test.labels)
print(f"ECE at severity 5: {100 * error.estimate:.1f}, 95 % interval {100 * error.low:.1f} to {100 * error.high:.1f}")

# %% Expected calibration error from clean data (0) to severity 5.
rows = []
for severity in range(6):
    data = load_demo(f"shifted-{severity}" if severity else "clean")
    answers = {
        "uncalibrated": softmax(data.logits),
        "ts": scaling.predict_proba(data),
        "dac+ets": clean_fit.predict_proba(data),
        "dac-shift": shift_fit.predict_proba(data),
    }
    for method, answer in answers.items():
        rows.append((method, severity, expected_calibration_error(answer, data.labels)))
table = pd.DataFrame(rows, columns=["method", "severity", "value"])
print((100 * table.pivot(index="method", columns="severity", values="value")).round(1).loc[list(answers)])
severity_curves(table)

# %% [markdown]
# ## What DAC learned
#
# The layer importances show which layers detect the shift. A temperature above 1 lowers the confidence of an input.

# %%
print({layer: round(share, 2) for layer, share in shift_fit.layer_importance_.items()})
for name, data in (("clean", clean), ("severity 5", test)):
    temperatures = shift_fit.temperatures(data)
    print(f"{name:>10}: temperature {np.quantile(temperatures, [0.1, 0.5, 0.9]).round(2)} (10 %, median, 90 %)")

# %% [markdown]
# ## Save and load
#
# One file contains the parameters and the bank. Loading it does not execute code.

# %%
shift_fit.save("cal.densecal")
loaded = densecal.load("cal.densecal")
print(loaded, np.allclose(loaded.predict_proba(test), probabilities, atol=1e-3))

# %% [markdown]
# **Next:** [the command line](command-line.md), [which method to use](../which-method.md), or [choosing the layers
# and the bank](choosing-layers-and-bank.md).
