"""The state of ``densecal monitor`` counts every day once, whatever fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from densecal import Monitor, Outputs
from densecal.cli import main
from densecal.demo import load_demo
from densecal.io.atomic_files import hold_lock

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


def run_process(arguments, **streams):
    command = [sys.executable, "-m", "densecal", *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **streams)


@posix
@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("reader", ["full", "gone"])
def test_a_result_that_cannot_be_printed_keeps_its_exit_status(folder, run, tmp_path, monkeypatch, options, reader):
    monkeypatch.chdir(tmp_path)
    if reader == "full":
        if not Path("/dev/full").exists():
            pytest.skip("needs /dev/full")
        target = os.open("/dev/full", os.O_WRONLY)
    else:
        source, target = os.pipe()
        os.close(source)
    answer = run_process([*run, folder / "day-3.safetensors", *options], stdout=target)
    os.close(target)
    assert answer.returncode == 3, answer.stderr
    assert "warning: the result could not be printed" in answer.stderr
    assert "but state was saved: do not run the command again." in answer.stderr
    assert "Traceback" not in answer.stderr and "Exception ignored" not in answer.stderr


def test_a_state_that_cannot_be_written_can_be_run_again(densecal, folder, run, tmp_path, monkeypatch):
    def fail(monitor, path):
        raise OSError("the disk is full")

    command = (*run, folder / "day-3.safetensors", "-o", "page.html", "--json")
    with monkeypatch.context() as patched:
        patched.setattr(Monitor, "save", fail)
        assert densecal(*command).code == 1
    page = (tmp_path / "page.html").read_bytes()
    again = densecal(*command)
    assert (again.code, again.json["n_samples"]) == (3, 600)
    assert (tmp_path / "page.html").read_bytes() == page


def test_without_a_complete_window_the_metrics_are_written_and_the_missing_page_is_said(densecal, folder, tmp_path):
    pytest.importorskip("prometheus_client")
    run = ("monitor", folder / "cal", "--state", "state", "--window", 1000, "--alarm-below", 0.8)
    outputs = ("-o", "page.html", "--prometheus", "densecal.prom")
    first = densecal(*run, *outputs, "--data", folder / "day-1.safetensors", "--json")
    assert (first.code, first.json["report"]) == (0, None)
    assert "warning: page.html was not written: no window is complete yet." in first.err
    assert 'densecal_samples_total{model="classifier"} 600.0' in (tmp_path / "densecal.prom").read_text()
    assert not (tmp_path / "page.html").exists()
    then = densecal(*run, *outputs, "--data", folder / "day-2.safetensors", "--json")
    assert (then.json["report"], then.err) == ("page.html", "")


def test_a_day_that_is_read_again_counts_once(densecal, folder, run, tmp_path):
    assert densecal(*run, folder / "day-[12].safetensors").code == 0
    night = densecal(*run, folder / "day-[123].safetensors", "--json")
    assert (night.code, night.json["n_samples"], len(night.json["windows"])) == (3, 1800, 3)
    names = ", ".join(str(folder / f"day-{day}.safetensors") for day in (1, 2))
    assert night.err.startswith(f"warning: Skipped, because read before: {names}. Labels")
    assert night.err.count("\n") == 1
    again = densecal(*run, folder / "day-[123].safetensors", "--json")
    assert (again.code, again.json["windows"]) == (3, night.json["windows"]), "the alarm of the third day lasts"


def test_a_day_that_is_written_again_with_its_labels_counts_once(densecal, folder, run):
    outputs = load_demo("clean")[:600]
    assert densecal(*run, folder / "day-1.safetensors").code == 0
    outputs.save("day-1.npz")
    again = densecal(*run, "day-1.npz", folder / "day-2.safetensors", "--json")
    assert again.json["n_samples"] == 1200
    assert "read before: day-1.npz." in again.err and "--late-labels" in again.err


def test_the_same_outputs_on_another_day_count_again_with_a_warning(densecal, folder, run):
    bad = load_demo("shifted-5")[:300]
    for day in (1, 2):
        Outputs(bad.logits, features=bad.features).save(f"frozen-{day}.npz")
    assert densecal(*run, "frozen-1.npz").code == 0
    found = densecal(*run, "frozen-2.npz", "--json")
    assert (found.code, found.json["n_samples"]) == (3, 600)
    assert "frozen-2.npz has the same outputs as earlier data under another name" in found.err


def test_a_window_ends_with_each_file_if_asked(densecal, folder, run):
    for place, one in enumerate((load_demo("clean")[:200], load_demo("shifted-5")[:400])):
        Outputs(one.logits, features=one.features).save(f"{place}.npz")
    assert densecal(*run, "0.npz", "--close-windows").code == 0
    found = densecal(*run, "1.npz", "--close-windows", "--json")
    assert [one["estimate"]["n_samples"] for one in found.json["windows"]] == [200, 400]
    assert found.code == 3


def test_equal_outputs_with_other_ids_are_other_samples(densecal, folder, run):
    arrays = {f"features/{layer}": values for layer, values in load_demo("clean")[:600].features.items()}
    for day in ("mon", "tue"):
        ids = [f"{day}-{place}" for place in range(600)]
        np.savez(f"{day}.npz", logits=load_demo("clean")[:600].logits, key=ids, **arrays)
    both = densecal(*run, "mon.npz", "tue.npz", "--id", "key", "--json")
    assert (both.code, both.json["n_samples"], both.err) == (0, 1200, "")


def test_equal_outputs_of_other_inputs_are_other_samples(densecal, folder, run):
    for name in ("clean", "shifted-5"):
        logits = np.ones((600, 10))
        Outputs(logits, features={**load_demo(name)[:600].features, "logits": logits}).save(f"{name}.npz")
    both = densecal(*run, "clean.npz", "shifted-5.npz", "--json")
    assert (both.json["n_samples"], both.err) == (1200, "")
