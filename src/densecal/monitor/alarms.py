"""Alarm, and the reason for one in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from densecal.estimation.estimate import EXTRAPOLATED
from densecal.monitor.windows import Window


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


def describe_cause(window: Window, alarm_below: float) -> str:
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
