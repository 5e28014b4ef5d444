"""False and missed alarms of the monitor on streams of measured outputs.

python benchmarks/monitor.py FOLDER    # a folder of reproduction.measuring.measurements per network

An undisturbed stream is 100 windows of clean test samples. A fall is a mixture of two severities of one corruption on
which the accuracy is 10 points below ``alarm_below``, a slight one 5 points. Samples are drawn with replacement.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

import densecal
from bench import write_section
from densecal.calibrators.dac.unlabelled_batch import accuracy_model, sample_signals
from densecal.monitor.stream import Stream
from densecal.monitor.windows import RATE_WINDOWS, Settings, Window
from reproduction.measuring.measurements import CLEAN, VAL, Measurements, labelled_sets
from reproduction.methods import quiet_fits
from reproduction.page.markdown import markdown
from reproduction.studies.accuracy_peers import accuracy_of
from reproduction.studies.estimation import NETWORKS, shifted_domains

RATE = 0.01
STREAMS, FALLS_PER_KIND = 1000, 40
FALL, WINDOWS_TO_ALARM = 0.10, 3
SLIGHT_FALL, SLIGHT_WINDOWS, SLIGHT_PER_KIND = 0.05, 10, 10
WINDOWS = (1000, 200)


class Network:
    """The signals of a network's samples under every condition, and whether it classifies them correctly."""

    def __init__(self, folder: Path) -> None:
        measured = Measurements.load(folder)
        with quiet_fits():
            dac = densecal.DAC().fit(measured.outputs(VAL, None), shifted=shifted_domains(measured))
        self.model, self.layers = accuracy_model(dac), dac.layers_
        self.columns, self.accuracy = {}, {}
        for name in labelled_sets(measured.sets):
            outputs = measured.outputs(name, None)
            self.columns[name] = sample_signals(dac, outputs).to_columns()
            self.accuracy[name] = accuracy_of(outputs)

    def lowest_bound(self, columns, window: int) -> float:
        """Return the lowest limit of a stream's windows: each ``alarm_below`` above it raises an alarm."""
        stream = Stream(self.model, self.layers, Settings(window, 0.5, RATE, len(columns), 1))
        windows = stream.append(columns, None, None, None, "")
        return min(_lowest(found) for found in windows)

    def falls(self, accuracy: float):
        """Yield the two conditions of each corruption between which the accuracy falls to a value, and their shares."""
        kinds = sorted({name.rpartition("-")[0] for name in self.columns if name != CLEAN})
        for kind in kinds:
            names = [CLEAN, *sorted(name for name in self.columns if name.rpartition("-")[0] == kind)]
            for one, other in pairwise(names):
                above, below = self.accuracy[one], self.accuracy[other]
                if above >= accuracy > below:
                    yield one, other, (accuracy - below) / (above - below)
                    break


def _lowest(window: Window) -> float:
    judged = max(window.bound, window.estimate.accuracy)
    return min(judged, window.estimate.low) if window.estimate.is_extrapolated else judged


def undisturbed(network: Network, window: int, rng) -> np.ndarray:
    """Return the lowest bound of each undisturbed stream."""
    clean = network.columns[CLEAN]
    draws = (clean[rng.integers(len(clean), size=RATE_WINDOWS * window)] for _ in range(STREAMS))
    return np.array([network.lowest_bound(columns, window) for columns in draws])


def fallen(network: Network, window: int, accuracy: float, n_windows: int, n_per_kind: int, rng) -> np.ndarray:
    """Return the lowest bound of each stream whose accuracy has fallen to a value."""
    found = []
    for one, other, share in network.falls(accuracy):
        for _ in range(n_per_kind):
            is_one = rng.random(n_windows * window) < share
            parts = (network.columns[name] for name in (one, other))
            drawn = (part[rng.integers(len(part), size=len(is_one))] for part in parts)
            found.append(network.lowest_bound(np.where(is_one[:, None], *drawn), window))
    return np.array(found)


def study(name: str, folder: Path) -> list[list[object]]:
    network, rng, rows = Network(folder / name), np.random.default_rng(0), []
    clean = 1 / (1 + np.exp(-network.model.clean_logit))
    limits = (round(clean - 0.01, 3), round(clean - 0.05, 3), *([0.85] if clean > 0.87 else []))
    for window in WINDOWS:
        bounds = undisturbed(network, window, rng)
        for limit in limits:
            alarms = int(np.sum(bounds < limit))
            most = binomtest(alarms, STREAMS, alternative="less").proportion_ci(0.95).high
            hits = fallen(network, window, limit - FALL, WINDOWS_TO_ALARM, FALLS_PER_KIND, rng) < limit
            slight = fallen(network, window, limit - SLIGHT_FALL, SLIGHT_WINDOWS, SLIGHT_PER_KIND, rng) < limit
            least = binomtest(int(hits.sum()), len(hits), alternative="greater").proportion_ci(0.95).low
            setting = [name, f"{100 * network.accuracy[CLEAN]:.1f}", f"{100 * limit:.1f}", f"{window:,}"]
            shares = [f"{100 * share:.1f}" for share in (hits.mean(), least, slight.mean())]
            rows.append([*setting, alarms, f"{100 * most:.2f}", len(hits), *shares])
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    folder = Path(sys.argv[1])
    rows = [row for name in NETWORKS if (folder / name).exists() for row in study(name, folder)]
    text = f"""\
*False alarms* counts the streams with an alarm among {STREAMS:,} streams of {RATE_WINDOWS} windows without a shift;
*at most* is the upper 95 % bound of their share. `false_alarm_rate` is {100 * RATE:.0f} %. *Falls* counts the streams
whose accuracy falls to {100 * FALL:.0f} points below `alarm_below`; *alarm* is the share of them with an alarm within
{WINDOWS_TO_ALARM} windows, *at least* its lower 95 % bound. *Slight* is the share of streams with an alarm within
{SLIGHT_WINDOWS} windows among those whose accuracy falls to {100 * SLIGHT_FALL:.0f} points below `alarm_below`.
Accuracies and shares are in percent. `alarm_below` is 1 or 5 points below the accuracy on the validation data, or
85 %. Samples are drawn with replacement from 2,000 test images per condition. Written by
`python benchmarks/monitor.py FOLDER`.

The bounds treat the streams as independent, but the streams of a network share its images and its fit, so the bounds do
not apply to other networks or shifts. The alarm rule was chosen from four rules on the same networks (the estimate
alone, and three margins for sampling noise). With 1,000 samples, all four raised an alarm in at least 99.9 % of the
falls. Since then the latest one, two, four and eight windows are tested together, and the margin for chance in the
validation set is taken on the scale of the accuracy; both were chosen on c10-resnet20. Windows farther from the
training data than all shifted data of the fit raise an alarm as well if their interval reaches below `alarm_below`."""
    setting = ["network", "clean", "alarm_below", "window"]
    found = ["false alarms", "at most", "falls", "alarm", "at least", "slight"]
    write_section("monitor", "## Alarms of the monitor", text, markdown([*setting, *found], rows))


if __name__ == "__main__":
    main()
