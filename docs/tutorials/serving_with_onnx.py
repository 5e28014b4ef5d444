# %% [markdown]
# # Serving with ONNX
#
# `export_onnx` writes the classifier and its calibrator as one ONNX graph from images to calibrated probabilities, for
# serving without Python and PyTorch. The centres are constants of the graph, and the search for the nearest centre is a
# matrix product followed by a minimum. The export requires `pip install "densecal[onnx]"`.

# %%
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_digits
from torch import nn

from densecal.torch import calibrate, export_onnx

torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images / 16).float()[:, None], torch.tensor(digits.target)
train, val, new = slice(0, 900), slice(900, 1400), slice(1400, None)

classifier = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
optimiser = torch.optim.Adam(classifier.parameters(), lr=3e-3)
for _ in range(60):
    optimiser.zero_grad()
    nn.functional.cross_entropy(classifier(images[train]), labels[train]).backward()
    optimiser.step()
classifier.eval()

model = calibrate(classifier, [(images[train], labels[train])], [(images[val], labels[val])], progress=False)
print(model.choices["measured"])

# %% [markdown]
# ## Export
#
# The second argument is an example batch. After writing the file, `export_onnx` runs it in onnxruntime and raises an
# error if the probabilities differ from those of the model by more than 1e-4.

# %%
export_onnx(model, images[:4], "digits.onnx")
print(f"{Path('digits.onnx').stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## Serve
#
# Any batch size works, but images must have the height and width of the example: the graph fixes both, even if the
# classifier accepts other sizes. Resize the images, or export one file per size. Serving requires neither densecal nor
# torch.

# %%
session = onnxruntime.InferenceSession("digits.onnx", providers=["CPUExecutionProvider"])
inputs = {session.get_inputs()[0].name: images[new].numpy()}
(probabilities,) = session.run(None, inputs)
with torch.inference_mode():
    expected = model(images[new]).numpy()
print(probabilities.shape, "largest difference", f"{np.abs(probabilities - expected).max():.1e}")

# %% [markdown]
# The metadata describe the content of the file. `densecal.classifier_sha256` is a hash of the classifier's weights.

# %%
for name, value in session.get_modelmeta().custom_metadata_map.items():
    if name.startswith("densecal."):
        print(f"{name:>26}: {value}")

# %% [markdown]
# ## Size and speed
#
# The file contains the centres, and each input is compared with all of them. Layers with zero weight are left out.
# Fewer centres reduce size and time. With `k`, the bank stores training samples instead, which costs much more:

# %%
loaders = [(images[train], labels[train])], [(images[val], labels[val])]
for options in ({"centres": 30}, {"centres": 90}, {"k": 10}):
    small = calibrate(classifier, *loaders, progress=False, **options)
    export_onnx(small, images[:4], "small.onnx")
    session = onnxruntime.InferenceSession("small.onnx", providers=["CPUExecutionProvider"])
    start = time.perf_counter()
    for _ in range(20):
        session.run(None, inputs)
    milliseconds = 1000 * (time.perf_counter() - start) / 20
    kilobytes = Path("small.onnx").stat().st_size / 1e3
    print(f"{small.choices['bank']}: {kilobytes:.0f} kB, {milliseconds:.1f} ms for {len(images[new])} images")

# %% [markdown]
# Methods that may change the predicted class (`ir`, `vs`, `dir`, `platt`, `beta`) cannot be exported:

# %%
vector_scaling = calibrate(classifier, None, [(images[val], labels[val])], method="vs", progress=False)
try:
    export_onnx(vector_scaling, images[:4], "never.onnx")
except ValueError as error:
    print(str(error)[:100], "...")

# %% [markdown]
# ## A torch.export program
#
# `torch.export` exports a calibrated model like any other module. With `dynamic_shapes`, the batch size is variable,
# and so are height and width if the classifier accepts images of any size: `{2: Dim.AUTO, 3: Dim.AUTO}`. The program
# runs without densecal, and AOTInductor can compile it. For a server that needs TorchScript, `torch.jit.trace` also
# works, although PyTorch has deprecated it.

# %%
with torch.no_grad():
    program = torch.export.export(model, (images[:4],), dynamic_shapes=({0: torch.export.Dim("batch")},))
torch.export.save(program, "digits.pt2")
served = torch.export.load("digits.pt2").module()
with torch.no_grad():
    print("largest difference", f"{np.abs(served(images[new]).numpy() - expected).max():.1e}")

# %% [markdown]
# To serve with PyTorch instead, see [A PyTorch model](pytorch-model.md#serve).
#
# **Next:** [what it costs on larger models](../benchmarks.md).
