"""The density scores of inputs: their distances from the training data, as DAC needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from densecal.arrays import Array
from densecal.arrays.checks import check_distances
from densecal.outputs import Distances

if TYPE_CHECKING:
    from densecal.calibrators.dac.method import DAC
    from densecal.calibrators.samples import Samples


def density_scores(dac: DAC, samples: Samples) -> Array:
    """Return the density scores s_l(x) from distances, or from features and the bank."""
    distances = samples.distances
    if distances is None and samples.logits is not None and getattr(dac, "layers_", None) == []:
        distances = samples.logits[:, :0]  # reduced to no layer: there is nothing to measure
    if distances is None:
        if samples.features is None or dac.bank is None:
            raise ValueError(
                "DAC needs the distances of the inputs from the training data: pass features= (with DAC(bank=...)) "
                "or distances= of shape (n_samples, n_layers)."
            )
        distances = dac.measure_features(samples.features)
    if isinstance(distances, Distances):
        if not dac.accepts(distances):
            to = "centres" if distances.k is None else f"neighbour {distances.k}"
            raise ValueError(
                f"distances to {to} in the layers {list(distances.layers)} were measured by "
                "another calibrator or another bank. Measure them with measure(outputs) of this calibrator."
            )
        distances = distances.values
    n_samples = len(distances) if samples.logits is None else samples.logits.shape[0]
    distances = check_distances(distances, n_samples)
    return distances**2 if dac.scores == "published_code" else distances
