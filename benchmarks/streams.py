"""Evaluate, report and fit logits that are larger than memory: time and peak memory of the commands.

    python benchmarks/streams.py [--samples 5000000] [--dtype float16] [--folder FOLDER] [--write]

The shards have 1,000 classes and 100,000 samples each. Every step is a separate process, timed from start to end
including its imports. The reference is one softmax over the same shards with NumPy, before and after the commands.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from bench import write_section
from densecal import Outputs, TemperatureScaling
from densecal.outputs.shards import shard_name
from reproduction.page.markdown import markdown

CLASSES = 1_000
SHARD = 100_000
BATCH = 2_048
CLASSIFIER_TEMPERATURE = 1.7
FIT_SAMPLES, FIT_METHODS = 1_000_000, ("ts", "ets", "vs")


def write_shards(folder: Path, n_samples: int, dtype: str) -> None:
    """Write shards of different content: the classes of one shard, rotated."""
    count = n_samples // SHARD
    draw = np.random.default_rng(0)
    logits = draw.standard_normal((SHARD, CLASSES), dtype=np.float32)
    logits[np.arange(SHARD), draw.integers(0, CLASSES, SHARD)] += draw.gamma(4.0, 3.0, SHARD)
    noise = draw.gumbel(size=(SHARD, CLASSES)).astype(np.float32)
    labels = (logits / CLASSIFIER_TEMPERATURE + noise).argmax(axis=1)
    stored = logits.astype(dtype)
    for index in range(count):
        path = folder / shard_name("test", index, count)
        if not path.exists():
            Outputs(np.roll(stored, index, axis=1), (labels + index) % CLASSES).save(path)


def softmax_pass(paths: Iterable[Path]) -> None:
    """Compute the softmax of every shard once, in float32."""
    total = 0.0
    for path in paths:
        logits = load_file(path)["logits"]
        for start in range(0, len(logits), BATCH):
            scores = logits[start : start + BATCH].astype(np.float32)
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=1, keepdims=True)
            total += float(scores[0, 0])
    print(total)


def timed(command: list[str]) -> tuple[float, float, float]:
    """Return the seconds, the CPU seconds and the peak of the resident memory in GiB of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command[:6])} failed with status {status}.")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--dtype", choices=["float16", "float32"], default="float16")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--step", choices=["write", "softmax"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step == "write":
        write_shards(given.folder, given.samples, given.dtype)
    elif given.step == "softmax":
        softmax_pass(sorted(given.folder.glob("*.safetensors")))
    else:
        with tempfile.TemporaryDirectory(dir=given.folder) as work:
            shards = (given.folder or Path(work)) / f"shards-{given.samples}-{given.dtype}"
            shards.mkdir(exist_ok=True)
            measure(shards, Path(work), given.samples, given.dtype, write=given.write)


def measure(shards: Path, work: Path, n_samples: int, dtype: str, *, write: bool) -> None:
    own = [sys.executable, __file__, "--folder", str(shards), "--samples", str(n_samples), "--dtype", dtype, "--step"]
    # A process counts the memory of the one that starts it as its own, so this one stays small.
    subprocess.run([*own, "write"], check=True)
    files = sorted(shards.glob("*.safetensors"))
    calibrator = work / "ts.densecal"
    TemperatureScaling().fit(Outputs.open(files[:1])[:2_000]).save(calibrator)
    run = [sys.executable, "-m", "densecal"]
    reference = [*own, "softmax"]
    inputs = [str(calibrator), "--data", str(shards)]
    steps = {
        "softmax with NumPy": reference,
        "`densecal evaluate`": [*run, "evaluate", *inputs],
        "`densecal report`": [*run, "report", *inputs, "--output", str(work / "report.html")],
        "softmax with NumPy, again": reference,
    }
    fitted = [part for path in files[: FIT_SAMPLES // SHARD] for part in ("--val", str(path))]
    for method in FIT_METHODS:
        steps[f"`densecal fit --method {method}`, {min(FIT_SAMPLES, n_samples):,} samples"] = [
            *run, "fit", *fitted, "--method", method, "--output", str(work / f"{method}.densecal"),
        ]  # fmt: skip
    found = {}
    for name, command in steps.items():
        found[name] = timed(command)
        print(name, [round(one, 2) for one in found[name]], flush=True)
    base = np.mean([found[name] for name in steps if name.startswith("softmax")], axis=0)
    rows = [
        [name, f"{wall:.1f}", f"{wall / base[0]:.2f}", f"{cpu:.1f}", f"{cpu / base[1]:.2f}", f"{peak:.2f}"]
        for name, (wall, cpu, peak) in found.items()
    ]
    header = ["step", "seconds", "relative to softmax", "CPU seconds", "relative to softmax", "peak memory (GiB)"]
    size = sum(path.stat().st_size for path in files) / 1e9
    write_section(
        "streams",
        "## Evaluation of shards larger than memory",
        f"{n_samples:,} samples of {CLASSES:,} classes in {dtype} ({size:.0f} GB in {len(files)} files), "
        "uncalibrated and with temperature scaling. Written by `python benchmarks/streams.py --write`. "
        "On a shared machine, the ratio of the CPU seconds is more stable. A fit of more than 100,000 samples uses "
        "100,000 random samples.",
        markdown(header, rows),
        save=write,
    )


if __name__ == "__main__":
    main()
