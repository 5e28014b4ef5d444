"""The state of ``densecal monitor`` counts every day once, whatever fails."""

from __future__ import annotations

import sys

import pytest

from densecal import Monitor
from densecal.cli import main
from densecal.io.files import hold_lock

posix = pytest.mark.skipif(sys.platform == "win32", reason="file locks and devices of POSIX")


@pytest.fixture
def run(folder):
    """The arguments of a command that keeps a state, up to its data."""
    return ("monitor", folder / "cal", "--state", "state", "--window", 600, "--alarm-below", 0.8, "--data")


@posix
def test_a_second_process_on_the_same_state_stops_and_loses_no_day(densecal, folder, run, monkeypatch):
    assert densecal(*run, folder / "day-1.safetensors").code == 0
    save, codes = Monitor.save, []

    def save_while_another_runs(monitor, path):
        monkeypatch.setattr(Monitor, "save", save)
        codes.append(main([*map(str, run), str(folder / "day-3.safetensors")]))
        save(monitor, path)

    monkeypatch.setattr(Monitor, "save", save_while_another_runs)
    answer = densecal(*run, folder / "day-2.safetensors")
    assert (answer.code, codes) == (0, [1])
    assert "densecal: state is being updated by another process. Nothing was written: run the command" in answer.err
    again = densecal(*run, folder / "day-3.safetensors", "--json")
    assert (again.code, again.json["n_samples"]) == (3, 1800)


@posix
def test_a_state_that_is_locked_is_neither_read_nor_written(densecal, folder, run, tmp_path):
    with hold_lock("state"):
        answer = densecal(*run, folder / "day-3.safetensors", "-o", "page.html")
    assert answer.code == 1
    assert list(tmp_path.iterdir()) == []
