"""Stream: the windows, alarms and late labels of a stream of samples, in constant memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress, pairwise
from typing import Any

import numpy as np

from densecal.arrays import Array
from densecal.estimation.accuracy_model import AccuracyModel
from densecal.estimation.signals import SampleSignals
from densecal.monitor.alarms import Alarms
from densecal.monitor.windows import Settings, Window


@dataclass
class _OpenWindow:
    """The window that is being filled."""

    number: int = 0
    start: int = 0
    start_at: str = ""
    end_at: str = ""
    n_labels: int = 0
    n_right: int = 0


class Stream:
    """Cuts a stream into windows and estimates the accuracy of each. It is not thread-safe."""

    def __init__(self, model: AccuracyModel, layers: Sequence[str], settings: Settings) -> None:
        self.model, self.layers, self.settings = model, tuple(layers), settings
        self.n_samples = 0
        self.windows: deque[Window] = deque(maxlen=settings.history)
        self.alarms = Alarms(model, settings)
        self._ring = np.zeros((settings.window, 0))
        self._open = _OpenWindow()
        self._waiting: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._labelled: OrderedDict[str, None] = OrderedDict()
        self._read: OrderedDict[str, None] = OrderedDict()

    def append(
        self, columns: Array, predicted: Array, labels: Array | None, ids: Sequence[str] | None, at: str
    ) -> list[Window]:
        """Add samples, and return the windows that they complete."""
        if not self._ring.shape[1]:
            self._ring = np.zeros((self.settings.window, columns.shape[1]))
        closed = []
        first = self.settings.window - self.n_open
        cuts = [0, *range(first, len(columns), self.settings.window), len(columns)]
        for rows in (slice(*ends) for ends in pairwise(cuts)):
            self._extend(columns[rows], at)
            has_label = np.zeros(len(columns[rows]), bool) if labels is None else labels[rows] >= 0
            if labels is not None:
                self._open.n_labels += int(has_label.sum())
                self._open.n_right += int(np.sum(has_label & (predicted[rows] == labels[rows])))
            if ids is not None:
                self._remember_labelled(compress(ids[rows], has_label))
                self._wait(list(compress(ids[rows], ~has_label)), predicted[rows][~has_label])
            if self.n_open == self.settings.window:
                closed += [self.close_window()]
        return closed

    def close_window(self) -> Window:
        """End the current window, estimate its accuracy and raise or end an alarm."""
        current, signals = self._open, self.latest(self.n_open)
        bound, n_tested = self.alarms.bound(signals.predictors)
        window = Window(
            **asdict(current),
            end=self.n_samples,
            estimate=signals.estimate(self.model, self.layers),
            bound=bound,
            n_tested=n_tested,
        )
        self.windows.append(window)
        self._open = _OpenWindow(current.number + 1, self.n_samples)
        self.alarms.judge(self.windows)
        return window

    def latest(self, count: int) -> SampleSignals:
        """Return the signals of the latest samples, in any order."""
        places = np.arange(self.n_samples - count, self.n_samples) % len(self._ring)
        return SampleSignals.from_columns(self._ring[places])

    def add_labels(self, labels: Iterable[int], ids: Iterable[str]) -> int:
        """Count the labels of samples that wait for them, and return how many there are."""
        oldest = self.windows[0].number if self.windows else self._open.number
        answers: dict[int, list[bool]] = {}
        for label, one in zip(labels, ids, strict=True):
            if one in self._waiting:
                number, predicted = self._waiting.pop(one)
                self._remember_labelled([one])
                if number >= oldest:
                    answers.setdefault(number, []).append(predicted == label)
        for number, are_right in answers.items():
            window = self._open if number == self._open.number else self.windows[number - oldest]
            n_labels, n_right = window.n_labels + len(are_right), window.n_right + sum(are_right)
            if isinstance(window, Window):
                self.windows[number - oldest] = replace(window, n_labels=n_labels, n_right=n_right)
            else:
                self._open = replace(window, n_labels=n_labels, n_right=n_right)
        return sum(map(len, answers.values()))

    def remember(self, data_hash: str) -> bool:
        """Remember data by their hash, and return whether they are new."""
        is_new = data_hash not in self._read
        self._read[data_hash] = None
        self._forget_oldest(self._read)
        return is_new

    def n_new(self, ids: Iterable[str]) -> int:
        """Return how many different ids among these were not read before."""
        return sum(one not in self._waiting and one not in self._labelled for one in set(ids))

    def effective_limit(self, n_windows: int) -> float:
        """Return the approximate estimate below which this many full windows together raise an alarm."""
        n_samples = n_windows * self.settings.window
        return self.model.bound_reaches(self.settings.alarm_below, n_samples, self.settings.level)

    @property
    def n_open(self) -> int:
        """The number of samples in the current window."""
        return self.n_samples - self._open.start

    def _extend(self, columns: Array, at: str) -> None:
        if not self.n_open:
            self._open.start_at = at
        self._open.end_at = at
        places = np.arange(self.n_samples, self.n_samples + len(columns)) % len(self._ring)
        self._ring[places] = columns
        self.n_samples += len(columns)

    def _wait(self, ids: Sequence[str], predicted: Array) -> None:
        for one, its_class in zip(ids, predicted.tolist(), strict=True):
            self._waiting.pop(one, None)
            self._waiting[one] = (self._open.number, its_class)
        self._forget_oldest(self._waiting)

    def _remember_labelled(self, ids: Iterable[str]) -> None:
        self._labelled.update(dict.fromkeys(ids))
        self._forget_oldest(self._labelled)

    def _forget_oldest(self, memory: OrderedDict[str, Any]) -> None:
        while len(memory) > self.settings.label_memory:
            memory.popitem(last=False)

    def state(self) -> tuple[dict[str, Any], Array]:
        """Return the state as JSON values and a copy of the ring buffer."""
        values = {
            "settings": asdict(self.settings),
            "layers": list(self.layers),
            "accuracy_model": self.model.state(),
            "n_samples": self.n_samples,
            "windows": [window.to_dict() for window in self.windows],
            **self.alarms.state(),
            "open": asdict(self._open),
            "waiting": [[one, *where] for one, where in self._waiting.items()],
            "labelled": list(self._labelled),
            "read": list(self._read),
        }
        return values, self._ring.copy()

    def restore(self, values: dict[str, Any], ring: Array) -> None:
        """Set the state to one that `state` returned."""
        if ring.ndim != 2 or len(ring) != self.settings.window or values["n_samples"] < values["open"]["start"]:
            raise ValueError(f"the buffer of shape {ring.shape} does not fit a window of {self.settings.window}.")
        self.n_samples = int(values["n_samples"])
        self.windows.extend(Window.from_dict(one) for one in values["windows"])
        self.alarms.restore(values)
        self._ring, self._open = np.array(ring, np.float64), _OpenWindow(**values["open"])
        self._waiting = OrderedDict((one, (number, predicted)) for one, number, predicted in values["waiting"])
        self._labelled = OrderedDict.fromkeys(values["labelled"])
        self._read = OrderedDict.fromkeys(values["read"])
