"""Plots of a metric against the severity of the shift, k or the size of the validation set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from densecal.plots.style import INK, add_grid, add_legend, method_style, open_axes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LINES: dict[str, Any] = {"solid": "-", "dashed": (0, (4, 2)), "dotted": ":"}


def severity_curves(table: pd.DataFrame, *, ax: Axes | None = None, percent: bool = True, name: str = "ECE") -> Axes:
    """Draw the metric of each method from in-domain data to the strongest shift.

    Lines are solid with DAC, and dashed in the same colour for the same method without it. The band is the interval.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``method``, ``severity``, ``value`` and, for bands, ``low`` and ``high``, as returned by
        ``EvaluationTable.by_severity``. Rows of the same method and severity are averaged.
    percent : bool, default True
        Show the value times 100.
    name : str
        Name of the metric, for the axis.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"method": ["ts"] * 2, "severity": [0, 5], "value": [0.02, 0.2]})
    >>> severity_curves(table).get_ylabel()
    'ECE (×100)'
    """
    ax = open_axes(ax)
    _draw_lines(ax, table, "severity", percent=percent)
    levels = sorted(table["severity"].unique())
    ax.set_xticks(levels, ["clean" if level == 0 else f"{level:g}" for level in levels])
    return _finish(ax, "severity of the shift", name, percent=percent)


def severity_bars(table: pd.DataFrame, *, ax: Axes | None = None, percent: bool = True, name: str = "ECE") -> Axes:
    """Draw one bar per method: its mean over all severities.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``method``, ``value`` and, for whiskers, ``low`` and ``high``, as returned by
        ``EvaluationTable.overall``.
    percent, name
        As in `severity_curves`.

    Examples
    --------
    >>> import pandas as pd
    >>> axes = severity_bars(pd.DataFrame({"method": ["ts", "dac+ts"], "value": [0.2, 0.1]}))
    >>> len(axes.patches)
    2
    """
    ax = open_axes(ax)
    rows = _aggregate(table.assign(position=0), "position")
    styles = [method_style(method) for method in rows["method"]]
    numbers = rows[["value", "low", "high"]].to_numpy() * (100 if percent else 1)
    for place, (style, (value, low, high)) in enumerate(zip(styles, numbers, strict=True)):
        fill = style.colour if style.with_dac else "white"
        ax.bar(place, value, 0.72, facecolor=fill, edgecolor=style.colour, linewidth=1.4)
        if high > low:
            ax.errorbar(place, value, [[value - low], [high - value]], color=INK, linewidth=1, capsize=2)
    ax.set_xticks(range(len(rows)), [style.label.replace(" + ", "\n+ ") for style in styles], fontsize="small")
    ax.tick_params(axis="x", length=0)
    return _finish(ax, "", name, percent=percent)


def k_sensitivity(table: pd.DataFrame, *, ax: Axes | None = None, percent: bool = True, name: str = "ECE") -> Axes:
    """Draw a metric against k, the neighbour whose distance DAC uses; methods without k are horizontal lines.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``method``, ``k`` and ``value`` (and ``low``, ``high``); a method without DAC has one row, k missing.
    percent, name
        As in `severity_curves`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"method": ["dac+ts"] * 2, "k": [1, 50], "value": [0.1, 0.09]})
    >>> k_sensitivity(table).get_xscale()
    'log'
    """
    ax = open_axes(ax)
    ax.set_xscale("log")
    with_k, without_k = table.dropna(subset="k"), table[table["k"].isna()]
    if len(with_k) or table.empty:
        _draw_lines(ax, with_k, "k", percent=percent)
    for method, value in zip(without_k["method"], without_k["value"], strict=True):
        style = method_style(method)
        level = value * (100 if percent else 1)
        ax.axhline(level, color=style.colour, linestyle=LINES[style.line], linewidth=1.4, label=style.label)
    ticks = sorted(table["k"].dropna().unique())
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    return _finish(ax, "k, the neighbour whose distance counts", name, percent=percent)


def data_efficiency(table: pd.DataFrame, *, ax: Axes | None = None, percent: bool = True, name: str = "ECE") -> Axes:
    """Draw a metric against the share of the validation set used for fitting; the band spans the draws.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``method``, ``fraction`` (0 to 1) and ``value``, one row per draw.
    percent, name
        As in `severity_curves`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"method": ["ts"] * 3, "fraction": [0.1, 0.1, 1.0], "value": [0.09, 0.11, 0.1]})
    >>> data_efficiency(table).get_xlabel()
    'share of the validation set (%)'
    """
    ax = open_axes(ax)
    _draw_lines(ax, table.assign(share=table["fraction"] * 100), "share", percent=percent)
    return _finish(ax, "share of the validation set (%)", name, percent=percent)


def _draw_lines(ax: Axes, table: pd.DataFrame, x: str, *, percent: bool) -> None:
    """Draw one line and one band per method."""
    scale = 100 if percent else 1
    for method, unsorted in _aggregate(table, x).groupby("method", sort=False):
        rows, style = unsorted.sort_values(x), method_style(str(method))
        ax.plot(
            rows[x],
            rows["value"] * scale,
            color=style.colour,
            linestyle=LINES[style.line],
            linewidth=2.0 if style.with_dac else 1.5,
            marker=style.marker,
            markersize=5,
            markerfacecolor=style.colour if style.with_dac else "white",
            markeredgecolor=style.colour,
            label=style.label,
        )
        if (rows["high"] > rows["low"]).any():
            low, high = rows["low"] * scale, rows["high"] * scale
            ax.fill_between(rows[x], low, high, color=style.colour, alpha=0.13, linewidth=0)


def _aggregate(table: pd.DataFrame, x: str) -> pd.DataFrame:
    """Return one row per (method, x): the mean, and the given interval or else the range of the rows."""
    if table.empty:
        raise ValueError("table must have at least one row, got none.")
    missing = {"method", x, "value"} - set(table.columns)
    if missing:
        raise ValueError(
            f"table must have the columns {sorted(missing)}, got {list(table.columns)}. A row is a method at one point."
        )
    with_interval = {"low", "high"} <= set(table.columns)
    low, high = (("low", "mean"), ("high", "mean")) if with_interval else (("value", "min"), ("value", "max"))
    return table.groupby(["method", x], sort=False).agg(value=("value", "mean"), low=low, high=high).reset_index()


def _finish(ax: Axes, xlabel: str, name: str, *, percent: bool) -> Axes:
    add_grid(ax)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(f"{name} (×100)" if percent else name)
    ax.set_ylim(bottom=0)
    add_legend(ax, ncols=2)
    return ax
