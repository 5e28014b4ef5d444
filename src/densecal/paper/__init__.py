"""The paper: its classifiers, training recipes, protocol, tables and figures.

``train`` and ``measure`` need torch and your own copy of the data; ``reproduce`` makes any table or figure from what
was measured.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "CLASSIFIERS": "densecal.paper.classifiers",
    "Classifier": "densecal.paper.classifiers",
    "find_classifier": "densecal.paper.classifiers",
    "Recipe": "densecal.paper.recipes",
    "train": "densecal.paper.training_run",
    "measure": "densecal.paper.measuring",
    "Measurements": "densecal.paper.measurements",
    "Protocol": "densecal.paper.protocol",
    "EXPERIMENTS": "densecal.paper.reproduction",
    "Reproduction": "densecal.paper.reproduction",
    "reproduce": "densecal.paper.reproduction",
    "published_numbers": "densecal.paper.published",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'densecal.paper' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
