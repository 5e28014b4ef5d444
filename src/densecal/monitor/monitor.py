"""Monitor: the accuracy of a classifier over time, without labels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import expit

from densecal import __version__
from densecal.arrays import ArrayLike, as_array, to_numpy
from densecal.arrays.checks import check_labels
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.unlabelled_batch import accuracy_model
from densecal.errors import ArtefactError, warn_user
from densecal.estimation.accuracy_estimate import AccuracyEstimate
from densecal.io import artefacts, safetensors_file
from densecal.monitor.alarms import Alarm
from densecal.monitor.batches import Observed, SampleIds, calibrator_of, id_texts, observe, read_batch, time_text
from densecal.monitor.stream import Stream
from densecal.monitor.windows import MOST_JOINED, Settings, Window

if TYPE_CHECKING:
    from densecal.sklearn import CalibratedClassifier
    from densecal.torch.model import CalibratedModel

FORMAT, VERSION = "densecal.monitor", 4
WIDEST_GAP = 0.1
"""Warn if even eight windows in a row must lie more than this below ``alarm_below`` to raise an alarm."""


class Monitor:
    """Estimates the accuracy of a classifier on a stream of unlabelled data, and raises alarms.

    The accuracy on every ``window`` samples is estimated. An alarm is raised if it lies below ``alarm_below`` by more
    than chance explains, or if the inputs are farther from the training data than all shifted data of the fit, or
    nearer, and the interval reaches below ``alarm_below``. It ends with the first window of which neither is true. The
    stream must not be selected by confidence or class. Threads may share a monitor, and its memory is bounded.

    The alarm compares the ``bound`` of the window with ``alarm_below``: an upper bound that only allows for chance in
    the samples and in the validation set. The latest one, two, four and eight windows are tested together: one window
    raises an alarm below ``effective_limit``, eight in a row below ``lasting_limit``. The 95 % interval also allows for
    the error of the estimate on unknown shifts, so it may contain ``alarm_below`` during an alarm.

    Parameters
    ----------
    model : Calibrator, CalibratedModel or CalibratedClassifier
        Its calibrator must have been fitted with shifted data.
    window : int, default 1000
        Number of samples per window.
    alarm_below : float, default 0.85
        The accuracy below which an alarm is raised. It must be lower than the accuracy on clean data.
    false_alarm_rate : float, default 0.01
        The probability of an alarm within 100 windows of data like the validation set.
    history : int, default 1000
        Number of windows, and of alarms, that are kept.
    label_memory : int, default 100000
        Number of samples that can wait for their label, and of ids of labelled samples and files that are remembered.
    batch_fn : callable, optional
        For batches of inputs of a CalibratedModel, as in :func:`~densecal.torch.extract`.

    Attributes
    ----------
    clean_accuracy : float
        The estimated accuracy on clean data.
    n_validation : int
        The number of clean validation samples that the calibrator was fitted on.

    Examples
    --------
    >>> import densecal
    >>> from densecal.demo import load_demo, load_domains
    >>> bank = densecal.FeatureBank(load_demo("train").features)
    >>> calibrator = densecal.DAC(bank).fit(load_demo("val"), shifted=load_domains())
    >>> monitor = densecal.Monitor(calibrator, window=500, alarm_below=0.8)
    >>> for day in ("clean", "shifted-1", "shifted-3", "shifted-5"):
    ...     windows = monitor.update(load_demo(day), at=day)
    >>> len(monitor.windows), monitor.alarm.since_at
    (19, 'shifted-3')
    """

    def __init__(
        self,
        model: Calibrator | CalibratedModel | CalibratedClassifier,
        *,
        window: int = 1000,
        alarm_below: float = 0.85,
        false_alarm_rate: float = 0.01,
        history: int = 1000,
        label_memory: int = 100_000,
        batch_fn: Callable[..., object] | None = None,
    ) -> None:
        self._start(model, Settings(window, alarm_below, false_alarm_rate, history, label_memory), batch_fn)
        limit, lasting = self.settings.alarm_below, self.lasting_limit
        if limit - lasting > WIDEST_GAP:
            warn_user(
                f"An alarm is unlikely: alarm_below is {limit:.1%}, but even eight windows in a row raise one only "
                f"below about {lasting:.1%}. Fit the calibrator on more than {self.n_validation:,} clean validation "
                "samples, or use larger windows."
            )

    def _start(self, model: Any, settings: Settings, batch_fn: Callable[..., object] | None) -> None:
        """Set the attributes of a monitor that has read no data."""
        self.model, self.batch_fn = model, batch_fn
        self.calibrator = calibrator_of(model)
        regression = accuracy_model(self.calibrator)
        self.clean_accuracy, self.n_validation = float(expit(regression.clean_logit)), regression.n_clean
        if settings.alarm_below >= self.clean_accuracy:
            limit, clean = settings.alarm_below, f"{self.clean_accuracy:.3f}"
            raise ValueError(f"alarm_below={limit} must be lower than the estimated accuracy on clean data, {clean}.")
        stage = self.calibrator.density_stage
        self._stream = Stream(regression, () if stage is None else stage.layers_, settings)
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**vars(self), "_stream": deepcopy(self._stream), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __repr__(self) -> str:
        state = "no alarm" if self.alarm is None else f"alarm since {self.alarm.since_at}"
        return f"Monitor({self.n_samples:,} samples, {len(self.windows)} windows; {state})"

    @property
    def settings(self) -> Settings:
        """The settings: window, alarm_below, false_alarm_rate, history and label_memory."""
        return self._stream.settings

    @property
    def effective_limit(self) -> float:
        """The approximate estimate below which one full window raises an alarm."""
        return self._stream.effective_limit(1)

    @property
    def lasting_limit(self) -> float:
        """The approximate mean estimate below which eight full windows in a row raise an alarm."""
        return self._stream.effective_limit(MOST_JOINED)

    @property
    def n_samples(self) -> int:
        """The number of samples so far."""
        return self._stream.n_samples

    @property
    def n_open(self) -> int:
        """The number of samples after the last complete window, which have not been tested for an alarm yet."""
        return self._stream.n_open

    @property
    def windows(self) -> tuple[Window, ...]:
        """The latest complete windows, oldest first."""
        with self._lock:
            return tuple(self._stream.windows)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The latest alarms, oldest first."""
        with self._lock:
            return tuple(self._stream.alarms.raised)

    @property
    def alarm(self) -> Alarm | None:
        """The current alarm, or None."""
        alarms = self.alarms
        return alarms[-1] if alarms and alarms[-1].until is None else None

    def update(
        self,
        batch: object,
        *,
        features: Mapping[str, ArrayLike] | None = None,
        distances: ArrayLike | None = None,
        ids: SampleIds | None = None,
        at: str | date | None = None,
    ) -> list[Window]:
        """Add a batch of the stream, and return the windows that it completes.

        Parameters
        ----------
        batch : Outputs, array of logits, or a batch of inputs
            Outputs, or logits with their features or distances. For a CalibratedModel also a batch of its inputs, or
            the result of ``model.details``, which saves a forward pass; for a CalibratedClassifier also X. The accuracy
            on labels, if there are any, is shown next to the estimates, which do not depend on them.
        features, distances : optional
            The features or distances of a batch of logits.
        ids : sequence, array or tensor of str or int, optional
            Names of the samples, for `add_labels`; 7 and ``"7"`` are the same.
        at : str, date or datetime, optional
            The time or the name of the batch; by default the current time (UTC).
        """
        is_logits = features is not None or distances is not None
        outputs: Any = batch if is_logits else read_batch(self.model, batch, self.batch_fn)
        if not len(outputs):
            return []
        return self.append(observe(self.calibrator, outputs, features, distances), ids=ids, at=at)

    def append(self, observed: Observed, *, ids: SampleIds | None = None, at: str | date | None = None) -> list[Window]:
        """Add a batch that `observe` has read, possibly in another process, and return the windows it completes."""
        names = None if ids is None else id_texts(ids)
        if names is not None and len(names) != len(observed.columns):
            raise ValueError(f"ids must name every sample: got {len(names)} ids for {len(observed.columns)} samples.")
        when = time_text(datetime.now(UTC) if at is None else at)
        with self._lock:
            n_repeated = 0 if names is None else len(names) - self._stream.n_new(names)
            windows = self._stream.append(*observed, names, when)
        if n_repeated:
            warn_user(
                f"{n_repeated:,} of {len(observed.columns):,} ids were read before, or occur twice in the batch. A "
                "sample that is read twice counts twice, and its label goes to the later one."
            )
        return windows

    def add_labels(self, labels: ArrayLike, ids: SampleIds) -> int:
        """Add labels that arrive late, for ids of `update`, and return how many of the ids were waiting for one.

        Labels are column indices of the logits, but for a CalibratedClassifier values of its ``classes_``.
        """
        n_classes = self.calibrator.stages[-1].n_classes_
        if hasattr(self.model, "classes_"):
            from densecal.sklearn.conventions import label_indices

            labels = label_indices(to_numpy(as_array(labels, "labels")), self.model.classes_, name="labels")
        names = id_texts(ids)
        checked = to_numpy(check_labels(labels, len(names), n_classes)) if names else np.zeros(0, int)
        with self._lock:
            n_new = self._stream.n_new(names)
            n_found = self._stream.add_labels(checked.tolist(), names)
        if names and n_new == len(set(names)):
            warn_user(
                f"None of the {len(names):,} ids, such as {names[0]!r}, is known. Pass ids that update was given; "
                f"label_memory={self.settings.label_memory:,} of them are remembered."
            )
        return n_found

    def remember(self, data_hash: str) -> bool:
        """Remember data by their hash, and return whether they are new; ``densecal monitor`` reads no file twice."""
        with self._lock:
            return self._stream.remember(data_hash)

    def close_window(self) -> Window | None:
        """End the current window before it is full and return it; None if it has no samples."""
        with self._lock:
            return self._stream.close_window() if self._stream.n_open else None

    def estimate(self) -> AccuracyEstimate:
        """Estimate the accuracy on the latest ``window`` samples, which may belong to two windows."""
        with self._lock:
            count = min(self._stream.n_samples, self.settings.window)
            if not count:
                raise ValueError("The monitor has no samples yet: call update first.")
            signals = self._stream.latest(count)
        return signals.estimate(self._stream.model, self._stream.layers)

    def to_dict(self) -> dict[str, object]:
        """Return the settings, windows and alarms for JSON."""
        with self._lock:
            values, _ = self._stream.state()
        names = "effective_limit", "lasting_limit", "n_validation", "settings", "n_samples", "windows", "alarms"
        found = {name: values[name] if name in values else getattr(self, name) for name in names}
        return {**found, "n_open": values["n_samples"] - values["open"]["start"]}

    def save(self, path: str | Path) -> None:
        """Write the state of the monitor to one safetensors file, without the model."""
        with self._lock:
            values, ring = self._stream.state()
        header = {"format": FORMAT, "version": VERSION, "densecal": __version__, **values}
        safetensors_file.write(path, header, {"ring": ring})

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Calibrator | CalibratedModel | CalibratedClassifier,
        *,
        batch_fn: Callable[..., object] | None = None,
    ) -> Self:
        """Restore a monitor of the same model from a file that `save` wrote."""
        header, arrays = safetensors_file.read(path, FORMAT, mapped=False)
        if (version := header.get("version")) != VERSION:
            raise ArtefactError(f"{path} has format version {version}, but densecal {__version__} reads {VERSION}.")
        try:
            monitor = cls.__new__(cls)
            monitor._start(model, Settings(**header["settings"]), batch_fn)
            expected, _ = monitor._stream.state()
            if all(header[name] == expected[name] for name in ("layers", "accuracy_model")):
                monitor._stream.restore(header, arrays["ring"])
                return monitor
        except (LookupError, TypeError, ValueError) as error:
            raise artefacts.damaged(path, error) from error
        raise ArtefactError(f"{path} is the state of a monitor of another calibrator. Start a new Monitor.")
