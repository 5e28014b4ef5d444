"""Metrics of a monitor for Prometheus, with prometheus_client (``pip install densecal[monitor]``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from densecal.errors import require

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from densecal.estimation.accuracy_estimate import AccuracyEstimate
    from densecal.monitor.monitor import Monitor

PREFIX = "densecal"


class MonitorCollector:
    """A collector of prometheus_client that reports a monitor at each scrape.

    The estimates are those of the latest ``window`` samples; they are absent until there is a sample. The label
    ``model`` of each metric is ``name``, which distinguishes several monitors.

    Examples
    --------
    >>> import prometheus_client
    >>> from densecal.monitor.prometheus import MonitorCollector
    >>> def serve(monitor, port=8000):
    ...     prometheus_client.REGISTRY.register(MonitorCollector(monitor))
    ...     prometheus_client.start_http_server(port)
    """

    def __init__(self, monitor: Monitor, *, name: str = "classifier") -> None:
        self.monitor, self.name = monitor, name

    def describe(self) -> list[Metric]:
        """Return no metrics: their names depend on the state of the monitor."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = self.monitor.estimate() if self.monitor.n_samples else None
        samples = CounterMetricFamily(f"{PREFIX}_samples", "Number of samples so far.", labels=["model"])
        samples.add_metric([self.name], self.monitor.n_samples)
        yield samples
        for name, meaning, value in self._values(found):
            gauge = GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=["model"])
            gauge.add_metric([self.name], value)
            yield gauge
        if found is not None:
            meaning = "Growth of the distances, in standard deviations of clean data."
            drift = GaugeMetricFamily(f"{PREFIX}_drift", meaning, labels=["model", "layer"])
            for layer, value in found.drift.items():
                drift.add_metric([self.name, layer], value)
            yield drift

    def _values(self, found: AccuracyEstimate | None) -> Iterator[tuple[str, str, float]]:
        """Yield the name, the meaning and the value of each gauge."""
        monitor = self.monitor
        yield "alarm_below", "Accuracy below which an alarm is raised.", monitor.settings.alarm_below
        yield "alarm", "1 while there is an alarm, else 0.", float(monitor.alarm is not None)
        if found is not None:
            yield "accuracy", "Estimated accuracy on the latest samples.", found.accuracy
            yield "accuracy_low", "Lower end of the 95 % interval of the accuracy.", found.low
            yield "accuracy_high", "Upper end of the 95 % interval of the accuracy.", found.high
            yield "mean_confidence", "Mean calibrated confidence.", found.mean_confidence
            yield "plain_confidence", "Mean confidence of temperature scaling.", found.plain_confidence
            meaning = "Above 1, inputs are farther than all shifted data of the fit, or nearer."
            yield "extrapolation", meaning, found.extrapolation
            yield "far_share", "Share of inputs far from the training data; 0.01 without a shift.", found.far_share
        labelled = [window for window in monitor.windows if window.n_labels]
        if labelled:
            last = labelled[-1]
            share, age = last.n_right / last.n_labels, monitor.n_samples - last.end
            yield "labelled_accuracy", "Accuracy on the labels of the latest window that has some.", share
            yield "labelled_samples", "Number of labels in that window.", last.n_labels
            yield "labelled_age_samples", "Number of samples after that window.", age


def require_client() -> None:
    """Raise if prometheus_client is not installed."""
    require("prometheus_client", "monitor", "The Prometheus format")


def prometheus_text(monitor: Monitor, *, name: str = "classifier") -> str:
    """Return the metrics of a monitor in the text format of Prometheus."""
    require_client()
    from prometheus_client import generate_latest

    return generate_latest(MonitorCollector(monitor, name=name)).decode()
