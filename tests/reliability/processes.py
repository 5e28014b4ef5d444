"""Processes that are killed while they save or extract, and processes that load while others save."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

import densecal
from densecal import Outputs, TemperatureScaling
from tests.reliability.harness import Tally, fitted, problem, scratch_folder


def fork(work):
    """Run a function in a child process and return its id; the child never returns."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.alarm(60)  # no child outlives a fuzzer that fails
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def kill(child, seconds):
    """Kill a child after some time; return whether it still ran."""
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def scaling(temperature, n_classes=4):
    """Return temperature scaling with a known temperature, without a fit."""
    calibrator = TemperatureScaling()
    calibrator.temperature_, calibrator.n_classes_, calibrator.is_identity_ = temperature, n_classes, False
    return calibrator


def litter(folder):
    return [file.name for file in folder.iterdir() if file.name.endswith(".partial")]


def kills_during_saves(count, seed=0):
    """Kill a process that saves again and again: the file is the old or the new one, and the next save cleans up."""
    tally, rng = Tally(), np.random.default_rng(seed)
    large, small = fitted("dac+ets"), fitted("ts")
    outputs = Outputs(*problem(40))
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as name:
        path, data = Path(name) / "cal.densecal", Path(name) / "val.npz"

        def save_again_and_again():
            while True:
                large.save(path)
                outputs.save(data)
                small.save(path)
                outputs[:7].save(data)

        for _ in range(count):
            tally.tried += 1
            small.save(path)
            outputs.save(data)
            kill(fork(save_again_and_again), rng.uniform(0, 0.02))
            try:
                found = densecal.load(path).short_name, len(Outputs.load(data))
                if found[0] not in ("ts", "dac+ets") or found[1] not in (7, 40):
                    tally.spoil(f"a file holds {found}")
                small.save(path)
                outputs.save(data)
            except Exception as error:
                tally.spoil(f"after a kill: {error!r}")
            if litter(Path(name)):
                tally.spoil(f"litter: {litter(Path(name))}")
    return tally


def kills_during_extraction(count, seed=0):
    """Kill a process that extracts to a file: the next call resumes, and the result is that of one run."""
    import torch
    from torch import nn

    from densecal.torch import extract_to, resumable_extraction

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(torch.randn(4, 3), torch.tensor([0, 1, 2, 0])) for _ in range(30)]
    before, resumable_extraction.RECORD_SECONDS = resumable_extraction.RECORD_SECONDS, 0.002
    tally, rng = Tally(), np.random.default_rng(seed)
    try:
        with tempfile.TemporaryDirectory(dir=scratch_folder()) as name, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(name) / "all.safetensors"
            expected = extract_to(path, model, batches, progress=False)
            for _ in range(count):
                tally.tried += 1
                path.unlink(missing_ok=True)
                for _ in range(2):
                    if path.exists():
                        break
                    child = fork(lambda: extract_to(path, model, batches, progress=False))
                    kill(child, rng.uniform(0, 0.06))
                try:
                    got = extract_to(path, model, batches, progress=False)
                except FileExistsError:
                    got = Outputs.load(path)
                except Exception as error:
                    tally.spoil(f"cannot resume: {error!r}")
                    continue
                if not np.array_equal(got.logits, expected.logits) or not np.array_equal(got.labels, expected.labels):
                    tally.spoil("resumed with another result")
                if [file.name for file in Path(name).iterdir()] != [path.name]:
                    tally.spoil(f"litter: {[file.name for file in Path(name).iterdir()]}")
    finally:
        resumable_extraction.RECORD_SECONDS = before
    return tally


def loads_beside_saves(count, seed=0):
    """Load while another process saves: each load returns one of the saved models, never a mixture."""
    tally = Tally()
    logits, _, features = problem()
    rows = logits[:5], {layer: values[:5] for layer, values in features.items()}
    models = [scaling(1.5), fitted("dac+ets"), scaling(4.0), fitted("vs")]
    answers = [model.predict_proba(rows[0], features=rows[1]) for model in models]
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as name:
        path, data = Path(name) / "cal.densecal", Path(name) / "val.safetensors"

        def save_all():
            for model in models:
                model.save(path)
            for number in range(1, 5):
                Outputs(np.full((number, 3), float(number)), metadata={"number": str(number)}).save(data)

        def save_forever():
            signal.alarm(1200)
            while True:
                save_all()

        save_all()
        child = fork(save_forever)
        try:
            for number in range(count):
                tally.tried += 1
                try:
                    if number % 2:
                        outputs = Outputs.load(data)
                        same = (
                            outputs.metadata["number"] == str(len(outputs)) and (outputs.logits == len(outputs)).all()
                        )
                    else:
                        got = densecal.load(path).predict_proba(rows[0], features=rows[1])
                        same = any(np.array_equal(got, answer) for answer in answers)
                except Exception as error:
                    tally.spoil(f"a load beside a save: {error!r}")
                    continue
                if not same:
                    tally.spoil("a load mixed two files")
        finally:
            kill(child, 0)
    return tally
