"""A calibrated model logged with mlflow.pytorch, exported or pickled."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mlflow", reason="MLflow is not installed: pip install mlflow-skinny")

from torch import nn  # noqa: E402

from densecal.torch import CalibratedModel, calibrate  # noqa: E402


@pytest.mark.filterwarnings("ignore")
def test_a_logged_model_is_served_with_its_report(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    x, labels = torch.randn(64, 4), torch.arange(64) % 3
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model = calibrate(network, [(x[:32], labels[:32])], [(x[32:], labels[32:])], k=5, progress=False)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        model.report([(torch.randn(64, 4), labels)], "report.html")
        mlflow.log_artifact("report.html")
        exported = mlflow.pytorch.log_model(model, name="exported", input_example=x[:2].numpy(), pip_requirements=[])
        pickled = mlflow.pytorch.log_model(model, name="pickled", serialization_format="pickle", pip_requirements=[])
    assert [file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)] == ["report.html"]
    expected = model(x).detach().numpy()
    served = mlflow.pyfunc.load_model(exported.model_uri)
    np.testing.assert_allclose(served.predict(x.numpy()), expected, atol=1e-5)
    loaded = mlflow.pytorch.load_model(pickled.model_uri)
    assert isinstance(loaded, CalibratedModel)
    np.testing.assert_allclose(loaded(x).detach(), expected, atol=1e-6)
