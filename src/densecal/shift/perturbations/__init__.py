"""Generic perturbations, disjoint from the 18 corruptions, to fit on data that has moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from densecal.shift.perturbations.plan import FAMILY_WEIGHTS, PERTURBATIONS, Perturbation, plan_perturbations

if TYPE_CHECKING:
    from densecal.shift.perturbations.apply import perturb

__all__ = ["FAMILY_WEIGHTS", "PERTURBATIONS", "Perturbation", "perturb", "plan_perturbations"]


def __getattr__(name: str) -> Any:
    # The names and the plan need no torch; perturb does, and is imported when first asked for.
    if name == "perturb":
        from densecal.shift.perturbations.apply import perturb

        return perturb
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
