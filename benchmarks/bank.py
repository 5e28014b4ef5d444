"""Compare the bank's search with faiss.IndexFlatL2 plus a square root: ratio of the times, and peak memory.

python benchmarks/bank.py
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from pathlib import Path

import faiss
import numpy as np

from densecal import FeatureBank

RESULTS = Path(__file__).parent / "results"
ROUNDS = 5


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class PeakMemory:
    """Peak memory of the process relative to the start, in bytes."""

    def __enter__(self):
        self.start, self.peak, self.running = resident_bytes(), 0, True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self):
        while self.running:
            self.peak = max(self.peak, resident_bytes() - self.start)
            time.sleep(0.002)

    def __exit__(self, *_):
        self.running = False
        self.thread.join()


def main() -> None:
    small = "--small" in sys.argv
    size, queries, width, k = (4_500, 500, 64, 50) if small else (45_000, 5_000, 512, 50)
    rng = np.random.default_rng(0)
    train, test = (rng.normal(size=(n, width)).astype(np.float32) for n in (size, queries))
    unit_train, unit_test = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test))
    bank = FeatureBank({"layer": train}, k=k)
    index = faiss.IndexFlatL2(width)
    index.add(unit_train)

    ours, theirs = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        distances = bank.distances({"layer": test})[:, 0]
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        reference = np.sqrt(index.search(unit_test, k)[0][:, -1])
        theirs.append(time.perf_counter() - start)
    with PeakMemory() as memory:
        bank.distances({"layer": np.repeat(test, 1 if small else 4, axis=0)})
    difference = float(np.abs(distances - reference).max())
    ratio = np.median(np.array(ours) / np.array(theirs))
    searched = len(test) * (1 if small else 4)
    text = (
        "## The k-th neighbour search\n\n"
        "| work (2 cores) | densecal | faiss.IndexFlatL2 + square root | ours / theirs | at most |\n"
        "|---|---|---|---|---|\n"
        f"| {size:,} x {width} bank, {queries:,} queries, k = {k} | {np.median(ours):.2f} s | "
        f"{np.median(theirs):.2f} s | {ratio:.2f} | 1.1 |\n\n"
        f"Medians of {ROUNDS} alternating rounds. Largest difference of a distance: {difference:.1e}. Peak memory over "
        f"the data, with {searched:,} queries: {memory.peak / 2**20:.0f} MiB (at most 1,024).\n"
    )
    print(text)
    if not small:
        (RESULTS / "bank.md").write_text(text)


if __name__ == "__main__":
    main()
