# %% [markdown]
# # A PyTorch model, end to end
#
# Given a trained `nn.Module`, a loader of its training data and a loader of validation data, one call returns a
# calibrated model. This page trains a small network on scikit-learn's digits, so that it runs anywhere in a few
# seconds; with your own model only the loaders differ.

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
# `calibrate` runs the classifier over both loaders, picks the layers to read, chooses k and the bank's size, fits,
# and returns an `nn.Module` whose forward returns calibrated probabilities. The classifier itself is not changed. For
# images it also fits on three perturbed copies of the validation set, so that the model stays calibrated under shift
# (`perturb=False` is the paper's fit).
#
# Batches are tensors of inputs, tuples `(inputs, labels)`, or mappings with `labels` or `label` whose other items
# `forward` takes by name. For any other batch pass `batch_fn`, a function from a batch to `(args, kwargs, labels)`:
#
# ```python
# calibrate(classifier, train, val, batch_fn=lambda batch: ((batch["inputs"],), {}, batch["labels"]))
# ```

# %%
model = calibrate(classifier, loader(train), loader(val), progress=False)
for name, choice in model.choices.items():
    print(f"{name:>16}: {choice}")

# %% [markdown]
# `select_layers` returns the layers that it reads in any model; `layers=` takes your own list.

# %%
print(select_layers(classifier, images[:2] / 255))

# %% [markdown]
# ## Calibration under shift
#
# `densecal.shift` has the 18 published corruptions at five severities. Fog on digits:

# %% Eight test digits under fog of severity 0 to 5.
figure, axes = plt.subplots(6, 8, figsize=(6, 4.4))
for severity, row in enumerate(axes):
    for ax, image in zip(row, corrupt(images[test[:8]], "fog", severity), strict=True):
        ax.imshow(image[0], cmap="gray", vmin=0, vmax=255)
        ax.axis("off")

# %% Calibration error of the digits classifier, mean over eight corruptions of each severity.
scaled = calibrate(classifier, None, loader(val), method="ts", progress=False)
paper = calibrate(classifier, loader(train), loader(val), method="dac+ets", progress=False)
some = ("gaussian_noise", "shot_noise", "motion_blur", "snow", "fog", "contrast", "pixelate", "elastic_transform")
rows = []
for severity in range(6):
    for corruption in some if severity else ["none"]:
        shifted = corrupt(images[test], corruption, severity) / 255 if severity else images[test] / 255
        with torch.inference_mode():
            answers = {
                "uncalibrated": classifier(shifted).softmax(dim=1),
                "ts": scaled(shifted),
                "dac+ets": paper(shifted),
                "dac-shift": model(shifted),
            }
        right = accuracy(answers["uncalibrated"], labels[test])
        for name, answer in answers.items():
            rows.append((name, severity, expected_calibration_error(answer, labels[test]), right))
table = pd.DataFrame(rows, columns=["method", "severity", "value", "accuracy"])
print("accuracy (%)", (100 * table.groupby("severity")["accuracy"].mean()).round(1).tolist())
means = table.groupby(["method", "severity"], sort=False)["value"].mean().unstack()
print((100 * means).round(1))
severity_curves(means.stack().rename("value").reset_index())

# %% [markdown]
# With 1,000 test images an ECE is only accurate to a point or two, and DAC's lines may cross the others.
# [Which method should I use?](../which-method.md) has the evidence at full size.
#
# !!! note "Perturbations must keep the label"
#     The generic perturbations rotate and mirror images. A photograph of a cat stays one; a 6 upside down is a 9. Where
#     that matters, or if your data are not images, pass your own shifted data: `calibrate(..., shifted=[loader,
#     ...])`, for example from `densecal.shift.perturb(images, seed, kinds=["translate", "gamma", "cutout"])`.
#
# ## Details of a prediction
#
# `details` also returns the logits, each input's temperature, and its distance in every layer.

# %%
foggy = corrupt(images[test[:3]], "fog", 5) / 255
with torch.inference_mode():
    for name, batch in (("clean", images[test[:3]] / 255), ("fog 5", foggy)):
        details = model.details(batch)
        print(name, "temperature", [f"{value:.2f}" for value in details.temperature])
        print("      confidence", [f"{value:.3f}" for value in details.probabilities.max(dim=1).values])

# %% [markdown]
# ## Save and load
#
# The file holds the calibrator, the bank and a fingerprint of the classifier, not the classifier itself. Loading it
# for another classifier raises an error.

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
# ## Serve
#
# Run it as you run the classifier: under `torch.inference_mode()`, under autocast if you like, on any device. On an
# H200 the calibration adds 2.5 % to a ResNet152's forward pass, and 7 to 21 % to a small ResNet18's, by the bank's size
# (the [benchmarks](../benchmarks.md) have the table).
#
# - `model.half()` also halves the classifier; `model.head.half()` halves the bank alone.
# - With small batches on a fast GPU, launches dominate the time. `model.head.compile(mode="reduce-overhead")` turns the
#   calibration's seven launches into one. `torch.compile` of `dac`, `ts`, `ets`, `vs`, `dir` and `dia` works from
#   torch 2.8 on, of every method from 2.11 on.
# - Compile the classifier after `calibrate`, or call `torch.compiler.reset()` once: code compiled before does not run
#   the hooks that read the layers.

# %% [markdown]
# **Next:** [put it into production as one ONNX graph](serving-with-onnx.md), or
# [choose layers, k and the bank's size yourself](choosing-layers-k-and-bank-size.md).
