"""The reproduction page: paper and reproduction side by side, written from the committed results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from densecal.calibrators import UNCALIBRATED
from densecal.metrics import METRICS
from reproduction.classifiers import CLASSIFIERS
from reproduction.experiments import EXPERIMENTS, TIDY
from reproduction.methods import label_of
from reproduction.page.markdown import markdown
from reproduction.page.tables import interval, number, ours_alone, plain_table, side_by_side, with_interval
from reproduction.tables import ALL, IN_DOMAIN, MEAN, MEAN_TABLES, RATIO, SEVERITY_5

TEMPLATE = Path(__file__).with_name("page.md.jinja")
STATED_ACCURACIES = {"c100-resnet18": 75.61, "c100-vgg16": 72.93, "c100-densenet121": 77.01}
"""100 minus the top-1 error in the README of the repository with the architectures."""
OOD_NAMES = {"fashion": "Fashion-MNIST", "imagenet": "ImageNet crops", "objectnet": "ObjectNet"}
NOT_SHOWN = ("data-efficiency", "all-layers", "accuracy", "effect", "others", TIDY)
"""Tables that the page omits (see their CSV files) or shows in another form."""


def write_page(path: Path, results: Path) -> None:
    """Write the page from ``results/tables/*.csv``, ``results/training/*.json`` and the figures next to the page."""
    tables = read_tables(results / "tables")
    rows = list(dict.fromkeys(tables["table1"]["classifier"]))
    steps = results / "tables" / "cost-steps.csv"
    page = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    text = page.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        trainings=_trainings(rows, results / "training"),
        changes=_changes(tables["effect"]),
        summaries=[_summary(tables, row) for row in rows],
        sections=[_table_section(name, table, rows) for name, table in tables.items() if name not in NOT_SHOWN],
        cost_steps=plain_table(pd.read_csv(steps)) if steps.exists() else "",
        default=_default(results / "cifar100"),
        others=_others(tables),
        folder=path.parent,
        not_run=_not_run(rows),
    )
    path.write_text(text, encoding="utf-8")


def _others(tables: Mapping[str, pd.DataFrame]) -> str:
    if "others" not in tables:
        return ""
    table = tables["others"]
    return ours_alone(table[table["column"] == ALL], list(dict.fromkeys(table["classifier"])), 2)


def read_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the tables written by `reproduce`, in the order of the experiments."""
    found = {name: next(folder.glob(f"{name}.csv*"), None) for name in EXPERIMENTS}
    return {name: pd.read_csv(path) for name, path in found.items() if path is not None}


def _table_section(name: str, table: pd.DataFrame, rows: Sequence[str]) -> str:
    heading = f"### {EXPERIMENTS[name].title} (`python -m reproduction {name}`)\n\n"
    if "paper" not in table.columns:
        note = _no_layer_note(table) if name == "layer-choice" else ""
        return heading + plain_table(table) + note
    digits = 4 if name in ("brier", "nll") else 2
    columns = [MEAN, ALL] if name in MEAN_TABLES else list(dict.fromkeys(table["column"]))
    sections = [heading]
    for column in columns:
        part = table[table["column"] == column]
        there = [row for row in rows if row in set(part["classifier"])]
        if part["paper"].notna().any():
            sections.append(f"\n**{_column_title(column)}**\n")
            for dataset in dict.fromkeys(CLASSIFIERS[row].dataset for row in there):
                same = [row for row in there if CLASSIFIERS[row].dataset == dataset]
                sections.append("\n" + side_by_side(part[part["classifier"].isin(same)], same, digits))
        else:
            sections.append(f"\n**{_column_title(column)}** (ours only)\n\n" + ours_alone(part, there, digits))
    return "".join(sections)


def _column_title(column: str) -> str:
    titles = {MEAN: "Mean over all 91 conditions", ALL: "Mean over severities 0 to 5", IN_DOMAIN: "In-domain"}
    titles |= {SEVERITY_5: "Severity 5", RATIO: "Gain in percent of the ECE without DAC"}
    data, _, metric = column.partition(": ")
    if metric in METRICS:
        return f"{OOD_NAMES.get(data, data)}: {METRICS[metric].symbol}, {METRICS[metric].better} is better"
    return titles.get(column, column)


def _no_layer_note(table: pd.DataFrame) -> str:
    """Return a note on the part of DAC's gain that temperature scaling before the method achieves."""
    lines = []
    for (row, method), part in table.groupby(["classifier", "method"], sort=False):
        value = part.set_index("layers")["value"]
        total = value["without DAC"] - value["selected layers"]
        before = value["without DAC"] - value["no layer"]
        if total > 0 and before / total > 0.25:
            lines.append(f"{CLASSIFIERS[str(row)].label} with {label_of(str(method))} {100 * before / total:.0f} %")
    if not lines:
        return ""
    return (
        "\nDAC without any layer is temperature scaling before the method. Relative to the gain of the selected "
        f"layers, its gain is {', '.join(lines)}; for the other methods it is less than a quarter, or zero.\n"
    )


def _trainings(rows: Sequence[str], folder: Path) -> str:
    """Return a table of the trainings, from the metadata written by each training."""
    lines = []
    for row in rows:
        path = folder / f"{row}.json"
        if path.exists():
            metadata = json.loads(path.read_text(encoding="utf-8"))
            accuracies = [number(100 * metadata[f"{split}_accuracy"]) for split in ("val", "test")]
            accuracies.append(number(STATED_ACCURACIES.get(row)))
            decay, seconds = f"{metadata['recipe']['weight_decay']:g}", number(metadata["seconds"], 0)
            lines.append([CLASSIFIERS[row].label, str(metadata["epochs"]), decay, seconds, *accuracies])
    header = ["classifier", "epochs", "weight decay", "seconds", "validation accuracy", "test accuracy", "architecture"]
    return markdown(header, lines) if lines else ""


def _default(folder: Path) -> str:
    """Return the ECE of the default and of its adaptation, and how often they beat TS; empty without results."""
    paths = sorted(folder.glob("*-means.csv"), key=lambda path: list(CLASSIFIERS).index(path.stem[: -len("-means")]))
    lines = []
    for path in paths:
        means, single = pd.read_csv(path), pd.read_csv(str(path).replace("-means.csv", ".csv.gz"))
        overall = means[means["severity"] == ALL].set_index("method")
        for method, row in overall.iterrows():
            own = single[single["method"] == method]
            ece = interval(*(100 * row[column] for column in ("ece", "ece low", "ece high")))
            share = number(row["ece"] / overall.loc["ts", "ece"], 3)
            counts = [str(int((own["high"] < 0).sum())), str(int((own["low"] > 0).sum()))]
            lines.append([f"{CLASSIFIERS[row['network']].label}, {method}", ece, share, *counts])
    header = ["classifier and method", "ECE [95 %]", "ratio to TS", "below TS", "above TS"]
    return markdown(header, lines) if lines else ""


def _changes(table: pd.DataFrame) -> str:
    """Return the change of each method's ECE with DAC, with paired intervals."""
    effect: Any = table.set_index(["classifier", "method", "column"])
    header = ["classifier and method", "in-domain", "severity 5", "all", "excludes 0", "91 conditions", "paper, 91"]
    lines = []
    for row, base in dict.fromkeys(zip(table["classifier"], table["method"], strict=True)):
        changes = [effect.loc[row, base, column] for column in (IN_DOMAIN, SEVERITY_5, ALL, MEAN)]
        cells = [with_interval(change, 2, sign=True) for change in changes]
        cells.insert(3, "yes" if _excludes_zero(changes[2]) else "no")
        paper = number(changes[3].paper, sign=True)
        lines.append([f"{CLASSIFIERS[row].label}, {label_of(base)}", *cells, paper])
    return markdown(header, lines)


def _summary(tables: Mapping[str, pd.DataFrame], row: str) -> dict[str, Any]:
    """Return the numbers of a classifier's summary, and the methods whose ECE DAC does not lower."""
    effect, tidy, accuracy = tables["effect"], tables[TIDY], tables["accuracy"]
    changes = effect[(effect["classifier"] == row) & (effect["column"] == ALL)].set_index("method")
    better = changes["ours"] < 0
    surely = [_excludes_zero(change) for _, change in changes[better].iterrows()]
    plain = accuracy[(accuracy["classifier"] == row) & (accuracy["method"] == UNCALIBRATED)].set_index("column")["ours"]
    clean = tidy[(tidy["classifier"] == row) & (tidy["method"] == UNCALIBRATED) & (tidy["severity"] == 0)]
    return {
        "label": CLASSIFIERS[row].label,
        "clean": plain[IN_DOMAIN],
        "worst": plain[SEVERITY_5],
        "ece": 100 * clean.set_index("metric")["value"]["ece"],
        "better": better.sum(),
        "methods": len(changes),
        "surely": sum(surely),
        "others": [label_of(str(base)) for base in changes.index[~better]],
    }


def _excludes_zero(change: Any) -> bool:
    return bool(change["low"] > 0 or change["high"] < 0)


def _not_run(rows: Sequence[str]) -> str:
    lines = [
        [classifier.label, classifier.dataset, classifier.weights]
        for name, classifier in CLASSIFIERS.items()
        if classifier.in_paper and name not in rows
    ]
    return markdown(["classifier", "data", "weights"], lines)
