# %% [markdown]
# # A PyTorch model
#
# `calibrate` needs a trained `nn.Module`, a loader of its training data and a loader of validation data that it was not
# trained on. This page trains a small network on scikit-learn's digits, which takes a few seconds on a CPU.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from densecal.metrics import accuracy, expected_calibration_error
from densecal.plots import severity_curves
from densecal.shift import corrupt
from densecal.torch import CalibratedModel, calibrate, select_layers

torch.manual_seed(0)
digits = load_digits()
# 8x8 digits as 16x16 grey images, 0 to 255
images = torch.tensor(digits.images / 16 * 255).round().byte()[:, None]
images = images.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
labels = torch.tensor(digits.target)
rest, test = train_test_split(range(len(labels)), test_size=1000, random_state=0, stratify=labels)
train, val = train_test_split(rest, test_size=500, random_state=0, stratify=labels[rest])


def loader(rows, shuffle=False):
    return DataLoader(TensorDataset(images[rows] / 255, labels[rows]), batch_size=64, shuffle=shuffle)


classifier = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
optimiser = torch.optim.Adam(classifier.parameters(), lr=3e-3)
for _ in range(50):
    for batch, targets in loader(train, shuffle=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(classifier(batch), targets).backward()
        optimiser.step()
classifier.eval()
with torch.inference_mode():
    print(f"test accuracy {accuracy(classifier(images[test] / 255).softmax(1), labels[test]):.1%}")

# %% [markdown]
# ## Calibrate
#
# `calibrate` chooses the layers and the number of centres, runs the classifier over both loaders, fits DAC, and
# returns an `nn.Module` whose `forward` returns calibrated probabilities. The classifier is not changed. For images,
# the fit also uses three perturbed copies of the validation set, which keep the model calibrated under shift.
# `perturb=False` gives the fit of the paper. After any further training of the classifier, calibrate it again.

# %%
model = calibrate(classifier, loader(train), loader(val), progress=False)
for name, choice in model.choices.items():
    print(f"{name:>16}: {choice}")

# %% [markdown]
# `select_layers` shows the layers that are chosen for a model. To use others, pass a list as `layers=`.

# %%
print(select_layers(classifier, images[:2] / 255))

# %% [markdown]
# !!! note "Batches with another structure"
#     A batch is a tensor of inputs, a tuple `(inputs, labels)`, or a mapping with `labels` or `label` whose other items
#     `forward` takes by name. For any other structure, pass `batch_fn`, a function from a batch to `(args, kwargs,
#     labels)`. For a model whose `forward` takes one dict, use `batch_fn=lambda batch: ((batch["inputs"],), {},
#     batch["labels"])`.
#
# !!! note "Binary classifiers with one logit"
#     One logit z per sample, as for `BCEWithLogitsLoss`, is treated as the two logits (0, z). The calibrated
#     probabilities then have two columns; the second is the probability of class 1.
#
# ## Evaluate under shift
#
# `densecal.shift.corrupt` generates the 18 published corruptions, such as fog, at five severities:

# %% Eight test digits under fog of severity 0 to 5.
figure, axes = plt.subplots(6, 8, figsize=(6, 4.4))
for severity, row in enumerate(axes):
    for ax, image in zip(row, corrupt(images[test[:8]], "fog", severity), strict=True):
        ax.imshow(image[0], cmap="gray", vmin=0, vmax=255)
        ax.axis("off")

# %% Calibration error of the digits classifier, mean over eight corruptions of each severity.
scaled = calibrate(classifier, None, loader(val), method="ts", progress=False)
clean_fit = calibrate(classifier, loader(train), loader(val), method="dac+ets", progress=False)
kinds = ("gaussian_noise", "shot_noise", "motion_blur", "snow", "fog", "contrast", "pixelate", "elastic_transform")
rows = []
for severity in range(6):
    for corruption in kinds if severity else ["none"]:
        shifted = corrupt(images[test], corruption, severity) / 255 if severity else images[test] / 255
        with torch.inference_mode():
            answers = {
                "uncalibrated": classifier(shifted).softmax(dim=1),
                "ts": scaled(shifted),
                "dac+ets": clean_fit(shifted),
                "dac-shift": model(shifted),
            }
        correct = accuracy(answers["uncalibrated"], labels[test])
        for name, answer in answers.items():
            rows.append((name, severity, expected_calibration_error(answer, labels[test]), correct))
table = pd.DataFrame(rows, columns=["method", "severity", "value", "accuracy"])
print("accuracy (%)", (100 * table.groupby("severity")["accuracy"].mean()).round(1).tolist())
means = table.groupby(["method", "severity"], sort=False)["value"].mean().unstack()
print((100 * means).round(1))
severity_curves(means.stack().rename("value").reset_index())

# %% [markdown]
# Here the shift fit is worse than temperature scaling at every severity: a few hundred training images are too few for
# a good bank. Evaluate on your own data before you choose a method. [Which method should I use?](../which-method.md)
# has results on larger data.
#
# !!! note "Perturbations must keep the label"
#     [The perturbations](../which-method.md#perturbations) also rotate images, turn them upside down and permute their
#     tiles. An upside-down cat is still a cat, but an upside-down 6 is a 9. For digits and letters, leave these kinds
#     out:
#
#     ```python
#     from densecal.shift import PERTURBATIONS
#
#     kinds = [kind for kind in PERTURBATIONS if kind not in ("flip", "rotate", "grid_shuffle")]
#     model = calibrate(classifier, train_loader, val_loader, perturb=kinds)
#     ```
#
#     If your data are not images, use your own shifted data: `calibrate(..., shifted={name: loader, ...})`. For tables
#     and texts, [`table_domains`](scikit-learn.md#accuracy-without-labels) and
#     [`token_domains`](hugging-face.md#accuracy-without-labels) make perturbed copies of the validation data.
#
# ## Accuracy without labels
#
# `estimate_accuracy` runs the model over a loader and estimates the accuracy; it ignores labels. [Is my model still
# right?](is-my-model-still-right.md) shows how to use the estimate, and how accurate it is.

# %%
unlabelled = corrupt(images[test], "fog", 3) / 255
print(model.estimate_accuracy(DataLoader(unlabelled, batch_size=64)))
with torch.inference_mode():
    print(f"the truth, from the labels: {accuracy(model(unlabelled), labels[test]):.1%}")

# %% [markdown]
# Estimate the accuracy on new data, not on the data of the fit. Inputs that have nothing to do with the task can have
# the same distances as a perturbation of the fit, and the estimate is then too high. Here are images of pure noise and
# plain grey frames, with the labels of the test digits:

# %%
drawn = torch.Generator().manual_seed(0)
nonsense = {
    "noise": torch.rand(len(test), 1, 16, 16, generator=drawn),
    "grey": torch.rand(len(test), 1, 1, 1, generator=drawn).expand(-1, 1, 16, 16),
}
for name, inputs in nonsense.items():
    estimate = model.estimate_accuracy(DataLoader(inputs, batch_size=64))
    with torch.inference_mode():
        truth = accuracy(model(inputs), labels[test])
    interval = f"({100 * estimate.low:.0f} to {100 * estimate.high:.0f})"
    print(f"{name:>5}: estimated {100 * estimate.accuracy:.0f} % {interval}, truth {100 * truth:.0f} %")
    print(f"       far inputs {estimate.far_share:.1%}, extrapolated: {estimate.is_extrapolated}")

# %% [markdown]
# The fraction of far inputs reveals the grey frames, but not the noise. The wide intervals are a warning. Look at some
# of the inputs before you trust an estimate.
#
# ## Inspect predictions
#
# `details` returns the logits, the temperature of each input, and its distance in every layer.

# %%
foggy = corrupt(images[test[:3]], "fog", 5) / 255
with torch.inference_mode():
    for name, batch in (("clean", images[test[:3]] / 255), ("fog 5", foggy)):
        details = model.details(batch)
        print(name, "temperature", [f"{value:.2f}" for value in details.temperature])
        print("      confidence", [f"{value:.3f}" for value in details.probabilities.max(dim=1).values])

# %% [markdown]
# ## Report
#
# `report` evaluates the model on one loader, or on several named ones, and writes [a report](reading-a-report.md).
# A name such as `fog-3` denotes a corruption and its severity.

# %%
foggy_loader = [(corrupt(images[test], "fog", 3) / 255, labels[test])]
Path("reports").mkdir()
print(model.report({"clean": loader(test), "fog-3": foggy_loader}, "reports/digits.html"))

# %% [markdown]
# ## Save and load
#
# The file contains the calibrator, the bank and a fingerprint of the classifier, but not the classifier itself. Loading
# it with another classifier is an error.

# %%
model.save("digits.densecal")
loaded = CalibratedModel.load("digits.densecal", classifier)
with torch.inference_mode():
    print(torch.allclose(loaded(foggy), model(foggy), atol=1e-5))
try:
    CalibratedModel.load("digits.densecal", nn.Sequential(nn.Flatten(), nn.Linear(256, 10)))
except ValueError as error:
    print(type(error).__name__, str(error)[:90], "...")

# %% [markdown]
# ## Serve
#
# Run the model as you run the classifier: under `torch.inference_mode()`, with or without autocast, on any device. On
# an H200 the calibration adds 2 % to the forward pass of a ResNet152 with 64 images, and 5 to 15 % to that of a small
# ResNet18 with 512 and with 32 images. In a stream of batches of 32 images without synchronisation it adds 27 to 32 %
# ([Benchmarks](../benchmarks.md#the-calibrated-forward-pass-on-one-h200)).
#
# - `model.head.half()` converts the bank to half precision; `model.half()` also converts the classifier.
# - Small batches on a fast GPU are limited by kernel launches. `model.head.compile(mode="reduce-overhead")` replaces
#   those of the calibration by one. `torch.compile` supports `dac`, `ts`, `ets`, `vs`, `dir` and `dia` since
#   torch 2.8, and every method since 2.11.
# - Compile the classifier after `calibrate`. If it was compiled before, call `torch.compiler.reset()` once, because the
#   compiled code lacks the hooks that read the layers.
#
# **Next:** [serve it as one ONNX graph](serving-with-onnx.md), or [choose the layers and the bank
# yourself](choosing-layers-and-bank.md).
