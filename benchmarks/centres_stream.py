"""Make the centres of ImageNet-sized training features from a stream sorted by class: time, memory and quality.

    python benchmarks/centres_stream.py [--samples 1281167] [--width 2048]

The generator draws 1,000 classes of several clusters each. The peak of the resident memory is that above the memory
before, with all imports. The quality is the mean distance of held-out samples to their nearest centre, relative to
centres made in memory by k-means over every row of a shuffled part of the same data.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from bench import peak_memory, timed
from densecal import FeatureBank
from densecal.arrays import normalise
from densecal.density.centres import nearest_distances, rounded, spherical_kmeans
from reproduction.page.markdown import markdown

CLASSES = 1_000
CLUSTERS = 8
BATCH = 1_024
IN_MEMORY = 100_000


class Features:
    """Samples around clusters of classes, positive as after a ReLU, in the order of the classes."""

    def __init__(self, n_samples: int, width: int) -> None:
        self.n_samples, self.width = n_samples, width
        draw = np.random.default_rng(0)
        classes = draw.standard_normal((CLASSES, 1, width), dtype=np.float32)
        clusters = 0.7 * draw.standard_normal((CLASSES, CLUSTERS, width), dtype=np.float32)
        self.means = (classes + clusters).reshape(-1, width)

    def rows(self, numbers: np.ndarray, seed: int) -> np.ndarray:
        draw = np.random.default_rng(seed)
        cluster = numbers * CLASSES // self.n_samples * CLUSTERS + draw.integers(0, CLUSTERS, len(numbers))
        noise = draw.standard_normal((len(numbers), self.width), dtype=np.float32)
        return np.maximum(self.means[cluster] + 0.5 * noise, 0)

    def batches(self) -> Iterator[dict[str, np.ndarray]]:
        for seed, start in enumerate(range(0, self.n_samples, BATCH)):
            yield {"pool": self.rows(np.arange(start, min(start + BATCH, self.n_samples)), seed)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_281_167)
    parser.add_argument("--width", type=int, default=2_048)
    given = parser.parse_args()
    features = Features(given.samples, given.width)
    above, making = peak_memory(lambda: timed(lambda: FeatureBank.from_batches(features.batches())))
    drawing = timed(lambda: sum(len(batch["pool"]) for batch in features.batches()))
    bank = making.result
    draw = np.random.default_rng(1)
    held_out = features.rows(draw.integers(0, given.samples, 5_000), seed=-1 % 2**32)
    part = features.rows(draw.permutation(given.samples)[:IN_MEMORY], seed=2**31)
    centres, _ = spherical_kmeans(normalise(part), len(bank))
    streamed = bank.distances({"pool": held_out}).mean()
    in_memory = nearest_distances(normalise(held_out), rounded(centres)).mean()
    sizes = [f"{given.samples:,}", f"{given.width:,}", len(bank)]
    costs = [f"{value:.0f}" for value in (making.seconds, drawing.seconds, making.cpu, above)]
    header = ["samples", "width", "centres", "seconds", "of them drawing", "CPU seconds", "MiB above"]
    print(markdown([*header, "distance, ratio"], [[*sizes, *costs, f"{streamed:.4f}, {streamed / in_memory:.3f}"]]))


if __name__ == "__main__":
    main()
