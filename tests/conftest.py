from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data for development, beside the repository; tests that need it are skipped elsewhere."""
    if not SHARED_DATA.exists():
        pytest.skip("needs the real data in ../shared/data, which lies only beside the development checkout")
    return SHARED_DATA


class Answer(NamedTuple):
    """The exit code of a command and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run_main(capsys, tmp_path, monkeypatch):
    """Call a command's main function with arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(main, *arguments) -> Answer:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window; tests that need it are skipped elsewhere."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium")
    quiet = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=quiet)
        yield browser
        browser.close()


@pytest.fixture
def check_kernels():
    """Run a file of tests of Triton kernels in a process of its own, on the CPU unless they are to run natively."""

    def check(tests, *, natively=False):
        reason = "older interpreters fail by a newer NumPy"
        pytest.importorskip("triton", minversion=None if natively else "3.7", reason=reason)
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)],
            env={**os.environ, **({} if natively else {"TRITON_INTERPRET": "1"})},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return check


@pytest.fixture
def overconfident():
    """Logits twice too large, labels, and two layers of distances of which the first tells how wrong they are."""
    rng = np.random.default_rng(0)
    samples, classes = 3000, 5
    distances = rng.uniform(0.2, 1.0, (samples, 2))
    honest = rng.normal(0, 2, (samples, classes))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(axis=1)
    return honest * (0.5 + 3 * distances[:, :1]), labels, distances


@pytest.fixture(scope="session")
def drifting():
    """Outputs of an over-confident classifier of 4 classes: train, val, tests of severity 0 to 3, and other classes."""
    from densecal import Outputs

    rng = np.random.default_rng(7)
    classes, width = 4, 8
    centres = rng.normal(0, 1.0, (classes, width))
    mixing = rng.normal(0, 1, (width, 6))

    def outputs(samples, noise, centre, **metadata):
        labels = rng.integers(0, classes, samples)
        late = centre[labels] + rng.normal(0, noise, (samples, width))
        logits = -2.5 * ((late[:, None] - centres) ** 2).sum(-1)
        features = {"early": np.tanh(late @ mixing).astype(np.float16), "late": late.astype(np.float16)}
        known = labels if centre is centres else None
        return Outputs(logits.astype(np.float32), known, features, metadata={"classifier": "four centres", **metadata})

    data = {"train": outputs(400, 0.8, centres), "val": outputs(500, 0.8, centres)}
    for severity in range(4):
        metadata = {"condition": "noise" if severity else "clean", "severity": str(severity)}
        data[f"test-{severity}"] = outputs(300, 0.8 + 0.35 * severity, centres, **metadata)
    data["ood"] = outputs(200, 1.0, centres[::-1] * -1.5, condition="other classes", role="ood")
    return data


@pytest.fixture(scope="session")
def drifting_files(drifting, tmp_path_factory):
    """The folder in which the drifting outputs lie as files, named as the demo's are."""
    folder = tmp_path_factory.mktemp("drifting")
    for name, outputs in drifting.items():
        outputs.save(folder / f"{name}.safetensors")
    return folder
