"""The reproduction page: paper and reproduction side by side, written from the results alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from densecal.calibrators.names import UNCALIBRATED
from densecal.metrics import METRICS
from reproduction.classifiers import CLASSIFIERS
from reproduction.methods import DAC, MAIN, label_of
from reproduction.page_tables import classifiers_in, markdown, number, ours_alone, plain_table, side_by_side
from reproduction.page_text import COST, FINDINGS, INTRODUCTION, NOT_RUN, OTHERS, READING, TRAININGS, WHY_DIFFERENT
from reproduction.protocol import Protocol
from reproduction.published import published_numbers
from reproduction.results import Over
from reproduction.tables import MEAN_TABLES, dac_helps

if TYPE_CHECKING:
    import pandas as pd

OOD_NAMES = {"fashion": "Fashion-MNIST", "imagenet": "ImageNet crops", "objectnet": "ObjectNet"}
FIGURES = {
    "severity": "ECE by severity (left) and its mean (right), without DAC (dashed, hollow) and with it (solid).",
    "severity-additional": "The same for PTS, IR and DIR.",
    "layer-importance": "Each layer's share of DAC's temperature, from input (left) to logits (right).",
    "all-layers": "DAC's weights along the network: the paper's selected layers, and all of them.",
    "k-sensitivity": "Mean ECE against k; level lines are the methods without DAC.",
    "data-efficiency": "Mean ECE against the share of the validation set; the band spans five random draws.",
    "trade-off": "The same in-domain and at severity 5.",
    "layer-choice": "Mean ECE without DAC, and with DAC on no layer, the logits, the selected and all layers.",
    "reliability": "Confidence minus accuracy, all corruptions and severities together, 15 bins of equal mass.",
    "ood-boxplots": "Confidence on the clean test set and on sets of other classes.",
}


def write_page(
    path: str | Path,
    protocol: Protocol,
    rows: Sequence[str],
    tables: Mapping[str, pd.DataFrame],
    *,
    figures: str = "reproduction",
    training: str | Path | None = None,
    others: pd.DataFrame | None = None,
    cost: pd.DataFrame | None = None,
) -> None:
    """Write the page.

    Parameters
    ----------
    path : path
        The Markdown file.
    protocol : Protocol
        Where the results come from.
    rows : sequence of str
        The classifiers that were run.
    tables : mapping of name to DataFrame
        The comparisons that `reproduce` made.
    figures : str
        Folder of the figures, relative to the page.
    training : path, optional
        Folder with CLASSIFIER.json, the metadata of the trainings.
    others : DataFrame, optional
        Table 1 of classifiers that the paper does not have.
    cost : DataFrame, optional
        The three steps of a fit and a sample's inference, as `reproduction.cost.whole_cost` times them.
    """
    parts = [INTRODUCTION, _trainings(rows, training), "## What it shows\n", _verdict(protocol, rows), READING]
    for name, table in tables.items():
        parts.append(_table_section(name, table, rows))
    if cost is not None:
        parts.append(COST + "\n" + plain_table(cost))
    if others is not None:
        parts.append(OTHERS + "\n" + ours_alone(others[others["column"] == "all"], classifiers_in(others), 2))
    parts.append("## Figures\n")
    for name, caption in FIGURES.items():
        if (Path(path).parent / figures / f"{name}.svg").exists():
            parts.append(f"![{caption}]({figures}/{name}.svg)\n\n*{caption}*\n")
    parts += [FINDINGS, WHY_DIFFERENT, _not_run(rows)]
    Path(path).write_text("\n".join(part.rstrip() + "\n" for part in parts if part), encoding="utf-8")


def _table_section(name: str, table: pd.DataFrame, rows: Sequence[str]) -> str:
    from reproduction.reproduction import EXPERIMENTS

    heading = f"### {EXPERIMENTS[name].title} (`densecal reproduce {name}`)\n\n"
    if "paper" not in table.columns:
        note = _no_layer_note(table) if name == "layer-choice" else ""
        return heading + plain_table(table) + note
    digits = 4 if name in ("brier", "nll") else 2
    columns = ["mean", "all"] if name in MEAN_TABLES else list(dict.fromkeys(table["column"]))
    sections = [heading]
    for column in columns:
        part = table[table["column"] == column]
        if part["paper"].notna().any():
            sections.append(f"\n**{_column_title(column)}**\n\n" + side_by_side(part, rows, digits))
        else:
            sections.append(f"\n**{_column_title(column)}** (ours alone)\n\n" + ours_alone(part, rows, digits))
    return "".join(sections)


def _column_title(column: str) -> str:
    titles = {"mean": "Mean over all 91 conditions", "all": "Mean over severities 0 to 5"}
    titles |= {"in-domain": "In-domain", "severity-5": "Severity 5", "ratio": "Gain in per cent of the ECE without DAC"}
    data, _, measure = column.partition(": ")
    if measure in METRICS:
        return f"{OOD_NAMES.get(data, data)}: {METRICS[measure].symbol}, {METRICS[measure].better} is better"
    return titles.get(column, column)


def _no_layer_note(table: pd.DataFrame | None) -> str:
    """Say how much of DAC's gain plain temperature scaling before the method already has."""
    if table is None:
        return ""
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
        "\nDAC without any layer is temperature scaling before the method. That alone has part of the gain of the "
        f"selected layers: {', '.join(lines)}; for the other methods less than a quarter, or none.\n"
    )


