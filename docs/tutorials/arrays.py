# %% [markdown]
# # With arrays only
#
# You have a trained classifier, and from it three kinds of arrays: **logits** (the scores before the softmax),
# **labels**, and **features**, the outputs of a few of its layers. Where they come from does not matter: PyTorch,
# JAX, TensorFlow, a file. Nothing on this page needs torch.
#
# The data here lie inside the package: what a ResNet18 said about CIFAR-10 images, clean and under corruptions of
# growing severity. Each set is an `Outputs`: logits, labels and features of one data set, checked when it is made.

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

# your own arrays become the same thing:
mine = densecal.Outputs(np.array([[2.0, 0.5], [0.1, 1.7]]), labels=[0, 1], features={"pool": np.eye(2)})
print(mine)

# %% [markdown]
# ## How bad is it?
#
# On clean data the classifier is somewhat over-confident. On data that have moved it is far worse, and it does not
# know: its confidence hardly falls while its accuracy does.

# %% Confidence against accuracy of the uncalibrated classifier: clean images on the left, severity 5 on the right.
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
# ## One temperature for everything
#
# The usual remedy is temperature scaling: divide every input's logits by one number, learned on a validation set. All
# calibrators of densecal work like scikit-learn's estimators: `fit`, then `predict_proba`.

# %%
scaling = densecal.TemperatureScaling().fit(val.logits, val.labels)
print(f"T = {scaling.temperature_:.2f}")
for name, data in (("clean", clean), ("severity 5", test)):
    before = expected_calibration_error(softmax(data.logits), data.labels)
    after = expected_calibration_error(scaling.predict_proba(data.logits), data.labels)
    print(f"{name:>10}: ECE {100 * before:.1f} -> {100 * after:.1f}")

# %% [markdown]
# That repairs the clean data and does too little for the moved ones: one temperature cannot know that an input is
# unusual.
#
# ## A temperature that grows with the distance
#
# DAC asks for each input how far it lies from what the classifier was trained on, in several layers. The training
# features go into a `FeatureBank`; the distance is that to the k-th nearest of them.

# %%
bank = densecal.FeatureBank(train.features, k=10)
print(bank)
near, far = bank.distances(clean.features), bank.distances(test.features)
print(pd.DataFrame({"clean": near.mean(axis=0), "severity 5": far.mean(axis=0)}, index=bank.layers).round(3))

# %% [markdown]
# Any other method may follow DAC: `dac+ets`, `dac+spl`, and so on. The short names are those of the
# [methods' pages](../methods/index.md).

# %%
paper = densecal.make_calibrator("dac+ets", bank=bank)
paper.fit(val.logits, val.labels, features=val.features)
probabilities = paper.predict_proba(test.logits, features=test.features)
print(f"ECE at severity 5: {100 * expected_calibration_error(probabilities, test.labels):.1f}")
print("predicted classes changed:", int((probabilities.argmax(1) != test.logits.argmax(1)).sum()))

# %% [markdown]
# ## Fitted for where the data will go
#
# On clean validation data a good classifier's mistakes hardly depend on the distances, so there is little to learn
# from them. Give `fit` data that *have* moved: perturbed copies of your validation inputs, with their labels. The
# perturbations need not look like the shift to come. (These were rotated, posterised, cut out and so on by
# `densecal.shift.perturb`; none of the test corruptions is among them.)

# %%
perturbed = load_demo("perturbed")
shift_fit = densecal.DAC(bank)
shift_fit.fit(val.logits, val.labels, features=val.features, shifted=perturbed)
probabilities = shift_fit.predict_proba(test.logits, features=test.features)
error = bootstrap_interval(expected_calibration_error, probabilities, test.labels)
print(f"ECE at severity 5: {100 * error.estimate:.1f}, 95 % interval {100 * error.low:.1f} to {100 * error.high:.1f}")

# %% Expected calibration error from clean data (0) to the strongest shift (5).
rows = []
for severity in range(6):
    data = load_demo(f"shifted-{severity}" if severity else "clean")
    distances = bank.distances(data.features)
    answers = {
        "uncalibrated": softmax(data.logits),
        "ts": scaling.predict_proba(data.logits),
        "dac+ets": paper.predict_proba(data.logits, distances=distances),
        "dac-shift": shift_fit.predict_proba(data.logits, distances=distances),
    }
    for method, answer in answers.items():
        rows.append((method, severity, expected_calibration_error(answer, data.labels)))
table = pd.DataFrame(rows, columns=["method", "severity", "value"])
print((100 * table.pivot(index="method", columns="severity", values="value")).round(1).loc[list(answers)])
severity_curves(table)

# %% [markdown]
# ## What it learned
#
# The weights say which layers tell that an input has moved, and every input has its own temperature: above 1 it
# becomes less confident.

# %%
print({layer: round(share, 2) for layer, share in shift_fit.layer_importance_.items()})
for name, data in (("clean", clean), ("severity 5", test)):
    temperatures = shift_fit.temperatures(features=data.features, logits=data.logits)
    print(f"{name:>10}: temperature {np.quantile(temperatures, [0.1, 0.5, 0.9]).round(2)} (10 %, median, 90 %)")

# %% [markdown]
# ## Keep it
#
# One file holds the parameters and the bank; nothing in it is executed when it is read.

# %%
shift_fit.save("cal.densecal", half_precision_bank=True)
again = densecal.load("cal.densecal")
print(again, np.allclose(again.predict_proba(test.logits, features=test.features), probabilities, atol=1e-3))

# %% [markdown]
# **Next:** [the same from the command line](command-line.md), [which method to use](../which-method.md), or
# [how to choose layers, k and the bank's size](choosing-layers-k-and-bank-size.md).
