"""fit_bank, predict, evaluate and monitor: a calibrator on the outputs of a data set, with Ray."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import ray.data
from numpy.typing import NDArray

from densecal.arrays import softmax, to_numpy
from densecal.calibrators import UNCALIBRATED
from densecal.calibrators.base import Calibrator
from densecal.density.bank import FeatureBank
from densecal.density.defaults import Centres
from densecal.density.sample import FeatureSample
from densecal.integrations.ray.cluster import Columns, Workers, in_order, pack, unpack
from densecal.integrations.ray.shards import features_of, to_outputs
from densecal.metrics import N_BINS, MetricState
from densecal.monitor.batches import Observed, observe
from densecal.monitor.monitor import Monitor
from densecal.outputs import Outputs

if TYPE_CHECKING:
    from densecal.torch.batches import BatchFn
    from densecal.torch.model import CalibratedModel

Model: TypeAlias = "Calibrator | CalibratedModel | Callable[[], CalibratedModel]"
Work: TypeAlias = Callable[[Calibrator, Outputs], Any]
"""A function of a calibrator and the outputs of a batch that returns a batch."""


def fit_bank(
    dataset: ray.data.Dataset,
    *,
    centres: Centres = "auto",
    seed: int = 0,
    id_column: str | None = None,
    n_samples: int | None = None,
) -> FeatureBank:
    """Make the centres of the training features of a Ray data set.

    Every worker draws a random sample of its rows, and the samples together are one of all rows. It depends on the
    rows and the seed, but not on the number of workers or the order of their work.

    Parameters
    ----------
    dataset : ray.data.Dataset
        Its columns are ``features/LAYER``, as of `extract` and `read_shards`.
    centres, seed
        As in :class:`~densecal.FeatureBank`.
    id_column : str, optional
        A column with a different value for every row. With the indices of the rows, the column ``sample`` of
        `read_shards`, the bank is that of ``FeatureBank(features)``. By default a row is identified by its features.
    n_samples : int, optional
        The number of rows, if known. Workers then send only rows that may be in the sample.

    Examples
    --------
    >>> bank = fit_bank(read_shards("train"), id_column="sample")  # doctest: +SKIP
    """

    def draw(batch: Columns) -> pa.Table:
        sample = FeatureSample.for_centres(centres, seed, n_samples)
        features = features_of(batch)
        sample.add(features, _numbers(features, None if id_column is None else batch[id_column]))
        return pack(sample)

    whole = FeatureSample.for_centres(centres, seed, n_samples)
    for sample in unpack(dataset.map_batches(draw, batch_size=None)):
        whole.merge(sample)
    if n_samples is not None and whole.n_seen != n_samples:
        raise ValueError(f"The data set has {whole.n_seen} rows, but n_samples={n_samples} was given.")
    return FeatureBank.from_sample(whole, centres=centres)


def predict(
    dataset: ray.data.Dataset,
    model: Model,
    *,
    keep: Sequence[str] = (),
    batch_size: int = 1024,
    batch_fn: BatchFn[Any] | None = None,
    assume_logits: bool = False,
    workers: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
) -> ray.data.Dataset:
    """Return a Ray data set of calibrated probabilities, which are computed when it is used.

    Its columns are ``predicted``, ``confidence``, ``probabilities``, ``temperature`` (with DAC) and those to keep.

    Parameters
    ----------
    dataset : ray.data.Dataset
        For a calibrator the outputs of a classifier, as of `extract` or `read_shards`; for a calibrated model its
        inputs.
    model : Calibrator, CalibratedModel or callable
        The calibrator or calibrated model, or a function that returns a calibrated model, called once by every worker.
    batch_size : int
        Samples per batch.
    assume_logits : bool
        For a calibrator: whether to accept logits that look like probabilities.
    keep, batch_fn, workers, num_cpus, num_gpus : optional
        As in `extract`. A calibrator needs no workers of its own: ``num_cpus`` are those of a task.

    Examples
    --------
    >>> calibrator = densecal.load("cal.densecal")  # doctest: +SKIP
    >>> predict(read_shards("new"), calibrator, keep=["sample"]).write_parquet("predictions")  # doctest: +SKIP
    """

    def work(calibrator: Calibrator, outputs: Outputs) -> Columns:
        measured = calibrator.measure(outputs)
        probabilities = to_numpy(calibrator.predict_proba(measured))
        found = {"predicted": probabilities.argmax(axis=1), "confidence": to_numpy(calibrator.confidence(measured))}
        found["probabilities"] = probabilities
        if calibrator.density_stage is not None:
            found["temperature"] = to_numpy(calibrator.density_stage.temperatures(measured))
        return found

    options = _MapOptions(batch_size, batch_fn, assume_logits, Workers(workers, num_cpus, num_gpus))
    return _map_outputs(dataset, model, work, keep, options)


def evaluate(
    dataset: ray.data.Dataset,
    model: Model,
    *,
    n_bins: int = N_BINS,
    batch_size: int | None = None,
    batch_fn: BatchFn[Any] | None = None,
    assume_logits: bool = False,
    workers: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
) -> dict[str, MetricState]:
    """Return the metrics of a labelled Ray data set before and after calibration.

    Parameters
    ----------
    dataset : ray.data.Dataset
        As in `predict`, with labels.
    model : Calibrator, CalibratedModel or callable
        As in `predict`.
    batch_fn, assume_logits, workers, num_cpus, num_gpus : optional
        As in `predict`.
    n_bins : int
        Number of bins of the binned metrics.
    batch_size : int, optional
        Samples per batch; by default a whole block of Ray's.

    Returns
    -------
    dict of str to MetricState
        The states of the uncalibrated classifier, ``"uncalibrated"``, and of the method, such as ``"dac+ets"``. They do
        not depend on the number of workers. ``compute()`` returns all metrics, ``interval("ece")`` one with its
        bootstrap interval.

    Examples
    --------
    >>> states = evaluate(read_shards("test"), calibrator)  # doctest: +SKIP
    >>> {name: state.compute().ece for name, state in states.items()}  # doctest: +SKIP
    {'uncalibrated': 0.0712, 'dac+ets': 0.0094}
    """

    def work(calibrator: Calibrator, outputs: Outputs) -> pa.Table:
        if outputs.labels is None:
            raise ValueError("evaluate needs labels: the data set must have a column 'labels'.")
        measured = calibrator.measure(outputs)
        before = MetricState(n_bins=n_bins).update(softmax(outputs.checked_logits()), outputs.labels)
        after = MetricState(n_bins=n_bins).update(
            calibrator.predict_proba(measured), outputs.labels, confidence=calibrator.confidence(measured)
        )
        return pack({UNCALIBRATED: before, calibrator.method_name: after})

    options = _MapOptions(batch_size, batch_fn, assume_logits, Workers(workers, num_cpus, num_gpus))
    states: dict[str, MetricState] = {}
    for found in unpack(_map_outputs(dataset, model, work, (), options)):
        for name, state in found.items():
            states[name] = states[name].merge(state) if name in states else state
    if not states:
        raise ValueError("The data set has no samples.")
    return states


def monitor(
    dataset: ray.data.Dataset,
    model: Model | Monitor,
    *,
    id_column: str | None = None,
    at: str | None = None,
    batch_size: int = 1024,
    batch_fn: BatchFn[Any] | None = None,
    assume_logits: bool = False,
    workers: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    **settings: Any,
) -> Monitor:
    """Add a Ray data set to a monitor, in the order of its rows, and return the monitor.

    The workers run the model and send the monitor a few numbers per sample.

    Parameters
    ----------
    dataset : ray.data.Dataset
        As in `predict`. The accuracy on labels is shown next to the estimates.
    batch_size, batch_fn, assume_logits, workers, num_cpus, num_gpus : optional
        As in `predict`.
    model : Monitor, Calibrator, CalibratedModel or callable
        A monitor to continue, or the model of a new one.
    id_column : str, optional
        The column of the names of the samples, for ``Monitor.add_labels``.
    at : str, optional
        The time or the name of the data; by default the current time (UTC).
    **settings : object
        Those of a new :class:`~densecal.Monitor`: ``window``, ``alarm_below`` and others.

    Examples
    --------
    >>> day = monitor(read_shards("2026-11-16"), calibrator, alarm_below=0.8, at="2026-11-16")  # doctest: +SKIP
    >>> day.alarm  # doctest: +SKIP
    """
    watch = model if isinstance(model, Monitor) else Monitor(_as_model(model), **settings)
    if isinstance(model, Monitor) and settings:
        raise TypeError(f"The monitor has its settings: omit {', '.join(settings)}.")

    def work(calibrator: Calibrator, outputs: Outputs) -> Columns:
        return {name: values for name, values in observe(calibrator, outputs)._asdict().items() if values is not None}

    keep = () if id_column is None else (id_column,)
    options = _MapOptions(batch_size, batch_fn, assume_logits, Workers(workers, num_cpus, num_gpus))
    seen = _map_outputs(dataset, watch.model if isinstance(model, Monitor) else model, work, keep, options)
    with in_order(seen):
        for batch in seen.iter_batches(batch_size=None):
            observed = Observed(batch["columns"], batch["predicted"], batch.get("labels"))
            watch.append(observed, ids=None if id_column is None else batch[id_column].tolist(), at=at)
    return watch


class _MapOptions(NamedTuple):
    batch_size: int | None
    batch_fn: BatchFn[Any] | None
    assume_logits: bool
    workers: Workers


def _map_outputs(
    dataset: ray.data.Dataset, model: Model, work: Work, keep: Sequence[str], options: _MapOptions
) -> ray.data.Dataset:
    """Apply work to every batch: by tasks that share a calibrator, or by workers with a calibrated model each."""

    def with_kept(found: Any, batch: Columns) -> Any:
        return {**{name: batch[name] for name in keep}, **found} if keep else found

    if isinstance(model, Calibrator):
        shared = ray.put(model)

        def run(batch: Columns) -> Any:
            return with_kept(work(ray.get(shared), to_outputs(batch, assume_logits=options.assume_logits)), batch)

        return dataset.map_batches(run, batch_size=options.batch_size, num_cpus=options.workers.num_cpus)

    def make(on_gpu: bool) -> Callable[[Columns], Any]:
        from densecal.integrations.ray.extraction import as_inputs
        from densecal.torch.measured_outputs import measured_outputs

        own = _as_model(model)
        if on_gpu:
            own.to("cuda")

        def run_model(batch: Columns) -> Any:
            inputs = as_inputs(batch, keep if options.batch_fn is None else ())
            outputs = measured_outputs(own, [inputs], with_labels=True, batch_fn=options.batch_fn)
            return with_kept(work(own.calibrator, outputs), batch)

        return run_model

    return options.workers.map(dataset, make, options.batch_size)


def _as_model(model: Any) -> Any:
    """Return the model, or the one that a function makes."""
    return model if isinstance(model, Calibrator) or hasattr(model, "calibrator") else model()


def _numbers(features: dict[str, Any], ids: NDArray[Any] | None) -> NDArray[np.integer[Any]]:
    """Return a number for each row that depends on its id alone, or without ids on its features."""
    if ids is not None and ids.dtype.kind in "iu":
        return ids
    names: Any = np.ascontiguousarray(next(iter(features.values()))) if ids is None else [str(one) for one in ids]
    rows = (row.tobytes() if ids is None else row.encode() for row in names)
    return np.frombuffer(b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in rows), np.uint64)
