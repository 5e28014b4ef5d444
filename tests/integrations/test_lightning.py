"""The Lightning callback: what it calibrates, logs and saves at the end of a fit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'densecal[lightning]'")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from densecal.integrations.lightning import CalibrationCallback  # noqa: E402
from densecal.torch import CalibratedModel  # noqa: E402


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.network(x)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, _, dataloader_idx=0):
        self.log("error", float(self.current_epoch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.5)


class WithoutForward(Classifier):
    forward = lightning.LightningModule.forward

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])


def make_loader(seed):
    x = torch.randn(96, 4, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(x, x[:, :3].argmax(dim=1)), batch_size=32)


@pytest.fixture
def loader():
    return make_loader(0)


def fit(module, callback, loader, folder, **options):
    torch.manual_seed(0)
    # The first epoch is the best one, because validation_step logs the epoch as the error.
    checkpoint = ModelCheckpoint(folder, monitor="error", filename="{epoch}")
    settings = {"max_epochs": 2, "callbacks": [callback, checkpoint], "logger": CSVLogger(folder), **options}
    trainer = lightning.Trainer(
        accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1, **settings
    )
    trainer.fit(module, loader, make_loader(1))
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_the_best_weights_are_calibrated_logged_and_saved_beside_the_checkpoint(loader, tmp_path):
    module, callback = Classifier(), CalibrationCallback(method="ts")
    trainer = fit(module, callback, loader, tmp_path)
    assert callback.path == tmp_path / "epoch=0.densecal"
    best = Classifier.load_from_checkpoint(tmp_path / "epoch=0.ckpt", map_location="cpu")
    x = next(iter(loader))[0]
    loaded = CalibratedModel.load(callback.path, best)
    torch.testing.assert_close(loaded(x), callback.model(x))
    assert not torch.allclose(best.network[0].weight, module.network[0].weight), "the last weights are others"
    trainer.logger.save()
    logged = next(tmp_path.rglob("metrics.csv")).read_text(encoding="utf-8")
    assert "calibration/ece_before" in logged
    assert "calibration/ece," in logged


@pytest.mark.filterwarnings("ignore")
def test_the_last_weights_of_a_submodule_are_calibrated_without_a_checkpoint(loader, tmp_path):
    module, callback = WithoutForward(), CalibrationCallback(classifier="network", weights="last", k=5)
    fit(module, callback, loader, tmp_path, callbacks=[callback], enable_checkpointing=False,
        default_root_dir=tmp_path, logger=False)  # fmt: skip
    assert callback.path == tmp_path / "model.densecal"
    assert callback.model.classifier is module.network
    CalibratedModel.load(callback.path, module.network)


@pytest.mark.filterwarnings("ignore")
def test_what_is_missing_is_said_before_the_training(loader, tmp_path):
    class NeverTrained(WithoutForward):
        def training_step(self, batch, _):
            raise AssertionError

    with pytest.raises(ValueError, match="CalibrationCallback\\(classifier=...\\), one of network"):
        fit(NeverTrained(), CalibrationCallback(), loader, tmp_path)
    with pytest.raises(ValueError, match="The trainer has 2 validation loaders"):
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", callbacks=[CalibrationCallback(classifier="network")], logger=False,
            enable_progress_bar=False, enable_checkpointing=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(NeverTrained(), loader, [loader, loader])
    with pytest.raises(ValueError, match="weights must be 'best' or 'last'"):
        CalibrationCallback(weights="first")


@pytest.mark.filterwarnings("ignore")
def test_each_fit_writes_its_own_file(loader, tmp_path):
    callback = CalibrationCallback(method="ts")
    for folder in (tmp_path / "first", tmp_path / "second"):
        fit(Classifier(), callback, loader, folder)
        assert callback.path == folder / "epoch=0.densecal"


@pytest.mark.filterwarnings("ignore")
def test_a_fast_development_run_is_not_calibrated(loader, tmp_path):
    callback = CalibrationCallback()
    fit(Classifier(), callback, loader, tmp_path, fast_dev_run=True)
    assert callback.model is None


@pytest.mark.parametrize("options", [{"metod": "dac"}, {"method": "dacc"}, {"perturb": ["rotat"]}, {"perturb": []}])
def test_a_mistake_in_the_options_is_told_before_the_training(options):
    with pytest.raises((TypeError, ValueError), match="metod|dacc|rotat|list of kinds"):
        CalibrationCallback(**options)
