"""Compare the bank's search with faiss.IndexFlatL2 plus a square root: ratio of the times, and peak memory.

python benchmarks/bank.py
"""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path

import faiss
import numpy as np

from densecal import FeatureBank

RESULT = Path(__file__).parent / "results" / "bank.md"
SIZE, QUERIES, WIDTH, K = 45_000, 5_000, 512, 50
ROUNDS = 5
REPEATED = 4
"""Copies of the queries in the search whose memory is measured."""


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
    rng = np.random.default_rng(0)
    train, test = (rng.normal(size=(n, WIDTH)).astype(np.float32) for n in (SIZE, QUERIES))
    unit_train, unit_test = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test))
    bank = FeatureBank({"layer": train}, k=K)
    index = faiss.IndexFlatL2(WIDTH)
    index.add(unit_train)

    ours, theirs = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        distances = bank.distances({"layer": test})[:, 0]
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        reference = np.sqrt(index.search(unit_test, K)[0][:, -1])
        theirs.append(time.perf_counter() - start)
    with PeakMemory() as memory:
        bank.distances({"layer": np.repeat(test, REPEATED, axis=0)})
    difference = float(np.abs(distances - reference).max())
    ratio = np.median(np.array(ours) / np.array(theirs))
    text = (
        "## The k-th neighbour search\n\nWritten by `python benchmarks/bank.py`.\n\n"
        "| work (2 cores) | densecal | faiss.IndexFlatL2 + square root | ours / theirs | at most |\n"
        "|---|---|---|---|---|\n"
        f"| {SIZE:,} x {WIDTH} bank, {QUERIES:,} queries, k = {K} | {np.median(ours):.2f} s | "
        f"{np.median(theirs):.2f} s | {ratio:.2f} | 1.1 |\n\n"
        f"Medians of {ROUNDS} alternating rounds. Largest difference of a distance: {difference:.1e}. Peak memory over "
        f"the data, with {REPEATED * QUERIES:,} queries: {memory.peak / 2**20:.0f} MiB (at most 1,024).\n"
    )
    print(text)
    RESULT.write_text(text)


if __name__ == "__main__":
    main()
