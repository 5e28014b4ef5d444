"""Time each step as a function of samples, classes, layers, features and centres, on one thread.

    OMP_NUM_THREADS=1 python benchmarks/scale.py

Times are CPU times, which other load affects less than wall times. The documentation's page on scale extrapolates from
them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import densecal
from densecal import FeatureBank, Outputs
from densecal.density.sample import FeatureSample
from densecal.metrics import MetricState

WIDTH, N_LAYERS, N_CLASSES, CENTRES = 512, 4, 1000, 500
GPU_RATE, IMAGE_BYTES, DISK_RATE, EFFICIENCY, STATE_BYTES = 2000, 100_000, 5e9, 0.85, 600_000
SCENES = ((1e6, 1, 1, 16), (1e8, 1, 8, 128), (1e10, 10, 8, 128))
"""Samples, machines, GPUs and cores per machine."""
RNG = np.random.default_rng(0)


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the smallest CPU time of several calls."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def features(n_samples: int, width: int = WIDTH, n_layers: int = N_LAYERS) -> dict[str, np.ndarray]:
    return {f"layer{place}": RNG.normal(size=(n_samples, width)).astype(np.float16) for place in range(n_layers)}


def logits(n_samples: int, n_classes: int = N_CLASSES) -> np.ndarray:
    return 3 * RNG.normal(size=(n_samples, n_classes)).astype(np.float32)


def sampling(n_samples: int, width: int) -> float:
    """Return the time per sample to draw a small sample from a stream, for one layer."""
    given, sample = features(n_samples, width, 1), FeatureSample.for_centres(CENTRES, 0, n_samples=100 * n_samples)
    return seconds(lambda: sample.add(given)) / n_samples


def k_means(centres: int, width: int) -> float:
    given = features(64 * centres, width, 1)
    return seconds(lambda: FeatureBank(given, centres=centres), 1)


def distances(n_samples: int, width: int, centres: int) -> float:
    bank, given = FeatureBank(features(10 * centres, width, 1), centres=centres), features(n_samples, width, 1)
    return seconds(lambda: bank.distances(given)) / n_samples


def predictions(n_samples: int, n_classes: int) -> float:
    given = logits(n_samples, n_classes)
    fitted = densecal.TemperatureScaling().fit(given, (given + RNG.gumbel(size=given.shape)).argmax(axis=1))
    return seconds(lambda: fitted.predict_proba(given)) / n_samples


def metrics(n_samples: int, n_classes: int) -> float:
    given = densecal.arrays.softmax(logits(n_samples, n_classes))
    labels = RNG.integers(0, n_classes, n_samples)
    return seconds(lambda: MetricState(classwise=False).update(given, labels)) / n_samples


def files(n_samples: int) -> tuple[float, float, int]:
    """Return the time to write and to read a sample, and its size in bytes."""
    outputs = Outputs(logits(n_samples), RNG.integers(0, N_CLASSES, n_samples), features(n_samples))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shard.safetensors"
        write = seconds(lambda: outputs.save(path)) / n_samples
        read = seconds(lambda: [len(batch) for batch in Outputs.open(path).batches()]) / n_samples
        return write, read, path.stat().st_size // n_samples


def monitoring(n_samples: int) -> float:
    """Return the time per sample of the monitor itself, with signals computed by a worker."""
    from densecal.demo import load_demo, load_domains
    from densecal.monitor.batches import Observed, observe
    from densecal.monitor.monitor import Monitor

    train, val, clean = (load_demo(name) for name in ("train", "val", "clean"))
    calibrator = densecal.DAC(FeatureBank(train.features)).fit(val, shifted=load_domains())
    seen = observe(calibrator, clean)
    watch, times = Monitor(calibrator, alarm_below=0.5), -(-n_samples // len(seen.predicted))
    many = Observed(np.tile(seen.columns, (times, 1)), np.tile(seen.predicted, times), None)
    return seconds(lambda: watch.append(many)) / len(many.predicted)


def extrapolate(cost: dict[str, float], size: int) -> list[str]:
    """Return the lines of a table of the cost of many samples, computed from the measured cost per sample."""
    evaluated = cost["read"] + N_LAYERS * cost["distance"] + 2 * (cost["probabilities"] + cost["metrics"])
    drawn = cost["read"] + N_LAYERS * cost["draw"]
    lines = [
        "| | 10^6 samples | 10^8 | 10^10 |",
        "|---|---|---|---|",
        "| machines | " + " | ".join(f"{m} with {g} GPU, {c} cores" for _, m, g, c in SCENES) + " |",
    ]

    def row(what: str, of: Callable[[float, int, int, int], str]) -> None:
        lines.append(f"| {what} | " + " | ".join(of(n, m, m * g, m * c) for n, m, g, c in SCENES) + " |")

    def time_of(computing: float, moved: float, machines: int) -> str:
        return duration(max(computing / EFFICIENCY, moved / (DISK_RATE * machines)))

    row("extract: time", lambda n, m, gpus, _: time_of(n / (GPU_RATE * gpus), n * (IMAGE_BYTES + size), m))
    row("extract: read images", lambda n, *_: amount(n * IMAGE_BYTES))
    row("extract: write shards", lambda n, *_: amount(n * size))
    row("extract: memory of a worker, plus the model", lambda n, *_: amount(shard_rows(n) * size))
    row("bank: time", lambda n, m, _, c: time_of(n * drawn / c + N_LAYERS * cost["k_means"], n * size, m))
    row(
        "bank: sent to the driver, and its memory",
        lambda n, *_: amount(min(n, 2 * 64 * CENTRES) * N_LAYERS * WIDTH * 2),
    )
    row("evaluate: time", lambda n, m, _, c: time_of(n * evaluated / c, n * size, m))
    row("evaluate: sent to the driver", lambda n, *_: amount(n / shard_rows(n) * 2 * STATE_BYTES))
    row("apply: write probabilities", lambda n, *_: amount(n * 4 * N_CLASSES))
    row("monitor: sent to the driver", lambda n, *_: amount(n * 8 * (6 + N_LAYERS)))
    row("monitor: time of the driver", lambda n, *_: duration(n * cost["monitor"]))
    return lines


def shard_rows(n_samples: float) -> int:
    return 8192 if n_samples <= 1e8 else 131_072


def duration(value: float) -> str:
    units = (("s", 1), ("min", 60), ("h", 3600))
    name, unit = next((name, unit) for name, unit in reversed(units) if value >= unit or unit == 1)
    return f"{value / unit:.2g} {name}" if value / unit < 10 else f"{value / unit:.0f} {name}"


def amount(value: float) -> str:
    name, unit = next((n, u) for n, u in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if value >= u)
    return f"{value / unit:.2g} {name}" if value / unit < 10 else f"{value / unit:.0f} {name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8192)
    n = parser.parse_args().samples
    write, read, size = files(n)
    draw = {width: sampling(n, width) for width in (256, 512, 1024)}
    fitted = {(c, w): k_means(c, w) for c, w in ((125, 512), (250, 512), (500, 512), (250, 1024))}
    nearest = {(w, c): distances(n, w, c) for w, c in ((512, 250), (512, 500), (1024, 500))}
    softmaxes = {classes: predictions(n, classes) for classes in (10, 100, 1000)}
    measured = {classes: metrics(n, classes) for classes in (10, 100, 1000)}
    watched = monitoring(100_000)
    rows = [
        ("write a sample to a shard", f"{size:,} bytes", f"{write * 1e6:.1f} µs ({size / write / 1e9:.2f} GB/s)"),
        ("read a sample from a shard", f"{size:,} bytes", f"{read * 1e6:.1f} µs ({size / read / 1e9:.2f} GB/s)"),
        *(("sampling for the bank", f"width {w}", f"{value * 1e6:.2f} µs") for w, value in draw.items()),
        *(("k-means, once", f"{c} centres, width {w}", f"{value:.2f} s") for (c, w), value in fitted.items()),
        *(("nearest centre", f"width {w}, {c} centres", f"{value * 1e6:.1f} µs") for (w, c), value in nearest.items()),
        *(("probabilities", f"{c} classes", f"{value * 1e6:.2f} µs") for c, value in softmaxes.items()),
        *(("metrics", f"{c} classes", f"{value * 1e6:.2f} µs") for c, value in measured.items()),
        ("monitor, without the model", "a few numbers", f"{watched * 1e6:.2f} µs"),
    ]
    cost = {"read": read, "draw": draw[512], "k_means": fitted[500, 512], "distance": nearest[512, 500]}
    cost |= {"probabilities": softmaxes[1000], "metrics": measured[1000], "monitor": watched}
    lines = [
        "## Cost per sample",
        "",
        f"CPU time on one thread, per sample and, for features, per layer, of {n:,} samples. Written by "
        "`OMP_NUM_THREADS=1 python benchmarks/scale.py`.",
        "",
        "| step | size | time |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        "### Extrapolation to a million, a hundred million and ten billion samples",
        "",
        f"Computed from the times above for {N_CLASSES:,} classes, {N_LAYERS} layers of {WIDTH} features in float16 "
        f"and {CENTRES} centres. Assumed, not measured: workers are busy {EFFICIENCY:.0%} of the time, a GPU with its "
        f"share of the cores decodes and classifies {GPU_RATE:,} images per second, an image has "
        f"{IMAGE_BYTES // 1000} kB, and a machine reads and writes {DISK_RATE / 1e9:g} GB/s, which limits the "
        "evaluation of many samples. Nothing was run with 10^8 or 10^10 samples.",
        "",
        *extrapolate(cost, size),
    ]
    (Path(__file__).parent / "results" / "scale.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
