"""Calibrated models whose ``forward`` has the signature of the classifier's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn


@cache
def class_with_signature(base: type, classifier: type, name: str) -> type:
    """Return a subclass of the base whose ``forward`` has the signature of the classifier's.

    ``torch.export``, MLflow and the Trainer of transformers read the inputs of the model from it.
    """
    call: Callable[..., object] = base.forward  # type: ignore[attr-defined]

    def forward(self: Any, *args: object, **kwargs: object) -> object:
        return call(self, *args, **kwargs)

    def reduce(self: Any) -> tuple[object, ...]:
        return _unpickled, (base, classifier, name), self.__dict__

    try:
        forward.__signature__ = inspect.signature(classifier.forward)  # type: ignore[attr-defined]
    except (TypeError, ValueError):  # A scripted module has no signature.
        return base
    forward.__doc__ = call.__doc__
    members = {"forward": forward, "__reduce__": reduce, "__module__": base.__module__, "__doc__": base.__doc__}
    return type(name, (base,), members)


def _unpickled(base: type, classifier: type, name: str) -> nn.Module:
    """Return an empty instance of such a class, which cannot be imported by name."""
    found: Any = class_with_signature(base, classifier, name)
    module: nn.Module = found.__new__(found)
    return module
