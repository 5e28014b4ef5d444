"""The paper's protocol: classifiers x methods x conditions x measures, computed once and kept."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac import DAC
from densecal.calibrators.names import ORACLE, UNCALIBRATED
from densecal.progress import track
from reproduction.classifiers import find_classifier
from reproduction.judging import MEASURES, judge
from reproduction.measurements import VAL, Measurements
from reproduction.methods import EVERY_METHOD, fit_method, neighbour_of
from reproduction.results import MethodResult

if TYPE_CHECKING:
    import pandas as pd

UNFITTED = (UNCALIBRATED, ORACLE)
ECE_ONLY: dict[str, Any] = {"measures": ("ece",), "out_of_domain": False}
"""What most tables ask of `Protocol.result`."""


@dataclass(frozen=True)
class Setting:
    """What a result depends on, beside the measurements: see `Protocol.result`."""

    method: str
    k: int | None
    layers: tuple[str, ...] | None
    fraction: float
    draw: int
    measures: tuple[str, ...]
    resamples: int
    out_of_domain: bool


@dataclass
class Protocol:
    """Judge methods on measured classifiers; what was judged once is read back.

    Parameters
    ----------
    folder : path
        Holds ``measurements/CLASSIFIER/*.safetensors``.
    cache : path, optional
        Where results are kept; ``folder/cache`` without it. Delete it after a change to a method.
    resamples, seed
        The bootstrap.

    Examples
    --------
    >>> Protocol("nowhere").classifiers
    ()
    """

    folder: str | Path
    cache: str | Path | None = None
    resamples: int = 200
    seed: int = 0
    _loaded: dict[str, Measurements] = field(default_factory=dict, repr=False)
    judged: set[Path] = field(default_factory=set, init=False, repr=False)
    """The results that were found anew, by where they are kept now."""
    reread: set[Path] = field(default_factory=set, init=False, repr=False)
    """The results that were read back from an earlier run."""

    @property
    def cache_folder(self) -> Path:
        """Where results are kept."""
        return Path(self.folder) / "cache" if self.cache is None else Path(self.cache)

    @property
    def classifiers(self) -> tuple[str, ...]:
        """The classifiers that have been measured."""
        root = Path(self.folder) / "measurements"
        return tuple(path.name for path in sorted(root.glob("*")) if any(path.glob("*.safetensors")))

    def measurements(self, classifier: str) -> Measurements:
        """Return a classifier's measurements; without a validation set, half of the test set becomes one."""
        if classifier not in self._loaded:
            folder = Path(self.folder) / "measurements" / classifier
            if not folder.is_dir():
                needs = find_classifier(classifier.removesuffix("-all-layers"))
                raise FileNotFoundError(
                    f"{classifier} has not been measured: {folder} is not there. Give the folder with the "
                    f"{needs.dataset} data (--data, or data=) to measure it; its weights: {needs.weights}."
                )
            measured = Measurements.load(folder)
            self._loaded[classifier] = measured if VAL in measured.sets else measured.with_validation_from_test()
        return self._loaded[classifier]

    def result(
        self,
        classifier: str,
        method: str,
        *,
        k: int | None = None,
        layers: Sequence[str] | None = None,
        fraction: float = 1.0,
        draw: int = 0,
        measures: Iterable[str] = MEASURES,
        resamples: int | None = None,
        out_of_domain: bool = True,
    ) -> MethodResult:
        """Fit a method on the clean validation set and judge it on every test set, or read what was found before.

        Parameters
        ----------
        classifier, method : str
        k, layers
            The neighbour and the layers of DAC; the paper's without them.
        fraction, draw
            The share of the validation set to fit on, and which random share.
        measures, resamples, out_of_domain
            What to judge by, and with how many bootstrap resamples.
        """
        setting = Setting(
            method=method,
            k=k,
            layers=None if layers is None else tuple(layers),
            fraction=fraction,
            draw=draw if fraction < 1 else 0,
            measures=tuple(measures),
            resamples=self.resamples if resamples is None else resamples,
            out_of_domain=out_of_domain,
        )
        stem = self._cache_stem(classifier, setting)
        for path in sorted(stem.parent.glob(f"{stem.name}.*.npz")):
            kept = MethodResult.load(path)
            # A result by more measures than were asked for serves as well.
            if set(setting.measures) <= set(kept.measures) and (kept.metadata["out_of_domain"] or not out_of_domain):
                if path not in self.judged:
                    self.reread.add(path)
                return kept
        found = self._judge(classifier, setting)
        path = stem.with_name(f"{stem.name}.{len(setting.measures)}{'o' if out_of_domain else ''}.npz")
        found.save(path)
        self.judged.add(path)
        return found

    def results(self, classifier: str, methods: Iterable[str] = EVERY_METHOD) -> dict[str, MethodResult]:
        """Return several methods' results, with a progress bar."""
        wanted = list(methods)
        return {method: self.result(classifier, method) for method in track(wanted, classifier)}

    def table(self, classifiers: Iterable[str] | None = None, methods: Iterable[str] = EVERY_METHOD) -> pd.DataFrame:
        """Return the tidy table: one row a classifier, method, condition and measure, with intervals."""
        import pandas as pd

        names = self.classifiers if classifiers is None else tuple(classifiers)
        methods = list(methods)
        parts = [result.rows() for name in names for result in self.results(name, methods).values()]
        return pd.concat(parts, ignore_index=True)

    def fitted(
        self, classifier: str, method: str, *, k: int | None = None, layers: Sequence[str] | None = None
    ) -> Calibrator:
        """Return a method fitted on the whole clean validation set."""
        return fit_method(method, self.measurements(classifier), k=k, layers=layers)

    def _judge(self, classifier: str, setting: Setting) -> MethodResult:
        measured = self.measurements(classifier)
        method, layers = setting.method, setting.layers
        k = measured.about.k if setting.k is None else setting.k
        start = time.perf_counter()
        calibrator = None
        if method not in UNFITTED:
            rows = _draw_rows(len(measured.sets[VAL].logits), setting.fraction, setting.draw)
            calibrator = fit_method(method, measured, k=k, layers=layers, rows=rows)
        seconds = time.perf_counter() - start
        k = neighbour_of(method, k)
        return judge(
            method,
            calibrator,
            measured.conditions(k, layers),
            classifier=classifier,
            out_of_domain=measured.out_of_domain(k, layers) if setting.out_of_domain else (),
            measures=setting.measures,
            resamples=setting.resamples,
            seed=self.seed,
            metadata={
                "fit_seconds": seconds,
                "k": k,
                "out_of_domain": setting.out_of_domain,
                **_weights(calibrator, measured.layers if layers is None else layers),
            },
        )

    def _cache_stem(self, classifier: str, setting: Setting) -> Path:
        """Return where results of this setting lie, whatever measures they have."""
        files = (Path(self.folder) / "measurements" / classifier).glob("*.safetensors")
        sizes = sorted((path.name, path.stat().st_size) for path in files)
        what = {key: value for key, value in asdict(setting).items() if key not in ("measures", "out_of_domain")}
        digest = hashlib.sha256(json.dumps([what, self.seed, sizes], sort_keys=True).encode()).hexdigest()[:12]
        return self.cache_folder / classifier / f"{setting.method}.{digest}"


def _draw_rows(count: int, fraction: float, draw: int) -> Any | None:
    if fraction >= 1:
        return None
    return np.sort(np.random.default_rng(draw).choice(count, max(1, round(fraction * count)), replace=False))


def _weights(calibrator: Calibrator | None, layers: Sequence[str]) -> dict[str, Any]:
    """Return what DAC learned, if there is DAC."""
    for stage in getattr(calibrator, "stages", (calibrator,)):
        if isinstance(stage, DAC):
            return {
                "layers": list(layers),
                "weights": [float(weight) for weight in stage.weights_],
                "bias": stage.bias_,
                "importance": list(stage.layer_importance_.values()),
            }
    return {}
