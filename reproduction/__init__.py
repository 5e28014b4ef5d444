"""The paper: its classifiers, training recipes, protocol, tables and figures.

``train`` and ``measure`` need torch and your own copy of the data; ``reproduce`` makes any table or figure from what
was measured.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "CLASSIFIERS": "reproduction.classifiers",
    "Classifier": "reproduction.classifiers",
    "find_classifier": "reproduction.classifiers",
    "Recipe": "reproduction.recipes",
    "train": "reproduction.training_run",
    "measure": "reproduction.measuring",
    "Measurements": "reproduction.measurements",
    "Protocol": "reproduction.protocol",
    "EXPERIMENTS": "reproduction.reproduction",
    "Reproduction": "reproduction.reproduction",
    "reproduce": "reproduction.reproduction",
    "published_numbers": "reproduction.published",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'reproduction' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
