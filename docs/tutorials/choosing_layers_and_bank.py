# %% [markdown]
# # Choosing the layers and the bank
#
# DAC has two settings: the layers, and what the bank stores of the training data. This page measures the effect of
# both.
#
# ## Layers
#
# The automatic choice uses the output before the first block, the end of every stage, the penultimate features and the
# logits. It follows the modules that run in a forward pass, not their names, so it works for any architecture.

# %%
import time

import matplotlib.pyplot as plt
import pandas as pd
import torch
import torchvision

import densecal
from densecal.demo import load_demo
from densecal.density.defaults import choose_bank_size, choose_centres, choose_k
from densecal.metrics import expected_calibration_error
from densecal.plots import layer_importance
from densecal.torch import select_layers

for name in ("resnet18", "mobilenet_v3_small"):
    network = torchvision.models.get_model(name, weights=None).eval()
    layers = select_layers(network, torch.zeros(1, 3, 224, 224))
    print(f"{name}: {', '.join(layers)}")

# %% [markdown]
# The following cell fits the demo's ResNet18 with fewer layers, each time with the shift fit. Temperature scaling is
# fitted by NLL, DAC by the squared error, as by default:

# %%
train, val, perturbed = load_demo("train"), load_demo("val"), load_demo("perturbed")
tests = [load_demo("clean"), *(load_demo(f"shifted-{severity}") for severity in range(1, 6))]


def shift_fit(bank):
    """Return the fitted DAC and its ECE in points, mean over clean data and five severities."""
    dac = densecal.DAC(bank).fit(val, shifted=perturbed)
    errors = [expected_calibration_error(dac.predict_proba(test), test.labels) for test in tests]
    return dac, 100 * sum(errors) / len(errors)


whole = densecal.FeatureBank(train.features)
scaling = densecal.TemperatureScaling().fit(val)
errors = [expected_calibration_error(scaling.predict_proba(test), test.labels) for test in tests]
ts_error = 100 * sum(errors) / len(errors)
print(f"temperature scaling: {ts_error:.2f}")
for choice in (["logits"], whole.layers[-2:], whole.layers[:3], whole.layers):
    _, error = shift_fit(whole.select(choice))
    print(f"{', '.join(choice)}: {error:.2f}")

# %% The contribution of each layer to the temperature.
dac, _ = shift_fit(whole)
layer_importance(dac.layer_importance_)

# %% [markdown]
# Start with `"auto"`. The logits and the last features add little to what the confidence already says; corruptions show
# in the early layers. More layers cost memory and time. Layers with zero weight are dropped before serving.
#
# ## Centres
#
# By default the bank stores centres of the training features, found by k-means, and measures the distance to the
# nearest centre. `"auto"` sets the number of centres by the number of training samples:

# %%
for available in (500, 2_500, 50_000, 1_281_167):
    print(f"{available:9,} -> {choose_centres(available, 'auto'):4}")

# %% [markdown]
# A bank can be built from a stream of any length in bounded memory, and banks of several parts can be merged:

# %%
batches = (train[start : start + 100].features for start in range(0, len(train), 100))
print(densecal.FeatureBank.from_batches(batches))
print(densecal.FeatureBank(train[:1200].features).merge(densecal.FeatureBank(train[1200:].features)))

# %% [markdown]
# ## Training samples and k
#
# With `k`, the bank stores training samples, as in the paper, and measures the distance to the k-th nearest sample. The
# paper uses k = 50 with 45,000 samples of 10 classes, k = 200 for 100 classes, and k = 10 with 1 % of ImageNet.
# `calibrate(k="auto")` and the command line interpolate between these values. `bank_size="auto"` keeps all samples up
# to 50,000; of larger sets it keeps 1 %, but at least 12,500:

# %%
for samples, classes in ((45_000, 10), (50_000, 100), (1_281_167, 1000), (2_500, 10)):
    kept = choose_bank_size(samples, "auto")
    print(f"{samples:9,} samples, {classes:4} classes: keep {kept:6,}, k = {choose_k(kept, classes)}")

# %% Mean ECE and cost of centres and of training samples, on the demo data.
rows = []
for number in (10, 30, 100, 250):
    rows.append(("centres", number, densecal.FeatureBank(train.features, centres=number)))
for number in (250, 1000, 2500):
    rows.append(("samples", number, densecal.FeatureBank(train.features, k=choose_k(number, 10), bank_size=number)))
table = pd.DataFrame(rows, columns=["kept", "number", "bank"])
for place, bank in table["bank"].items():
    bank.distances(tests[0][:100].features)  # warm up
    start = time.perf_counter()
    bank.distances(tests[0].features)
    table.loc[place, "us per query"] = 1e6 * (time.perf_counter() - start) / len(tests[0])
    table.loc[place, "ECE"] = shift_fit(bank)[1]
    table.loc[place, "MB"] = (2 if bank.k is None else 4) * len(bank) * sum(bank.widths.values()) / 1e6
print(table.drop(columns="bank").round(2).to_string(index=False))
figure, ax = plt.subplots(figsize=(5, 3.4))
for kept, part in table.groupby("kept"):
    ax.plot(part["MB"], part["ECE"], "o-", label=f"DAC (shift fit), {kept}")
ax.axhline(ts_error, color="#0072b2", linestyle="--", label="TS")
ax.set(xscale="log", xlabel="size of the bank (MB)", ylabel="mean ECE (×100)", ylim=(0, None))
ax.legend(frameon=False)

# %% [markdown]
# Centres achieve the same gain with a fraction of the memory and time. Use training samples for the fit of the paper,
# without shifted data, or for several values of k at once: `bank.distances(features, k=[1, 10, 50])`.
#
# **Next:** [what search and calibration cost on larger data](../benchmarks.md).
