# %% [markdown]
# # Choosing layers, k and bank size
#
# DAC has three settings, with defaults that follow the paper. This page measures the effect of each.
#
# ## Layers
#
# The automatic choice takes the output before the first block, the end of every stage, the penultimate features and the
# logits. It follows the modules that run in a forward pass, not their names, so it works for any architecture.

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
# The demo's ResNet18 with fewer layers, each with the shift fit:

# %%
train, val, perturbed = load_demo("train"), load_demo("val"), load_demo("perturbed")
tests = [load_demo("clean"), *(load_demo(f"shifted-{severity}") for severity in range(1, 6))]


def shift_fit(bank):
    """Return the fitted DAC and its ECE in points, mean over clean data and five severities."""
    dac = densecal.DAC(bank).fit(val, shifted=perturbed)
    errors = [expected_calibration_error(dac.predict_proba(test), test.labels) for test in tests]
    return dac, 100 * sum(errors) / len(errors)


whole = densecal.FeatureBank(train.features, k=10)
scaling = densecal.TemperatureScaling().fit(val)
errors = [expected_calibration_error(scaling.predict_proba(test), test.labels) for test in tests]
ts_error = 100 * sum(errors) / len(errors)
print(f"temperature scaling: {ts_error:.2f}")
for choice in (["logits"], whole.layers[-2:], whole.layers[:3], whole.layers):
    _, error = shift_fit(whole.select(choice))
    print(f"{', '.join(choice)}: {error:.2f}")

# %% The share of each layer in the temperature.
dac, _ = shift_fit(whole)
layer_importance(dac.layer_importance_)

# %% [markdown]
# Start with `"auto"`. The logits and the last features add little to the confidence itself; corruptions show in the
# early layers. More layers cost memory and time. Layers without weight are dropped before serving.
#
# ## k
#
# The distance is that to the k-th neighbour: a large k is smoother, a small k more local. The paper uses 50 for a bank
# of 45,000 samples, 200 for 100 classes, and 10 for 1 % of ImageNet. `"auto"` interpolates between these:

# %%
for samples, classes in ((45_000, 10), (45_000, 100), (12_811, 1000), (2_500, 10)):
    print(f"{samples:6,} samples, {classes:4} classes: k = {choose_k(samples, classes)}")

# %% Mean ECE over all severities against k, on the demo's data.
rows = [("ts", None, ts_error / 100)]
for k in (1, 5, 10, 50, 200):
    _, error = shift_fit(densecal.FeatureBank(train.features, k=k))
    rows.append(("dac-shift", k, error / 100))
table = pd.DataFrame(rows, columns=["method", "k", "value"])
print(table.assign(value=(100 * table["value"]).round(2)).to_string(index=False))
k_sensitivity(table)

# %% [markdown]
# The curve is flat: DAC is not sensitive to k. One search can return several k: `bank.distances(features, k=[1, 10,
# 50])`.
#
# ## Bank size
#
# Memory and search time are proportional to the size of the bank. `"auto"` keeps all training samples up to 50,000, and
# otherwise 1 % of them, but at least 12,500:

# %%
for available in (2_500, 50_000, 1_281_167):
    print(f"{available:9,} -> {choose_bank_size(available, 'auto'):6,}")

# %% Mean ECE against the size of the bank.
rows = []
for size in (250, 1000, 2500):
    bank = densecal.FeatureBank(train.features, k=choose_k(size, 10), bank_size=size, seed=0)
    bank.distances(tests[0][:100].features)  # warm up
    start = time.perf_counter()
    bank.distances(tests[0].features)
    seconds = time.perf_counter() - start
    megabytes = 4 * size * sum(bank.widths.values()) / 1e6
    rows.append((size, bank.k, shift_fit(bank)[1], megabytes, 1e6 * seconds / len(tests[0])))
table = pd.DataFrame(rows, columns=["bank_size", "k", "ECE", "MB", "us per query"])
print(table.round(2).to_string(index=False))
figure, ax = plt.subplots(figsize=(5, 3.4))
ax.plot(table["bank_size"], table["ECE"], "o-", color="#7b2d8b", label="DAC (shift fit)")
ax.axhline(ts_error, color="#0072b2", linestyle="--", label="TS")
ax.set(xscale="log", xlabel="training samples in the bank", ylabel="mean ECE (×100)", ylim=(0, None))
ax.minorticks_off()
ax.set_xticks(table["bank_size"], [f"{size:,}" for size in table["bank_size"]])
ax.legend(frameon=False)

# %% [markdown]
# Here a tenth of the training set already gives most of the gain over temperature scaling. The bank takes four bytes
# per sample and feature in float32, and half of that in a file saved with `half_precision_bank=True`.
#
# **Next:** [what search and calibration cost on larger data](../benchmarks.md).
