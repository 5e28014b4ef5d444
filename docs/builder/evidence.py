"""Measured results as Markdown: the studies, the benchmarks, and every method on the demo's data."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from densecal.calibrators.registry import method_label
from reproduction.classifiers import CLASSIFIERS
from reproduction.natural.cases import NATURAL
from reproduction.natural.estimates import errors_by_pair
from reproduction.page.markdown import markdown
from reproduction.page.tables import frame_table, with_interval
from reproduction.studies.estimation_page import EARLIER, LARGE_BATCHES
from reproduction.studies.shift_fit import CORRUPTION_FAMILIES, FAMILIES, ORACLE_NAME

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
STUDY_ROWS = {
    "uncalibrated": "Uncalibrated",
    "ts": "TS",
    "ets": "ETS",
    "dac": "DAC, clean fit",
    "dac+ets": "DAC + ETS, clean fit",
    "shift fit": "**DAC, shift fit**",
    ORACLE_NAME: "*Oracle*",
}


def without_title(path: str) -> str:
    """Return a page of results without its title, for a page that has its own."""
    return re.sub(r"\A#+ .*\n+", "", (ROOT / path).read_text(encoding="utf-8")).strip()


def classifier_label(name: str) -> str:
    """Return the label of a classifier for the header of a table."""
    return CLASSIFIERS[name].label.removeprefix("C10 ") if name in CLASSIFIERS else name


def shift_study() -> dict[str, Any]:
    """Return the tables and numbers of the study of the shift fit."""
    found = pd.read_csv(RESULTS / "shift_fit" / "study.csv")
    networks = list(dict.fromkeys(found["network"]))

    def grid(column: str) -> str:
        wide = found.pivot(index="method", columns="network", values=column).loc[list(STUDY_ROWS), networks]
        named = wide.rename(index=STUDY_ROWS, columns=classifier_label)
        return frame_table(named.rename_axis("ECE ×100"), ".2f")

    ours = found[found["method"] == "shift fit"].set_index("network")
    paper = found[found["method"] == "dac"].set_index("network")
    return {
        "networks": len(networks),
        "all": grid("all"),
        "clean": grid("severity 0"),
        "worst": grid("severity 5"),
        "share_low": f"{ours['all / ts'].min():.2f}",
        "share_high": f"{ours['all / ts'].max():.2f}",
        "clean_low": f"{ours['in-domain minus ts'].min():+.2f}",
        "clean_high": f"{ours['in-domain minus ts'].max():+.2f}",
        "surely": int((ours["minus ts, high"] < 0).sum()),
        "chosen_on": ", ".join(classifier_label(n) for n in networks if ours.loc[n, "role"] == "chosen on"),
        "paper_useless": [classifier_label(n) for n in networks if paper.loc[n, "all / ts"] > 0.985],
        "by_family": _by_family(found),
    }


def _by_family(found: pd.DataFrame) -> str:
    names = {"ts": "TS", "shift fit": "DAC, shift fit"} | {
        f"only {family}": f"DAC, shift fit, {family} perturbations only" for family in FAMILIES
    }
    means = found[found["method"].isin(names)].groupby("method", sort=False)[CORRUPTION_FAMILIES].mean()
    return frame_table(means.rename(index=names).rename_axis("mean ECE ×100"), ".2f")


def reproduced(method: str | None = None) -> str:
    """Return the reproduced mean ECE of all methods, or of one method without and with DAC."""
    parts = [pd.read_csv(RESULTS / "tables" / f"{name}.csv") for name in ("table1", "additional")]
    table = pd.concat(parts).drop_duplicates(["classifier", "method", "column"])
    table = table[table["column"] == "all"]
    bases = [
        name for name in dict.fromkeys(table["method"]) if "+" not in name and name not in ("uncalibrated", "oracle")
    ]
    chosen = [f"{dac}{name}" for name in ([method] if method else bases) for dac in ("", "dac+")]
    if method == "dac":
        chosen = ["ts", "dac+ts", "ets", "dac+ets", "spl", "dac+spl"]
    wanted = list(dict.fromkeys(["uncalibrated", *chosen, "oracle"]))
    cells = {(row.classifier, row.method): row for row in table.itertuples()}
    networks = list(dict.fromkeys(table["classifier"]))
    lines = [
        [method_label(name), *(with_interval(cells.get((network, name)), 2) for network in networks)]
        for name in wanted
        if any((network, name) in cells for network in networks)
    ]
    shown = set(chosen) & {name for _, name in cells}
    return markdown(["ECE ×100", *map(classifier_label, networks)], lines) if shown else ""


def dac_did_not_help() -> list[str]:
    """Return the classifiers and methods whose mean ECE DAC did not lower in the reproduction."""
    table = pd.read_csv(RESULTS / "tables" / "table2.csv")
    bad = table[(table["column"] == "all") & table["method"].str.startswith("dac+") & (table["ours"] >= 0)]
    pairs = [(classifier_label(row.classifier), row.method.removeprefix("dac+"), row.ours) for row in bad.itertuples()]
    return [f"{network} with {method_label(method)} ({change:+.2f} points)" for network, method, change in pairs]


def corruption_estimates() -> dict[str, dict[str, str]]:
    """Return the mean errors of the estimated accuracies under corruption: of all current and of held-out networks."""
    found = pd.read_csv(RESULTS / "estimation" / "study.csv.gz")
    found = found[(found["kind"] == LARGE_BATCHES) & ~found["network"].isin(EARLIER)]
    truth = found["accuracy"]
    columns = pd.DataFrame(
        {
            "densecal": 100 * (found["densecal"] - truth).abs(),
            "ts": 100 * (found["ts"] - truth).abs(),
            "holds": 100 * truth.between(found["low"], found["high"]),
        }
    )
    means = {"all": columns.mean(), "held_out": columns[found["role"] == "held out"].mean()}
    return {name: {column: f"{value:.1f}" for column, value in mean.items()} for name, mean in means.items()}


def natural_estimates() -> str:
    """Return the mean errors of the estimated accuracies under natural shifts, one row per study."""
    found = [pd.read_csv(path) for path in sorted((RESULTS / "natural").glob("*-estimates.csv"))]
    pairs = errors_by_pair(pd.concat(found))
    rows = [*((NATURAL[name], part) for name, part in pairs.groupby("study")), ("**All**", pairs)]
    lines = [
        [name, str(len(part)), *(f"{part[column].mean():.1f}" for column in ("densecal", "ts", "holds"))]
        for name, part in rows
    ]
    return markdown(["natural shift", "pairs", "densecal", "temperature scaling", "intervals that hold, %"], lines)


def demo_table(cache: Path, state: str) -> pd.DataFrame:
    """Fit and evaluate every method, alone and after DAC, on the demo's data; cached until the code changes."""
    kept = cache / f"demo-{state[:12]}.json"
    if kept.exists():
        return pd.DataFrame(json.loads(kept.read_text(encoding="utf-8")))
    for old in cache.glob("demo-*.json"):
        old.unlink()
    rows = _evaluate_demo()
    cache.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(rows), encoding="utf-8")
    return pd.DataFrame(rows)


