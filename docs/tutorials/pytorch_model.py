# %% [markdown]
# # A PyTorch model, end to end
#
# You have a trained `nn.Module`, a loader of its training data and a loader of validation data that it has not seen. Three
# lines later there is a calibrated model. This page trains a small network on scikit-learn's digits, so that it runs anywhere
# in a few seconds; with your own model only the loaders differ.

# %%
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
rest, test = train_test_split(range(len(labels)), test_size=600, random_state=0, stratify=labels)
train, val = train_test_split(rest, test_size=500, random_state=0, stratify=labels[rest])


def loader(rows, shuffle=False):
    return DataLoader(TensorDataset(images[rows] / 255, labels[rows]), batch_size=64, shuffle=shuffle)


classifier = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
optimiser = torch.optim.Adam(classifier.parameters(), lr=2e-3)
for _ in range(12):
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
# `calibrate` runs the classifier over both loaders, picks the layers to read, chooses k and the bank's size, fits, and returns
# an `nn.Module` whose forward gives calibrated probabilities. The classifier itself is not changed. `perturb=True` fits on three
# perturbed copies of the validation images as well; they stand for the shift nobody has seen yet.

# %%
model = calibrate(classifier, loader(train), loader(val), perturb=True, progress=False)
for name, choice in model.choices.items():
    print(f"{name:>16}: {choice}")

# %% [markdown]
# Which layers would it read? `select_layers` says so for any model; `layers=` takes your own list.

# %%
print(select_layers(classifier, images[:2] / 255))

# %% [markdown]
# ## Does it hold when the data move?
#
# `densecal.shift` makes the 18 published corruptions at five severities. Fog on digits:

# %% Eight test digits under fog of severity 0 to 5.
figure, axes = plt.subplots(6, 8, figsize=(6, 4.4))
for severity, row in enumerate(axes):
    for ax, image in zip(row, corrupt(images[test[:8]], "fog", severity), strict=True):
        ax.imshow(image[0], cmap="gray", vmin=0, vmax=255)
        ax.axis("off")

# %% Calibration error of the digits classifier under fog.
scaled = calibrate(classifier, None, loader(val), method="ts", progress=False)
rows = []
for severity in range(6):
    moved = corrupt(images[test], "fog", severity) / 255
    with torch.inference_mode():
        answers = {
            "uncalibrated": classifier(moved).softmax(dim=1),
            "ts": scaled(moved),
            "dac-shift": model(moved),
        }
    right = accuracy(answers["uncalibrated"], labels[test])
    errors = {name: expected_calibration_error(answer, labels[test]) for name, answer in answers.items()}
    rows += [(name, severity, error) for name, error in errors.items()]
    print(f"severity {severity}: accuracy {right:.1%}", {name: round(100 * error, 1) for name, error in errors.items()})
severity_curves(pd.DataFrame(rows, columns=["method", "severity", "value"]))

# %% [markdown]
# These are small data and a small network: with 600 test images an ECE is only known to a point or two, and the gain differs
# from one corruption to the next. [Which method should I use?](../which-method.md) has the evidence at full size.
#
# ## Look inside one answer
#
# `details` gives what the probabilities are made of: the logits, each input's temperature, and its distance in every layer.

# %%
foggy = corrupt(images[test[:3]], "fog", 5) / 255
with torch.inference_mode():
    for name, batch in (("clean", images[test[:3]] / 255), ("fog 5", foggy)):
        details = model.details(batch)
        print(name, "temperature", details.temperature.round(decimals=2).tolist())
        print("      confidence", details.probabilities.max(dim=1).values.round(decimals=3).tolist())

# %% [markdown]
# ## Save and load
#
# The file holds the calibrator, the bank and a fingerprint of the classifier, not the classifier itself. Loading it beside
# another classifier is an error.

# %%
model.save("digits.densecal")
again = CalibratedModel.load("digits.densecal", classifier)
with torch.inference_mode():
    print(torch.allclose(again(foggy), model(foggy), atol=1e-5))
try:
    CalibratedModel.load("digits.densecal", nn.Sequential(nn.Flatten(), nn.Linear(256, 10)))
except ValueError as error:
    print(type(error).__name__, str(error)[:90], "...")

# %% [markdown]
# **Next:** [put it into production as one ONNX graph](serving-with-onnx.md), or
# [choose layers, k and the bank's size yourself](choosing-layers-k-and-bank-size.md).
