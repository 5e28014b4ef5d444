"""The settings of a monitor, the level of its tests, and the windows that it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from densecal.display import counted
from densecal.errors import SettingError
from densecal.estimation.accuracy_estimate import AccuracyEstimate
from densecal.metrics import Interval

LABEL_LEVEL = 0.95
RATE_WINDOWS = 100
"""The false-alarm rate is the probability of an alarm within this many windows without a shift."""
LOWEST_RATE = 1e-9
"""With a lower rate the level of a test rounds to 1, and no window would raise an alarm."""
JOINED_WINDOWS = (1, 2, 4, 8)
"""Numbers of the latest windows that are tested together: a large drop shows in one window, a small one only in
several. The tests share the false alarms equally."""
MOST_JOINED = max(JOINED_WINDOWS)


@dataclass(frozen=True)
class Settings:
    """The settings of a monitor."""

    window: int
    alarm_below: float
    false_alarm_rate: float
    history: int
    label_memory: int

    def __post_init__(self) -> None:
        for name in ("window", "history", "label_memory"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise SettingError(f"{name} must be a whole number, at least 1, got {value!r}.")
            object.__setattr__(self, name, int(value))
        for name, least in (("alarm_below", 0.0), ("false_alarm_rate", LOWEST_RATE)):
            value = getattr(self, name)
            if not least <= value < 1 or value == 0:
                raise SettingError(f"{name} must be a fraction between {least:g} and 1, got {value!r}.")
            object.__setattr__(self, name, float(value))

    @property
    def level(self) -> float:
        """The level of each test; all tests together have the false-alarm rate."""
        return float((1 - self.false_alarm_rate) ** (1 / (RATE_WINDOWS * len(JOINED_WINDOWS))))


@dataclass(frozen=True)
class Window:
    """Consecutive samples of a stream, and the accuracy of the classifier on them.

    Attributes
    ----------
    number : int
        The index of the window in the stream, from 0.
    start, end : int
        The samples ``start`` to ``end`` - 1 of the stream.
    start_at, end_at : str
        The time or name of the first and the last sample, ``at`` of `Monitor.update`.
    estimate : AccuracyEstimate
        The estimated accuracy with its interval, the drift of each layer and the share of far inputs.
    bound, n_tested : float, int
        There is an alarm if the estimate and this upper bound of the accuracy lie below ``alarm_below``. It is the
        lowest bound of the latest one, two, four or eight windows together, which have ``n_tested`` samples. There also
        is an alarm if the estimate of 30 samples or more is an extrapolation and its interval reaches below it.
    n_labels, n_right : int
        The number of samples whose label has arrived, and how many of them were classified correctly.
    """

    number: int
    start: int
    end: int
    start_at: str
    end_at: str
    estimate: AccuracyEstimate
    bound: float
    n_tested: int
    n_labels: int = 0
    n_right: int = 0

    @property
    def labelled_accuracy(self) -> Interval | None:
        """The accuracy on the samples whose label has arrived, with its 95 % interval; None without labels."""
        if not self.n_labels:
            return None
        from scipy.stats import binomtest

        ends = binomtest(self.n_right, self.n_labels).proportion_ci(LABEL_LEVEL, method="wilson")
        return Interval(self.n_right / self.n_labels, float(ends.low), float(ends.high), LABEL_LEVEL)

    def labels_lie_below(self, settings: Settings) -> bool:
        """Return whether the accuracy on the labels lies below ``alarm_below`` by more than chance explains."""
        if not self.n_labels:
            return False
        from scipy.stats import binomtest

        tested = binomtest(self.n_right, self.n_labels, settings.alarm_below, alternative="less")
        return float(tested.pvalue) < 1 - settings.level

    def to_dict(self) -> dict[str, object]:
        """Return the values for JSON."""
        return {**vars(self), "estimate": self.estimate.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Restore a window from the values that `to_dict` returns."""
        return cls(**{**values, "estimate": AccuracyEstimate(**values["estimate"])})

    def __str__(self) -> str:
        found = self.labelled_accuracy
        labels = (
            "" if found is None else f"; {found.estimate:.1%} of {counted(self.n_labels, 'label')}".replace("%", " %")
        )
        return f"window {self.number} (until {self.end_at}): {self.estimate}{labels}"