def _evaluate_demo() -> list[dict[str, Any]]:
    from densecal import METHODS
    from densecal.demo import open_demo
    from densecal.evaluation import evaluate_conditions

    demo = open_demo()
    conditions = [condition for condition in demo.conditions if not condition.out_of_domain]
    _ = demo.measured, demo.centre_bank  # the banks and their search are no part of the time of a fit
    fitted, seconds = {}, {"uncalibrated": 0.0, "oracle": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ["dac", "dac-shift", *(f"{dac}{m}" for m in METHODS if m != "dac" for dac in ("", "dac+"))]:
            start = time.perf_counter()
            fitted[name] = demo.fit(name)
            seconds[name] = time.perf_counter() - start
        table = evaluate_conditions(fitted, conditions, oracle=True, n_resamples=0, metrics=("ece", "accuracy"))
    errors = table.by_severity("ece").pivot(index="method", columns="severity", values="value")
    accuracies = table.by_severity("accuracy").groupby("method")["value"].mean()
    return [
        {
            "method": name,
            "clean": 100 * float(errors.loc[name, 0]),
            "worst": 100 * float(errors.loc[name, 5]),
            "all": 100 * float(errors.loc[name].mean()),
            "accuracy": 100 * float(accuracies[name] - accuracies["uncalibrated"]),
            "seconds": seconds[name],
        }
        for name in table.methods
    ]


def demo_markdown(table: pd.DataFrame, methods: Sequence[str] | None = None) -> str:
    """Return the demo's results as a table, for all methods or for some."""
    rows = table if methods is None else table.set_index("method", drop=False).loc[list(methods)]
    lines = [
        [
            method_label(row.method),
            f"{row.clean:.1f}",
            f"{row.worst:.1f}",
            f"{row.all:.1f}",
            "0" if abs(row.accuracy) < 5e-4 else f"{row.accuracy:+.2f}",
            f"{row.seconds:.2f}" if row.seconds else "–",
        ]
        for row in rows.itertuples()
    ]
    header = ["ECE ×100", "clean", "severity 5", "mean of 0 to 5", "change of accuracy", "fit, s"]
    return markdown(header, lines)
