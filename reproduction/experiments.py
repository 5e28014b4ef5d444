"""The paper's tables and figures by name, and `reproduce`, which makes one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from densecal.io.atomic_files import atomic_write
from densecal.metrics import OOD_METRICS
from reproduction import figures, tables
from reproduction.classifiers import CLASSIFIERS, find_classifier
from reproduction.methods import ADDITIONAL, MAIN
from reproduction.page.legends import legend
from reproduction.protocol import ALL_LAYERS, ALL_METRICS, N_RESAMPLES, Protocol
from reproduction.studies import cost, sensitivity

DIGITS = "%.6g"
MakeTable = Callable[[Protocol, Sequence[str]], pd.DataFrame]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or both, made by functions of (Protocol, rows).

    Its methods are evaluated with ``metrics``; its rows are the paper's classifiers, or the additional ones.
    """

    title: str
    table: MakeTable | None = None
    figure: Callable[[Protocol, Sequence[str]], Figure] | None = None
    metrics: tuple[str, ...] = ("ece",)
    in_paper: bool = True


@dataclass(frozen=True)
class Reproduction:
    """The result of `reproduce`: a tidy table, a figure, or both."""

    name: str
    title: str
    table: pd.DataFrame | None = None
    figure: Figure | None = field(default=None, repr=False)

    @property
    def legend(self) -> list[str]:
        """The lines that explain the table's columns and their unit."""
        return [] if self.table is None else legend(self.name, self.table)

    def save(self, folder: str | Path, figures: str | Path | None = None) -> list[Path]:
        """Write NAME.csv to a folder and NAME.svg to the same or another folder; return the written paths.

        Rows of other classifiers in an existing table stay: their measurements may be elsewhere.
        """
        written = []
        if self.table is not None:
            path = Path(folder) / f"{self.name}.csv{'.gz' if self.name == TIDY else ''}"
            table = _with_other_rows(self.table, path) if path.exists() else self.table
            # Without a time in the gzip header, the same table gives the same file.
            compression: Any = {"method": "gzip", "mtime": 0} if self.name == TIDY else None
            with atomic_write(path) as temporary:
                table.to_csv(temporary, index=False, float_format=DIGITS, compression=compression)
            written.append(path)
        if self.figure is not None:
            from matplotlib import rc_context

            path = Path(figures or folder) / f"{self.name}.svg"
            # Without a date and with fixed ids, the same figure gives the same file.
            with atomic_write(path) as temporary, rc_context({"svg.hashsalt": self.name}):
                self.figure.savefig(temporary, format="svg", dpi=150, metadata={"Date": None})
            written.append(path)
        return written


