"""Which shifted sets the run makes: the paper's 90 corrupted test sets, and perturbed sets to fit on.

A set is a name and a function that makes it, so that what is there already is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

# What densecal.shift.perturb is asked for, by name; the seed is the number after the dash.
PERTURBATIONS: dict[str, dict[str, Any]] = {"perturbed": {}}
PERTURBATION_SEEDS = (0, 1)

Making = tuple[str, Callable[[], Tensor]]


def corrupted(images: Tensor, *, smoke: bool = False) -> Iterator[Making]:
    """Give the 18 corruptions at 5 severities of (N, H, W, 3) uint8 images; a smoke test has only the strongest."""
    from densecal.shift.corruptions import CORRUPTIONS, SEVERITIES, corrupt

    for corruption in CORRUPTIONS:
        for severity in (5,) if smoke else SEVERITIES:
            yield f"{corruption}-{severity}", lambda c=corruption, s=severity: corrupt(images, c, s)


def perturbed(images: Tensor, *, smoke: bool = False) -> Iterator[Making]:
    """Give the images under densecal's random perturbations, several settings and seeds."""
    from densecal.shift.perturbations import perturb

    for name, options in PERTURBATIONS.items():
        for seed in PERTURBATION_SEEDS[: 1 if smoke else None]:
            yield f"{name}-{seed}", lambda o=options, s=seed: perturb(images, s, **o)
