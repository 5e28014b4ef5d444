"""``make reliability``: the full counts, written to benchmarks/results/reliability.md. Exits with 1 if any is bad."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

import densecal
from tests.reliability import memory
from tests.reliability.damaged_files import damaged_files, payload_flips
from tests.reliability.hostile_arrays import hostile_arrays
from tests.reliability.processes import kills_during_extraction, kills_during_saves, loads_beside_saves
from tests.reliability.ray_workers import kills_of_ray_workers
from tests.reliability.threads import calls_from_threads

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "reliability.md"
TRIALS = (
    ("hostile arrays for every calibrator and the bank", hostile_arrays, 20_000),
    ("damaged or forged artefacts, outputs and state files", damaged_files, 20_000),
    ("single bits flipped in artefacts and outputs", payload_flips, 20_000),
    ("kills during saves", kills_during_saves, 800),
    ("kills during an extraction", kills_during_extraction, 200),
    ("kills of workers of Ray", kills_of_ray_workers, 20),
    ("loads beside saves", loads_beside_saves, 10_000),
    ("calls from 8 threads", calls_from_threads, 10_000),
)
EVALUATED, PREDICTED, SEARCHED = (
    {"samples": 200_000, "classes": 1000},
    {"samples": 50_000, "classes": 1000},
    {"budget": 64 << 20},
)
MEMORY = (
    ("`evaluate` of 200,000 x 1,000 logits", 1024, memory.EVALUATE, {**EVALUATED, "report": False}),
    ("`report` of 200,000 x 1,000 logits", 1024, memory.EVALUATE, {**EVALUATED, "report": True}),
    ("`predict_proba` of `ets`, 50,000 x 1,000", 390, memory.PREDICT, {**PREDICTED, "name": "ets"}),
    ("`predict_proba` of `ir`, 50,000 x 1,000", 390, memory.PREDICT, {**PREDICTED, "name": "ir"}),
    ("NumPy search, budget 64 MiB", 96, memory.SEARCH, {**SEARCHED, "backend": "numpy"}),
    ("torch search, budget 64 MiB", 96, memory.SEARCH, {**SEARCHED, "backend": "torch"}),
)
"""What is measured, its limit in MiB, and the program. The limit of a search is its budget and 32 MiB."""


def main() -> int:
    """Run every trial, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of the full counts; below 1 nothing is written")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows, bad = [], 0
    for what, trial, count in TRIALS:
        began = time.monotonic()
        tally = trial(max(1, round(count * options.share)), options.seed)
        bad += len(tally.bad)
        row = f"| {what} | {tally.tried:,} | {tally.refused:,} | {len(tally.bad)} |"
        rows.append(row)
        say(f"{row} {time.monotonic() - began:.0f} s")
        for one in tally.bad[:10]:
            say(f"    {one[:500]}")
    limits = []
    for what, limit, program, values in MEMORY:
        found = memory.peak_of(program, **values)
        bad += found > limit
        limits.append(f"| {what} | {found:,.0f} | {limit:,} |")
        say(limits[-1])
    if options.share == 1:
        RESULTS.write_text(page(rows, limits, options.seed))
    return int(bad > 0)


def page(rows: list[str], limits: list[str], seed: int) -> str:
    """Return the page of results."""
    return "\n".join(
        [
            "# Reliability",
            "",
            f"`make reliability`, densecal {densecal.__version__}, Python {platform.python_version()}, seed {seed}. "
            "*Bad* are wrong results without an error, NaN, rows that do not sum to one, classes changed by an "
            "accuracy-preserving method, errors that name neither file nor argument, crashes, and lost or left-over "
            "files.",
            "",
            "| trial | runs | rejected with a clear error | bad |",
            "|---|--:|--:|--:|",
            *rows,
            "",
            "The other runs returned a result. Results for arrays, threads, loads and randomly damaged files are "
            "compared with known ones. Forged files with a valid checksum, and damaged `.csv` files, which have no "
            "checksum, only have to give valid numbers.",
            "",
            "The limit of a search is its budget plus 32 MiB, the uncertainty of the measurement.",
            "",
            "| memory in addition to the data | MiB | limit |",
            "|---|--:|--:|",
            *limits,
            "",
        ]
    )


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