def _with_other_rows(made: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table with the rows of a file for the classifiers that it lacks, in the paper's order, as text."""
    text = StringIO(made.to_csv(index=False, float_format=DIGITS))
    fresh, known = (pd.read_csv(source, dtype=str, keep_default_na=False) for source in (text, path))
    every = pd.concat([known[~known["classifier"].isin(set(fresh["classifier"]))], fresh])
    places = every["classifier"].map({name: place for place, name in enumerate(CLASSIFIERS)})
    return every.iloc[places.argsort(kind="stable")][fresh.columns]


def _each_row(study: Callable[[Protocol, str], pd.DataFrame]) -> MakeTable:
    def of_all(protocol: Protocol, rows: Sequence[str]) -> pd.DataFrame:
        return pd.concat([study(protocol, row).assign(classifier=row) for row in rows], ignore_index=True)

    return of_all


def _all_weights(protocol: Protocol, row: str) -> pd.DataFrame:
    found = sensitivity.layer_weights(protocol, row)
    rows = [(choice, layer, share) for choice, layers in found.items() for layer, share in layers.items()]
    return pd.DataFrame(rows, columns=["choice", "layer", "share"])


TIDY = "conditions"
EXPERIMENTS: Mapping[str, Experiment] = {
    **{
        name: Experiment(table.title, partial(tables.mean_table, table=table), metrics=(table.metric,))
        for name, table in tables.MEAN_TABLES.items()
    },
    "table2": Experiment(
        "Change of the ECE with DAC: in-domain, severity 5, all",
        partial(tables.delta_table, methods=MAIN, published="delta"),
    ),
    "additional-deltas": Experiment(
        "Change of the ECE with DAC, more methods",
        partial(tables.delta_table, methods=ADDITIONAL, published="delta-additional"),
    ),
    "effect": Experiment("Change of the ECE with DAC, with paired intervals", tables.effect_table),
    "ood": Experiment("Out-of-domain detection", tables.ood_table, metrics=OOD_METRICS),
    "accuracy": Experiment("Accuracy, and its change with each method", tables.accuracy_table, metrics=("accuracy",)),
    TIDY: Experiment("Every method, condition and metric", tables.conditions_table, metrics=ALL_METRICS),
    "cost": Experiment("Seconds per fit and microseconds per sample", _each_row(cost.optimisation_cost)),
    "severity": Experiment("ECE by severity, and its mean", figure=figures.severity),
    "severity-additional": Experiment(
        "ECE by severity, more methods", figure=partial(figures.severity, methods=ADDITIONAL)
    ),
    "layer-importance": Experiment(
        "Which layers DAC uses", _each_row(sensitivity.layer_importance), figures.importance
    ),
    "all-layers": Experiment("DAC's weights: selected and all layers", _each_row(_all_weights), figures.all_layers),
    "k-sensitivity": Experiment("ECE against k", _each_row(sensitivity.k_sensitivity), figures.k_sensitivity),
    "data-efficiency": Experiment(
        "ECE against the validation set's size", _each_row(sensitivity.data_efficiency), figures.data_efficiency
    ),
    "trade-off": Experiment(
        "In-domain and severity 5 against the validation set's size",
        figure=partial(figures.data_efficiency, columns=("in-domain", "severity-5")),
    ),
    "layer-choice": Experiment(
        "DAC with no layer, one, some and all layers", _each_row(sensitivity.layer_choice), figures.layer_choice
    ),
    "reliability": Experiment("Reliability diagrams of all corruptions together", figure=figures.reliability),
    "ood-boxplots": Experiment("Confidence on in-domain and out-of-domain data", figure=figures.ood_boxplots),
    "others": Experiment(
        "Other networks", partial(tables.mean_table, table=tables.MEAN_TABLES["table1"]), in_paper=False
    ),
}
"""All tables and figures by name."""


def find_experiment(name: str) -> Experiment:
    """Return the experiment with this name; the error for an unknown name lists the known names."""
    if name not in EXPERIMENTS:
        raise ValueError(f"name must be one of {', '.join(EXPERIMENTS)}; got {name!r}.")
    return EXPERIMENTS[name]


def protocol_for(names: Iterable[str], results: str | Path = "results", *, n_resamples: int = N_RESAMPLES) -> Protocol:
    """Return a protocol that evaluates each method once, with all metrics that these experiments need."""
    metrics = tuple(dict.fromkeys(metric for name in names for metric in find_experiment(name).metrics))
    return Protocol(results, metrics, n_resamples)


def reproduce(name: str, rows: Sequence[str] | None = None, *, protocol: Protocol | None = None) -> Reproduction:
    """Make one of `EXPERIMENTS`, by default for all classifiers with measurements in ``results/``."""
    experiment = find_experiment(name)
    protocol = protocol_for([name]) if protocol is None else protocol
    chosen = tuple(rows) if rows else rows_of(name, protocol)
    if not chosen:
        raise FileNotFoundError(
            f"{protocol.folder} has no measurements for {name}. Pass a folder with measurements/ (--results), such as "
            "results/ in the repository, or measure a classifier with --data and --rows."
        )
    for row in chosen:
        protocol.measurements(row)
    table = None if experiment.table is None else experiment.table(protocol, chosen)
    figure = None if experiment.figure is None else experiment.figure(protocol, chosen)
    return Reproduction(name, experiment.title, table, figure)


def rows_of(name: str, protocol: Protocol) -> tuple[str, ...]:
    rows = protocol.rows(in_paper=EXPERIMENTS[name].in_paper)
    return tuple(row for row in rows if name != "all-layers" or f"{row}{ALL_LAYERS}" in protocol.classifiers)


def prepare(
    row: str, data: str | Path, *, weights: str | Path | None, results: str | Path, device: str | None = None
) -> None:
    """Measure a classifier; train it first if no weights are given or published."""
    from reproduction.measuring.run import measure
    from reproduction.training.run import train

    if weights is None and find_classifier(row).dataset != "imagenet":
        trained = Path(results) / "weights" / f"{row}.safetensors"
        weights = trained if trained.exists() else train(row, data, out=results, device=device)
    measure(row, data, weights=weights, out=results, device=device)
