# %% [markdown]
# # Lightning and MLflow
#
# `CalibrationCallback` calibrates the classifier at the end of `Trainer.fit`, logs its calibration error and saves the
# calibrator next to the checkpoint. It requires `pip install "densecal[lightning]"`.

# %%
import os
from pathlib import Path

os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_ALLOW_FILE_STORE="true")

import lightning
import mlflow
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from densecal.integrations.lightning import CalibrationCallback
from densecal.torch import CalibratedModel

torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images / 16).float()[:, None], torch.tensor(digits.target)


def loader(first, last, shuffle=False):
    return DataLoader(TensorDataset(images[first:last], labels[first:last]), batch_size=64, shuffle=shuffle)


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.network(x)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


# %% [markdown]
# ## Calibrate at the end of training
#
# The callback takes the options of `calibrate`. It calibrates the weights of the best checkpoint on the validation data
# of the trainer. If the training data are augmented, pass a loader without augmentation as `train_loader`. If `forward`
# does not return the logits, name the submodule that does: `CalibrationCallback(classifier="network")`.

# %%
calibration = CalibrationCallback()
trainer = lightning.Trainer(
    max_epochs=20, accelerator="cpu", logger=CSVLogger("logs"), enable_progress_bar=False, enable_model_summary=False,
    callbacks=[calibration, ModelCheckpoint("checkpoints", monitor="val_loss", filename="digits")], log_every_n_steps=5,
)  # fmt: skip
trainer.fit(Digits(), loader(0, 900, shuffle=True), loader(900, 1400))
print(*sorted(path.name for path in Path("checkpoints").iterdir()))
print({name: round(value, 4) for name, value in calibration.metrics.items()})

# %% [markdown]
# `calibration.model` is the calibrated model. In another process, load the checkpoint and then the calibrator:

# %%
module = Digits.load_from_checkpoint("checkpoints/digits.ckpt", map_location="cpu")
model = CalibratedModel.load("checkpoints/digits.densecal", module)
with torch.inference_mode():
    print(model(images[1400:1403]).max(dim=1).values)

# %% [markdown]
# `trainer.test` and `trainer.predict` take a `LightningModule` and run it without calibration. For calibrated
# probabilities, call the calibrated model, for example in `predict_step`, or use `model.report(loader, "report.html")`.
# The calibrated model contains the module it wraps, so it cannot be an attribute of that module. With
# `CalibrationCallback(classifier="network")` it contains only the network, so it can.
#
# ## Log it to MLflow
#
# A calibrated model is an `nn.Module`, so `mlflow.pytorch` can log it, and `report` returns the metrics to log with it.
# With an `input_example`, MLflow exports the graph with `torch.export`, for any batch size. Loading it requires neither
# densecal nor the code of the classifier.

# %%
mlflow.set_tracking_uri(Path("mlruns").absolute().as_uri())
with mlflow.start_run():
    evaluation = model.report({"test": loader(1400, 1797)}, "checkpoints/report.html")
    for method in evaluation.methods:
        mlflow.log_metric(f"ece_{method}", evaluation.estimate(method).estimate)
    mlflow.log_artifact("checkpoints/report.html")
    logged = mlflow.pytorch.log_model(model, name="model", input_example=images[:2].numpy(), pip_requirements=["torch"])

served = mlflow.pyfunc.load_model(logged.model_uri)
print(served.predict(images[1400:1403].numpy()).max(axis=1))

# %% [markdown]
# This page logs to a folder. In a project, pass the address of your server to `mlflow.set_tracking_uri`. Without it,
# MLflow writes to a database, which requires `pip install mlflow`; `mlflow-skinny` is not enough.
#
# - With `serialization_format="pickle"`, `mlflow.pytorch.load_model` returns the `CalibratedModel` itself, with
#   `details`.
# - For a Hugging Face model, use pickle, or log the files that `save_pretrained` wrote with `mlflow.log_artifacts`.
#   `mlflow.transformers` cannot load it: it uses the class of the classifier, which does not find its weights.
# - `mlflow.sklearn` logs a `CalibratedClassifier`. Pass the types that MLflow's error lists as `skops_trusted_types`.
#   Switch `mlflow.sklearn.autolog` off: it only recognises scikit-learn's own classes and logs the classifier of every
#   fold.
#
# **Next:** [read the report](reading-a-report.md), or [serve it as one ONNX graph](serving-with-onnx.md).
