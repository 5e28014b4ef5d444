"""Alarms: the rule that raises and ends them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from densecal.arrays import Array
from densecal.estimation.accuracy_estimate import EXTRAPOLATED
from densecal.estimation.accuracy_model import AccuracyModel
from densecal.estimation.moments import Moments
from densecal.monitor.windows import JOINED_WINDOWS, MOST_JOINED, Settings, Window

FEWEST_EXTRAPOLATED = 30
"""Fewer samples can look like an extrapolation by chance. Windows in a row count together."""


@dataclass(frozen=True)
class Alarm:
    """An alarm: the estimated accuracy lies below ``alarm_below``, or is an extrapolation and may lie below it.

    Attributes
    ----------
    since, since_at : int, str
        The first sample, and its time, of the first of the consecutive windows with an estimate below ``alarm_below``,
        or an extrapolation that may be. It can be earlier than ``raised``, because an estimate can lie below the limit
        by too little for an alarm.
    raised, raised_at : int, str
        The number of samples, and the time, at which the alarm was raised.
    why : str
        The estimate, the layer that drifts most and the share of far inputs.
    until, until_at : int, str or None
        The first sample, and its time, of the window that ended the alarm; None while there is an alarm.
    """

    since: int
    since_at: str
    raised: int
    raised_at: str
    why: str
    until: int | None = None
    until_at: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        end = "" if self.until is None else f", until {self.until_at} (sample {self.until:,})"
        return f"since {self.since_at} (sample {self.since:,}), raised at {self.raised_at}{end}: {self.why}"


class Alarms:
    """The alarms of a stream, oldest first, and what the rule remembers of its latest windows.

    An alarm is raised if the estimate lies below the limit by more than chance explains, or is an extrapolation whose
    interval reaches below it. The first window without either ends it.
    """

    def __init__(self, model: AccuracyModel, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.raised: deque[Alarm] = deque(maxlen=settings.history)
        self._recent: deque[Moments] = deque(maxlen=MOST_JOINED)
        self._below_since: tuple[int, str] | None = None

    def bound(self, predictors: Array) -> tuple[float, int]:
        """Add a window, and return the lowest upper bound of the latest ones, one or several together, and its size."""
        self._recent.append(Moments.of(predictors))
        recent = list(self._recent)
        joined = [Moments.join(recent[-n:]) for n in JOINED_WINDOWS if n <= len(recent)]
        return min((self.model.upper_bound(part, self.settings.level), part.n_samples) for part in joined)

    def judge(self, windows: Sequence[Window]) -> None:
        """Raise or end an alarm after the last of the windows."""
        window, limit, n_unknown = windows[-1], self.settings.alarm_below, self._n_unknown(windows)
        is_raised = bool(self.raised) and self.raised[-1].until is None
        is_unknown, is_below = n_unknown >= FEWEST_EXTRAPOLATED, window.estimate.accuracy < limit
        if is_below or is_unknown:
            self._below_since = self._below_since or (window.start, window.start_at)
            if (window.bound < limit or is_unknown) and not is_raised:
                why = _describe_cause(window, limit)
                self.raised.append(Alarm(*self._below_since, window.end, window.end_at, why))
        elif not n_unknown:
            self._below_since = None
            if is_raised:
                # The windows of an alarm that has ended do not count for the next one.
                self._recent = deque([self._recent[-1]], maxlen=MOST_JOINED)
                self.raised[-1] = replace(self.raised[-1], until=window.start, until_at=window.start_at)

    def _n_unknown(self, windows: Sequence[Window]) -> int:
        """Return the number of samples in the latest windows that are all extrapolations reaching below the limit."""
        found = 0
        for one in (window.estimate for window in reversed(windows)):
            if not one.is_extrapolated or one.low >= self.settings.alarm_below or found >= FEWEST_EXTRAPOLATED:
                break
            found += one.n_samples
        return found

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "alarms": [alarm.to_dict() for alarm in self.raised],
            "recent": [[one.n_samples, one.means.tolist(), one.products.tolist()] for one in self._recent],
            "below_since": self._below_since,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Set the state to one that `state` returned."""
        self.raised.extend(Alarm(**one) for one in values["alarms"])
        self._recent.extend(Moments(n_samples, *map(np.array, arrays)) for n_samples, *arrays in values["recent"])
        self._below_since = None if values["below_since"] is None else tuple(values["below_since"])


def _describe_cause(window: Window, alarm_below: float) -> str:
    """Return the reason for the alarm of a window, as one sentence without a full stop."""
    estimate = window.estimate
    place = "below" if estimate.accuracy < alarm_below else "and may lie below"
    parts = [
        f"the estimated accuracy was {estimate.accuracy:.1%} ({100 * estimate.low:.1f} to {estimate.high:.1%}), "
        f"{place} {alarm_below:.1%}"
    ]
    if estimate.is_extrapolated:
        parts.append(f"the estimate is {EXTRAPOLATED}")
    if window.n_tested > estimate.n_samples and window.bound < alarm_below:
        parts.append(f"together, the latest {window.n_tested:,} samples lie below it by more than chance")
    if estimate.drift:
        layer = max(estimate.drift, key=lambda name: estimate.drift[name])
        parts.append(f"the distances grew most in {layer}, by {estimate.drift[layer]:.2f} standard deviations")
    parts.append(f"{estimate.far_share:.1%} of the inputs were far from the training data (1.0% without a shift)")
    return "; ".join(parts).replace("%", " %")
