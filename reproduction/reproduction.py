"""`reproduce`: any table or figure of the paper by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densecal.io.storage import whole_file
from reproduction import figures, studies, tables
from reproduction.cost import optimisation_cost
from reproduction.methods import ADDITIONAL, MAIN
from reproduction.protocol import ECE_ONLY, Protocol

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` made: a table, a figure, or both.

    Attributes
    ----------
    name, title : str
    table : DataFrame or None
        Tidy; comparisons with the paper have the columns ``paper`` and ``ours``.
    figure : matplotlib Figure or None
    cache : path or None
        Where the results of single methods are kept.
    judged, reread : int
        How many of them were found anew, and how many were read back from there.
    """

    name: str
    title: str
    table: pd.DataFrame | None = None
    figure: Figure | None = field(default=None, repr=False)
    cache: Path | None = None
    judged: int = 0
    reread: int = 0

    @property
    def legend(self) -> list[str]:
        """What the table's columns mean, and their unit, in a few lines."""
        from reproduction.legends import legend

        return [] if self.table is None else legend(self.name, self.table)

    def save(self, folder: str | Path, *, image: str = "svg") -> list[Path]:
        """Write NAME.csv and NAME.svg into a folder; return what was written."""
        written = []
        if self.table is not None:
            path = Path(folder) / f"{self.name}.csv"
            with whole_file(path) as temporary:
                self.table.to_csv(temporary, index=False, float_format="%.6g")
            written.append(path)
        if self.figure is not None:
            from matplotlib import rc_context

            path = Path(folder) / f"{self.name}.{image}"
            # Without a date and with fixed ids the same figure is the same file.
            with whole_file(path) as temporary, rc_context({"svg.hashsalt": self.name}):
                self.figure.savefig(temporary, format=image, dpi=150, metadata={"Date": None} if image == "svg" else {})
            written.append(path)
        return written


@dataclass(frozen=True)
class Experiment:
    """One of the paper's tables or figures."""

    name: str
    title: str
    table: Callable[[Protocol, Sequence[str]], pd.DataFrame] | None = None
    figure: Callable[[Protocol, Sequence[str]], Figure] | None = None


