"""Which shifted sets the run makes: the paper's 90 corrupted test sets, and perturbed sets to fit on.

A set is a name and a function that makes it, so that what is there already is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from densecal.shift.perturbations.plan import PERTURBATIONS as KINDS

FAMILIES = ("geometric", "tonal", "colour", "occlusion")

# What densecal.shift.perturb is asked for, by name, and with how many seeds; the seed is the number after the dash.
FIRST_TRY = ("rotate", "shear", "translate", "posterise", "solarise", "gamma", "channel_offset", "cutout")
PERTURBATIONS: dict[str, tuple[dict[str, Any], int]] = {
    "perturbed": ({"kinds": FIRST_TRY}, 3),
    "mild": ({"kinds": FIRST_TRY, "strength": (0.05, 0.5)}, 1),
    "strong": ({"kinds": FIRST_TRY, "strength": (0.5, 1.0)}, 1),
    "several": ({"kinds": FIRST_TRY, "per_image": (2, 3)}, 1),
    "every-kind": ({"kinds": tuple(KINDS)}, 1),
    **{family: ({"kinds": tuple(k.name for k in KINDS.values() if k.family == family)}, 1) for family in FAMILIES},
}

Making = tuple[str, Callable[[], Tensor]]


def corrupted(images: Tensor, *, smoke: bool = False) -> Iterator[Making]:
    """Give the 18 corruptions at 5 severities of (N, H, W, 3) uint8 images; a smoke test has only the strongest."""
    from densecal.shift import CORRUPTIONS, SEVERITIES, corrupt

    for corruption in CORRUPTIONS:
        for severity in (5,) if smoke else SEVERITIES:
            yield f"{corruption}-{severity}", lambda c=corruption, s=severity: corrupt(images, c, s)


def perturbed(images: Tensor, *, smoke: bool = False) -> Iterator[Making]:
    """Give the images under densecal's random perturbations, several settings and seeds."""
    from densecal.shift import perturb

    for name, (options, seeds) in PERTURBATIONS.items():
        for seed in range(1 if smoke else seeds):
            yield f"{name}-{seed}", lambda o=options, s=seed: perturb(images, s, **o)
