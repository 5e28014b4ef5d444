from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from densecal.cli import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def densecal(capsys, tmp_path, monkeypatch):
    """Run the command in an empty folder and return its exit code and what it wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Answer(code, *capsys.readouterr())

    return run


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
