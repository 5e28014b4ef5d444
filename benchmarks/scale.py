"""Time what each step costs for one more sample, class, layer, feature or centre, on one thread.

    OMP_NUM_THREADS=1 python benchmarks/scale.py

Times are those of the processor, which other load affects less than wall time. The page on scale in the documentation
reckons with these figures.
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
from densecal.density.sampling import FeatureSample
from densecal.metrics import MetricState

WIDTH, N_LAYERS, N_CLASSES, CENTRES = 512, 4, 1000, 500
RNG = np.random.default_rng(0)


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the least processor time of a call."""
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
    """Return the time that one sample takes of a stream of which few are kept, for one layer."""
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
    """Return the time to write and to read a sample, and its bytes."""
    outputs = Outputs(logits(n_samples), RNG.integers(0, N_CLASSES, n_samples), features(n_samples))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shard.safetensors"
        write = seconds(lambda: outputs.save(path)) / n_samples
        read = seconds(lambda: [len(batch) for batch in Outputs.open(path).batches()]) / n_samples
        return write, read, path.stat().st_size // n_samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8192)
    n = parser.parse_args().samples
    write, read, size = files(n)
    rows = [
        ("write a sample to a shard", f"its {size:,} bytes", f"{write * 1e6:.1f} µs ({size / write / 1e9:.2f} GB/s)"),
        ("read a sample of a shard", "its bytes", f"{read * 1e6:.1f} µs ({size / read / 1e9:.2f} GB/s)"),
    ]
    for width in (256, 512, 1024):
        rows.append(("draw the sample for the bank", f"width {width}", f"{sampling(n, width) * 1e6:.2f} µs"))
    for centres in (125, 250, 500):
        rows.append(("k-means, once", f"{centres} centres, width 512", f"{k_means(centres, 512):.2f} s"))
    rows.append(("k-means, once", "250 centres, width 1024", f"{k_means(250, 1024):.2f} s"))
    for width, centres in ((512, 250), (512, 500), (1024, 500)):
        what = f"width {width}, {centres} centres"
        rows.append(("distance to the nearest centre", what, f"{distances(n, width, centres) * 1e6:.1f} µs"))
    for n_classes in (10, 100, 1000):
        rows.append(("probabilities", f"{n_classes} classes", f"{predictions(n, n_classes) * 1e6:.2f} µs"))
    for n_classes in (10, 100, 1000):
        rows.append(("metrics", f"{n_classes} classes", f"{metrics(n, n_classes) * 1e6:.2f} µs"))
    lines = [
        "## What a sample costs",
        "",
        f"Processor time on one thread, per sample and, for features, per layer: `benchmarks/scale.py`, {n:,} samples.",
        "",
        "| step | of | time |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    (Path(__file__).parent / "results" / "scale.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