def _each_row(study: Callable[[Protocol, str], pd.DataFrame]) -> Callable[[Protocol, Sequence[str]], pd.DataFrame]:
    def of_all(protocol: Protocol, rows: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        parts = [study(protocol, row).assign(classifier=row) for row in rows]
        return pd.concat(parts, ignore_index=True)

    return of_all


def _importance(protocol: Protocol, row: str) -> pd.DataFrame:
    import pandas as pd

    metadata = protocol.result(row, "dac", **ECE_ONLY).metadata
    return pd.DataFrame({"layer": metadata["layers"], "weight": metadata["weights"], "share": metadata["importance"]})


def _all_weights(protocol: Protocol, row: str) -> pd.DataFrame:
    import pandas as pd

    found = studies.layer_weights(protocol, row)
    rows = [(choice, layer, share) for choice, layers in found.items() for layer, share in layers.items()]
    return pd.DataFrame(rows, columns=["choice", "layer", "share"])


def _cost(protocol: Protocol, row: str) -> pd.DataFrame:
    return optimisation_cost(protocol.measurements(row))


def _mean(table: tables.MeanTable) -> Callable[[Protocol, Sequence[str]], Any]:
    return lambda protocol, rows: tables.mean_table(protocol, rows, table)


def _deltas(methods: Sequence[str], published: str) -> Callable[[Protocol, Sequence[str]], Any]:
    return lambda protocol, rows: tables.delta_table(protocol, rows, methods, published)


_ALL = (
    *(Experiment(name, table.title, table=_mean(table)) for name, table in tables.MEAN_TABLES.items()),
    Experiment("table2", "What DAC changes: in-domain, severity 5, all", table=_deltas(MAIN, "delta")),
    Experiment("additional-deltas", "What DAC changes, more methods", table=_deltas(ADDITIONAL, "delta-additional")),
    Experiment("ood", "Out-of-domain detection", table=tables.ood_table),
    Experiment("accuracy", "Accuracy, and what each method changes of it", table=tables.accuracy_table),
    Experiment("cost", "Seconds to fit and microseconds a sample", table=_each_row(_cost)),
    Experiment("severity", "ECE by severity, and its mean", figure=figures.severity),
    Experiment(
        "severity-additional",
        "ECE by severity, more methods",
        figure=lambda protocol, rows: figures.severity(protocol, rows, ADDITIONAL),
    ),
    Experiment("layer-importance", "Which layers DAC uses", table=_each_row(_importance), figure=figures.importance),
    Experiment(
        "all-layers", "DAC's weights: selected and all layers", table=_each_row(_all_weights), figure=figures.all_layers
    ),
    Experiment("k-sensitivity", "ECE against k", table=_each_row(studies.k_sensitivity), figure=figures.k_sensitivity),
    Experiment(
        "data-efficiency",
        "ECE against the validation set's size",
        table=_each_row(studies.data_efficiency),
        figure=figures.data_efficiency,
    ),
    Experiment("trade-off", "In-domain and severity 5 against the validation set's size", figure=figures.trade_off),
    Experiment(
        "layer-choice",
        "DAC on no, one, some, all layers",
        table=_each_row(studies.layer_choice),
        figure=figures.layer_choice,
    ),
    Experiment("reliability", "Reliability diagrams of all corruptions together", figure=figures.reliability),
    Experiment("ood-boxplots", "Confidence in and out of the domain", figure=figures.ood_boxplots),
)

EXPERIMENTS: Mapping[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""Every table and figure by its name."""


def reproduce(
    name: str,
    rows: Sequence[str] | None = None,
    *,
    results: str | Path = "results",
    cache: str | Path | None = None,
    data: str | Path | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    resamples: int = 200,
    seed: int = 0,
) -> Reproduction:
    """Make one of the paper's tables or figures.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    rows : sequence of str, optional
        Classifiers, such as ``["c10-resnet18"]``; all of the paper's that have been measured without it.
    results : path
        Folder with ``measurements/CLASSIFIER``; see `measure` for making them.
    cache : path, optional
        Where results of single methods are kept, ``results/cache`` without it.
    data : path, optional
        Your copy of the data set. A row that has not been measured is then measured first and, where it is a CIFAR
        classifier without weights, trained before that.
    weights : path, optional
        The network's state, for the one row to measure; see `reproduction.measure`.
    device : str, optional
        Where to train and measure.
    resamples, seed
        The bootstrap.

    Examples
    --------
    >>> reproduce("table1", results="nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: nowhere holds no measurements of the paper's classifiers. ...
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"name must be one of {', '.join(EXPERIMENTS)}; got {name!r}.")
    experiment, protocol = EXPERIMENTS[name], Protocol(results, cache, resamples, seed)
    chosen = tuple(rows) if rows else measured_rows(protocol)
    if not chosen:
        raise FileNotFoundError(
            f"{results} holds no measurements of the paper's classifiers. --results (results=) says where they lie: "
            "densecal's repository has some in results/. Or measure one, with --data and --rows (data=, rows=)."
        )
    for row in chosen:
        if data is not None and row not in protocol.classifiers:
            prepare(row, data, weights=weights, results=results, device=device)
        protocol.measurements(row)
    return Reproduction(
        name,
        experiment.title,
        None if experiment.table is None else experiment.table(protocol, chosen),
        None if experiment.figure is None else experiment.figure(protocol, chosen),
        cache=protocol.cache_folder,
        judged=len(protocol.judged),
        reread=len(protocol.reread),
    )


def prepare(
    row: str, data: str | Path, *, weights: str | Path | None, results: str | Path, device: str | None = None
) -> None:
    """Measure a classifier, after training it where nobody publishes its weights and none are given."""
    from reproduction.classifiers import find_classifier
    from reproduction.measuring import measure
    from reproduction.training_run import train

    if weights is None and find_classifier(row).dataset != "imagenet":
        trained = Path(results) / "weights" / f"{row}.safetensors"
        weights = trained if trained.exists() else train(row, data, out=results, device=device)
    measure(row, data, weights=weights, out=results, device=device)


def measured_rows(protocol: Protocol) -> tuple[str, ...]:
    """Return the paper's classifiers that have been measured, in the paper's order.

    Examples
    --------
    >>> measured_rows(Protocol("nowhere"))
    ()
    """
    from reproduction.classifiers import CLASSIFIERS

    there = protocol.classifiers
    return tuple(name for name, classifier in CLASSIFIERS.items() if name in there and classifier.in_paper)
