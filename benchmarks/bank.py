"""Compare the bank's search with faiss.IndexFlatL2 plus a square root: ratio of the times, and peak memory.

python benchmarks/bank.py
"""

from __future__ import annotations

import faiss
import numpy as np

from bench import peak_memory, timed, write_section
from densecal import FeatureBank
from reproduction.page.markdown import markdown

SIZE, QUERIES, WIDTH, K = 45_000, 5_000, 512, 50
ROUNDS = 5
REPEATED = 4
"""Copies of the queries in the search whose memory is measured."""


def main() -> None:
    rng = np.random.default_rng(0)
    train, test = (rng.normal(size=(n, WIDTH)).astype(np.float32) for n in (SIZE, QUERIES))
    unit_train, unit_test = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test))
    bank = FeatureBank({"layer": train}, k=K)
    index = faiss.IndexFlatL2(WIDTH)
    index.add(unit_train)

    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(timed(lambda: bank.distances({"layer": test})[:, 0]))
        theirs.append(timed(lambda: np.sqrt(index.search(unit_test, K)[0][:, -1])))
    many = {"layer": np.repeat(test, REPEATED, axis=0)}
    peak, _ = peak_memory(lambda: bank.distances(many))
    difference = float(np.abs(ours[-1].result - theirs[-1].result).max())
    our_seconds, their_seconds = (np.array([run.seconds for run in runs]) for runs in (ours, theirs))
    ratio = np.median(our_seconds / their_seconds)
    work = f"{SIZE:,} x {WIDTH} bank, {QUERIES:,} queries, k = {K}"
    row = [work, f"{np.median(our_seconds):.2f} s", f"{np.median(their_seconds):.2f} s", f"{ratio:.2f}", "1.1"]
    write_section(
        "bank",
        "## The k-th neighbour search",
        "Written by `python benchmarks/bank.py`.",
        markdown(["work (2 cores)", "densecal", "faiss.IndexFlatL2 + square root", "ours / theirs", "at most"], [row]),
        f"Medians of {ROUNDS} alternating rounds. Largest difference of a distance: {difference:.1e}. Peak memory over "
        f"the data, with {REPEATED * QUERIES:,} queries: {peak:.0f} MiB (at most 1,024).",
    )


if __name__ == "__main__":
    main()
