"""Make every table and figure from the measurements, the tidy table, and the reproduction page.

    python -m reproduction.reproduce_all.py --results results --docs docs [--rows c10-resnet18,...] [--only table1,...]

What was judged once is read back from the cache, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from densecal.io.storage import whole_file
from reproduction.classifiers import CLASSIFIERS
from reproduction.methods import EVERY_METHOD
from reproduction.page import write_page
from reproduction.protocol import Protocol
from reproduction.reproduction import EXPERIMENTS, Reproduction, measured_rows, reproduce
from reproduction.tables import MEAN_TABLES, mean_table

TOO_LONG = ("data-efficiency", "all-layers", "accuracy")
"""Tables that the page leaves to their CSV files."""


def say(text: str) -> None:
    """Write one line at once."""
    sys.stdout.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")
    sys.stdout.flush()


def main() -> None:
    """Make everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, help="where tables go; the results folder without it")
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--rows", help="classifiers, separated by commas; all of the paper's that were measured")
    parser.add_argument("--only", help="experiments, separated by commas")
    parser.add_argument("--resamples", type=int, default=300)
    arguments = parser.parse_args()
    out = arguments.out or arguments.results
    protocol = Protocol(arguments.results, arguments.cache, arguments.resamples)
    rows = tuple(arguments.rows.split(",")) if arguments.rows else measured_rows(protocol)
    for row in rows:
        for method in EVERY_METHOD:
            start = time.perf_counter()
            found = protocol.result(row, method).estimate()
            say(f"{row} {method}: ECE {found} in {time.perf_counter() - start:.1f} s")
    tables = {}
    for name in arguments.only.split(",") if arguments.only else EXPERIMENTS:
        start = time.perf_counter()
        chosen = [row for row in rows if name != "all-layers" or f"{row}-all-layers" in protocol.classifiers]
        made = reproduce(name, chosen, results=arguments.results, cache=arguments.cache, resamples=arguments.resamples)
        if made.table is not None:
            tables[name] = made.table
            replace(made, figure=None).save(out / "tables")
        replace(made, table=None).save(arguments.docs / "reproduction")
        say(f"{name}: {time.perf_counter() - start:.1f} s")
    if not arguments.only:
        finish(protocol, rows, tables, out, arguments.docs)


def finish(protocol: Protocol, rows: Sequence[str], tables: dict[str, pd.DataFrame], out: Path, docs: Path) -> None:
    """Write the tidy table, the table of the classifiers that the paper lacks, and the page."""
    with whole_file(out / "table.csv.gz") as temporary:
        # gzip's header would hold a time and the temporary name; without them the same table is the same file.
        text = protocol.table(rows).to_csv(index=False, float_format="%.6g")
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    names = [name for name in protocol.classifiers if name in CLASSIFIERS and not CLASSIFIERS[name].in_paper]
    others = mean_table(protocol, names, MEAN_TABLES["table1"]) if names else None
    if others is not None:
        Reproduction("others", "Other networks", others).save(out / "tables")
    steps = out / "tables" / "cost-steps.csv"
    write_page(
        docs / "reproduction.md",
        protocol,
        rows,
        {name: table for name, table in tables.items() if name not in TOO_LONG},
        training=out / "training",
        others=others,
        cost=pd.read_csv(steps) if steps.exists() else None,
    )
    say(f"{docs / 'reproduction.md'} is written")


if __name__ == "__main__":
    main()
