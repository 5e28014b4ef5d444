"""The settings of a monitor, and the level of its tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from densecal.errors import SettingError

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
        for name in ("alarm_below", "false_alarm_rate"):
            if not 0 < getattr(self, name) < 1:
                raise SettingError(f"{name} must be a fraction between 0 and 1, got {getattr(self, name)!r}.")
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.false_alarm_rate < LOWEST_RATE:
            raise SettingError(f"false_alarm_rate must be at least {LOWEST_RATE:g}, got {self.false_alarm_rate!r}.")

    @property
    def level(self) -> float:
        """The level of each test; all tests together have the false-alarm rate."""
        return float((1 - self.false_alarm_rate) ** (1 / (RATE_WINDOWS * len(JOINED_WINDOWS))))
