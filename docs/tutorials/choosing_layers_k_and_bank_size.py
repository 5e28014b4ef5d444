# %% [markdown]
# # Choosing layers, k and bank size
#
# DAC has three settings. All have defaults that follow the paper, and this page measures on real data what each does,
# so that you know when to touch it.
#
# ## Layers
#
# The automatic choice reads the output before the first block, the end of every stage, the penultimate features and
# the logits. It goes by the modules that really ran, not by their names, so it works for any architecture.

# %%
import time

import matplotlib.pyplot as plt
import pandas as pd
import torch
import torchvision

import densecal
from densecal.demo import load_demo
from densecal.density.defaults import choose_bank_size, choose_k
from densecal.metrics import expected_calibration_error
from densecal.plots import k_sensitivity, layer_importance
from densecal.torch import select_layers

for name in ("resnet18", "mobilenet_v3_small"):
    network = torchvision.models.get_model(name, weights=None).eval()
    layers = select_layers(network, torch.zeros(1, 3, 224, 224))
    print(f"{name}: {', '.join(layers)}")

# %% [markdown]
# Does it matter? The demo's ResNet18 with fewer layers, fitted for shift each time:

# %%
train, val, perturbed = load_demo("train"), load_demo("val"), load_demo("perturbed")
tests = [load_demo("clean"), *(load_demo(f"shifted-{severity}") for severity in range(1, 6))]


def mean_error(bank, k=None):
    """ECE over clean data and five severities, in points."""
    one = {"k": k} if k else {}
    moved = (perturbed.logits, perturbed.labels, bank.distances(perturbed.features, **one))
    dac = densecal.DAC().fit(val.logits, val.labels, distances=bank.distances(val.features, **one), shifted=moved)
    answers = [dac.predict_proba(test.logits, distances=bank.distances(test.features, **one)) for test in tests]
    return 100 * sum(map(expected_calibration_error, answers, [test.labels for test in tests])) / len(tests), dac


whole = densecal.FeatureBank(train.features, k=10)
scaling = densecal.TemperatureScaling().fit(val.logits, val.labels)
plain = [expected_calibration_error(scaling.predict_proba(test.logits), test.labels) for test in tests]
print(f"temperature scaling: {100 * sum(plain) / len(plain):.2f}")
for choice in (["logits"], whole.layers[-2:], whole.layers[:3], whole.layers):
    error, _ = mean_error(whole.select(choice))
    print(f"{', '.join(choice)}: {error:.2f}")

# %% Each layer's share of the temperature.
_, dac = mean_error(whole)
layer_importance(dict(zip(whole.layers, dac.layer_importance_.values(), strict=True)))

# %% [markdown]
# The rule: start with `"auto"`. The logits and the last features alone know little that the confidence does not know
# already; what corruptions do to an image shows in the early layers. More layers cost memory and time; those without
# weight are dropped before serving.
#
# ## k
#
# The distance is that to the k-th neighbour: a larger k is smoother, a smaller one more local. The paper takes 50 of
# 45,000, 200 for a hundred classes, 10 where only 1 % of the training set is kept. `"auto"` interpolates between
# these:

# %%
for samples, classes in ((45_000, 10), (45_000, 100), (12_811, 1000), (4_000, 10)):
    print(f"{samples:6,} samples, {classes:4} classes: k = {choose_k(samples, classes)}")

# %% Mean ECE over all severities against k, on the demo's data.
rows = [("ts", None, sum(plain) / len(plain))]
for k in (1, 5, 10, 50, 200):
    rows.append(("dac-shift", k, mean_error(whole, k)[0] / 100))
table = pd.DataFrame(rows, columns=["method", "k", "value"])
print(table.assign(value=(100 * table["value"]).round(2)).to_string(index=False))
k_sensitivity(table)

# %% [markdown]
# The curve is flat: k is not a setting to lose sleep over. One search answers several k: `bank.distances(features,
# k=[1, 10, 50])`.
#
# ## Bank size
#
# Memory and search time grow in proportion to the bank. `"auto"` keeps every training sample up to 50,000, else 1 %,
# but at least 12,500:

# %%
for available in (4_000, 50_000, 1_281_167):
    print(f"{available:9,} -> {choose_bank_size(available, 'auto'):6,}")

# %% Mean ECE against the size of the bank (the line is temperature scaling).
rows = []
for size in (250, 1000, 4000):
    bank = densecal.FeatureBank(train.features, k=choose_k(size, 10), subsample=size, seed=0)
    bank.distances(tests[0][:100].features)  # the first search also loads the library
    start = time.perf_counter()
    bank.distances(tests[0].features)
    seconds = time.perf_counter() - start
    width = sum(bank.widths.values())
    rows.append((size, bank.k, mean_error(bank)[0], 4 * size * width / 1e6, 1e6 * seconds / len(tests[0])))
table = pd.DataFrame(rows, columns=["bank", "k", "ECE", "MB", "us a query"])
print(table.round(2).to_string(index=False))
figure, ax = plt.subplots(figsize=(5, 3.4))
ax.plot(table["bank"], table["ECE"], "o-", color="#7b2d8b", label="DAC (shift fit)")
ax.axhline(100 * sum(plain) / len(plain), color="#0072b2", linestyle="--", label="TS")
ax.set(xscale="log", xlabel="training samples in the bank", ylabel="mean ECE (×100)", ylim=(0, None))
ax.minorticks_off()
ax.set_xticks(table["bank"], [f"{size:,}" for size in table["bank"]])
ax.legend(frameon=False)

# %% [markdown]
# A bank of a tenth often does nearly as well. Take all you can afford in memory (float32: four bytes times samples
# times the sum of the layers' widths; half of it with `half_precision_bank=True`), then look at the time.
#
# **Next:** [what search and calibration cost at full size](../benchmarks.md).
