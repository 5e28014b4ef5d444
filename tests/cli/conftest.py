from __future__ import annotations

from functools import partial

import pytest

from densecal.cli import main


@pytest.fixture
def densecal(run_main):
    """Run the command in an empty folder and return its exit code and what it wrote."""
    return partial(run_main, main)


def one_line(answer):
    return answer.err.startswith("densecal: ") and answer.err.count("\n") == 1 and "Traceback" not in answer.err


@pytest.fixture
def complains():
    """Whether a failed command said what was wrong in a single line."""
    return one_line


@pytest.fixture(scope="session")
def artefacts(drifting, tmp_path_factory):
    """Calibrators fitted on the drifting validation set, as files."""
    from densecal import FeatureBank, make_calibrator

    folder = tmp_path_factory.mktemp("artefacts")
    val, bank = drifting["val"], FeatureBank(drifting["train"].features, k=10)
    for method in ("ts", "dac+ts"):
        fitted = make_calibrator(method, bank=bank).fit(val.logits, val.labels, features=val.features)
        fitted.save(folder / f"{method}.densecal")
    return folder


@pytest.fixture
def searches(monkeypatch):
    """The number of samples in each search of a bank, as they happen."""
    from densecal import FeatureBank

    found, search = [], FeatureBank.distances

    def counted(bank, features, **options):
        found.append(len(next(iter(features.values()))))
        return search(bank, features, **options)

    monkeypatch.setattr(FeatureBank, "distances", counted)
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A calibrator, and files of two good days, two bad ones and a good one; the third has labels."""
    from densecal import DAC, FeatureBank, Outputs
    from densecal.demo import load_demo, load_domains

    folder = tmp_path_factory.mktemp("monitor")
    DAC(FeatureBank(load_demo("train").features)).fit(load_demo("val"), shifted=load_domains()).save(folder / "cal")
    days = (("clean", 0), ("clean", 600), ("shifted-5", 0), ("shifted-5", 600), ("clean", 1200))
    for day, (name, start) in enumerate(days, start=1):
        outputs = load_demo(name)[start : start + 600]
        labels = outputs.labels if day == 3 else None
        Outputs(outputs.logits, labels, outputs.features).save(folder / f"day-{day}.safetensors")
    return folder