def _trainings(rows: Sequence[str], folder: str | Path | None) -> str:
    """Say how each classifier was trained, from the metadata its training wrote."""
    if folder is None:
        return ""
    lines = []
    for row in rows:
        path = Path(folder) / f"{row}.json"
        if path.exists():
            metadata = json.loads(path.read_text(encoding="utf-8"))
            recipe = metadata["recipe"]
            lines.append(
                [
                    CLASSIFIERS[row].label,
                    str(metadata["epochs"]),
                    f"{recipe['weight_decay']:g}",
                    number(metadata["seconds"], 0),
                    number(100 * metadata["val_accuracy"]),
                    number(100 * metadata["test_accuracy"]),
                ]
            )
    if not lines:
        return ""
    header = ["classifier", "epochs", "weight decay", "seconds", "validation accuracy", "test accuracy"]
    return "## The trainings\n\n" + markdown(header, lines) + TRAININGS


def _verdict(protocol: Protocol, rows: Sequence[str]) -> str:
    """Say for each classifier where DAC helps, with paired intervals."""
    header = ["classifier and method", "in-domain", "severity 5", "all", "excludes 0", "91 conditions", "paper, 91"]
    paper = published_numbers("ece")
    lines = []
    for row in rows:
        for base in MAIN:
            overs: tuple[Over, ...] = (0, 5, "all", "mean")
            changes = [dac_helps(protocol, row, base, over)[1] for over in overs]
            cells = [f"{100 * c.estimate:+.2f} [{100 * c.low:+.2f}, {100 * c.high:+.2f}]" for c in changes]
            cells.insert(3, "yes" if changes[2].excludes_zero else "no")
            after, before = (paper.get((row, method, "mean")) for method in (f"{DAC}+{base}", base))
            gap = None if after is None or before is None else after - before
            said = f"{CLASSIFIERS[row].label}, {label_of(base)}"
            lines.append([said, *cells, number(gap, sign=True)])
    return (
        "What DAC changes of each method's ECE (points; negative is better), with the paired 95 % interval:\n\n"
        + markdown(header, lines)
        + "\n"
        + "\n".join(_summary(protocol, row) for row in rows)
    )


def _summary(protocol: Protocol, row: str) -> str:
    changes = {base: dac_helps(protocol, row, base)[1] for base in MAIN}
    better = [base for base, change in changes.items() if change.estimate < 0]
    surely = [base for base in better if changes[base].excludes_zero]
    worse = [base for base, change in changes.items() if change.estimate >= 0]
    plain = protocol.result(row, UNCALIBRATED, measures=("ece", "accuracy"), out_of_domain=False)
    in_domain = plain.estimate("ece", 0)
    text = (
        f"- **{CLASSIFIERS[row].label}**: accuracy {100 * plain.estimate('accuracy', 0).estimate:.2f} % in-domain and "
        f"{100 * plain.estimate('accuracy', 5).estimate:.2f} % at severity 5; uncalibrated in-domain ECE "
        f"{100 * in_domain.estimate:.2f}. DAC lowers the mean ECE of {len(better)} of {len(changes)} methods, of "
        f"{len(surely)} with an interval that excludes zero."
    )
    if worse:
        text += f" It does not lower that of {', '.join(label_of(base) for base in worse)}: the paper's does."
    return text


def _not_run(rows: Sequence[str]) -> str:
    lines = [
        [classifier.label, classifier.dataset, classifier.weights]
        for name, classifier in CLASSIFIERS.items()
        if classifier.in_paper and name not in rows
    ]
    return NOT_RUN + "\n" + markdown(["classifier", "data", "weights"], lines)
