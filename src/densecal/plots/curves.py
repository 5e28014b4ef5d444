"""Lines of a measure along something that changes: the shift's severity, k, or the size of the validation set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from densecal.calibrators.names import ORACLE, UNCALIBRATED
from densecal.plots.canvas import INK, add_grid, add_legend, open_axes
from densecal.plots.style import method_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def severity_curves(table: pd.DataFrame, *, ax: Axes | None = None, percent: bool = True, name: str = "ECE") -> Axes:
    """Draw each method's measure from in-domain data to the strongest shift.

    A method with DAC is solid, the same method without it dashed in the same colour; the band is the interval.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``method``, ``severity``, ``value`` and, for bands, ``low`` and ``high``; as
        ``EvaluationTable.by_severity`` gives it. Rows of the same method and severity are averaged.
    ax : matplotlib axes, optional
        Where to draw; without it a new figure is made.
    percent : bool, default True
        Show a hundred times the value.
    name : str
        The measure's name, for the axis.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({"method": ["ts"] * 2, "severity": [0, 5], "value": [0.02, 0.2]})
    >>> severity_curves(table).get_ylabel()
    'ECE (×100)'
    """
    ax = open_axes(ax)
    draw_lines(ax, table, "severity", percent=percent)
    levels = sorted(table["severity"].unique())
    ax.set_xticks(levels, ["clean" if level == 0 else f"{level:g}" for level in levels])
    ax.set_xlabel("severity of the shift")
    _finish(ax, name, percent)
    return ax


def severity_bars(table: pd.DataFrame, *, ax: Axes | None = None, percent: bool = True, name: str = "ECE") -> Axes:
    """Draw one bar a method: its mean over all severities, without and with DAC side by side.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``method``, ``value`` and, for whiskers, ``low`` and ``high``; as ``EvaluationTable.overall`` gives it.
    ax, percent, name
        As in `severity_curves`.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import pandas as pd
    >>> axes = severity_bars(pd.DataFrame({"method": ["ts", "dac+ts"], "value": [0.2, 0.1]}))
    >>> len(axes.patches)
    2
    """
    ax = open_axes(ax)
    rows = _aggregate(table.assign(position=0), "position")
    scale = 100 if percent else 1
    for place, row in enumerate(_records(rows)):
        style = method_style(row["method"])
        fill = style.colour if style.with_dac else "white"
        value, low, high = (scale * float(row[name]) for name in ("value", "low", "high"))
        ax.bar(place, value, 0.72, facecolor=fill, edgecolor=style.colour, linewidth=1.4)
        if high > low:
            ax.errorbar(place, value, [[value - low], [high - value]], color=INK, linewidth=1, capsize=2)
    labels = [method_style(method).label.replace(" + ", "\n+ ") for method in rows["method"]]
    ax.set_xticks(range(len(rows)), labels, fontsize="small")
    ax.tick_params(axis="x", length=0)
    _finish(ax, name, percent, legend=False)
    return ax


def k_sensitivity(table: pd.DataFrame, *, ax: Axes | None = None, percent: bool = True, name: str = "ECE") -> Axes:
    """Draw a measure against k, the neighbour whose distance DAC takes; methods without k are level lines.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``method``, ``k`` and ``value`` (and ``low``, ``high``); a method without DAC has one row, k missing.
    ax, percent, name
        As in `severity_curves`.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({"method": ["dac+ts"] * 2, "k": [1, 50], "value": [0.1, 0.09]})
    >>> k_sensitivity(table).get_xscale()
    'log'
    """
    ax = open_axes(ax)
    ax.set_xscale("log")
    draw_lines(ax, table.dropna(subset="k"), "k", percent=percent)
    for row in _records(table[table["k"].isna()]):
        style = method_style(row["method"])
        level = row["value"] * (100 if percent else 1)
        ax.axhline(level, color=style.colour, linestyle=(0, (4, 2)), linewidth=1.4, label=style.label)
    ticks = sorted(table["k"].dropna().unique())
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel("k, the neighbour whose distance counts")
    _finish(ax, name, percent)
    return ax


def data_efficiency(table: pd.DataFrame, *, ax: Axes | None = None, percent: bool = True, name: str = "ECE") -> Axes:
    """Draw a measure against the share of the validation set that the fit saw; the band spans the draws.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``method``, ``fraction`` (0 to 1) and ``value``, one row a draw.
    ax, percent, name
        As in `severity_curves`.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({"method": ["ts"] * 3, "fraction": [0.1, 0.1, 1.0], "value": [0.09, 0.11, 0.1]})
    >>> data_efficiency(table).get_xlabel()
    'share of the validation set (%)'
    """
    ax = open_axes(ax)
    draw_lines(ax, table.assign(share=table["fraction"] * 100), "share", percent=percent)
    ax.set_xlabel("share of the validation set (%)")
    _finish(ax, name, percent)
    return ax


def draw_lines(ax: Axes, table: pd.DataFrame, x: str, *, percent: bool) -> None:
    """Draw one line and one band a method into axes."""
    scale = 100 if percent else 1
    for method, rows in _aggregate(table, x).groupby("method", sort=False):
        style = method_style(str(method))
        plain = method in (UNCALIBRATED, ORACLE)
        dashes: Any = "-" if style.with_dac or plain else (0, (4, 2))
        ax.plot(
            rows[x],
            rows["value"] * scale,
            color=style.colour,
            linestyle=":" if method == ORACLE else dashes,
            linewidth=2.0 if style.with_dac else 1.5,
            marker=style.marker,
            markersize=5,
            markerfacecolor=style.colour if style.with_dac else "white",
            markeredgecolor=style.colour,
            label=style.label,
        )
        if (rows["high"] > rows["low"]).any():
            ax.fill_between(
                rows[x], rows["low"] * scale, rows["high"] * scale, color=style.colour, alpha=0.13, linewidth=0
            )


def _aggregate(table: pd.DataFrame, x: str) -> pd.DataFrame:
    """Return one row a (method, x): the mean, and the given interval or else the spread of the rows."""
    if table.empty:
        raise ValueError("table has no rows to draw.")
    missing = {"method", x, "value"} - set(table.columns)
    if missing:
        raise ValueError(
            f"table needs the columns {sorted(missing)}, got {list(table.columns)}. One row is one method at one point."
        )
    with_interval = {"low", "high"} <= set(table.columns)
    low, high = (("low", "mean"), ("high", "mean")) if with_interval else (("value", "min"), ("value", "max"))
    grouped = table.groupby(["method", x], sort=False).agg(value=("value", "mean"), low=low, high=high)
    # Methods keep the order in which they came, points run from left to right.
    order = {method: place for place, method in enumerate(dict.fromkeys(table["method"]))}
    rows = grouped.reset_index()
    return rows.sort_values(["method", x], key=lambda c: c.map(order) if c.name == "method" else c)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _finish(ax: Axes, name: str, percent: bool, *, legend: bool = True) -> None:
    add_grid(ax)
    ax.set_ylabel(f"{name} (×100)" if percent else name)
    ax.set_ylim(bottom=0)
    if legend:
        add_legend(ax, ncols=2)
