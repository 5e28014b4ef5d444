"""State of a model that threads share: the modes of its modules, its device, its hooks and torch.compile's stance.

Several extractions may run one model at the same time. The first to enter a state sets it, the last to leave resets it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from densecal.torch.features.batches import device_of

_LOCK = threading.RLock()
_MODES: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()
"""How many extractions run a module, and its mode before the first."""
_DEVICES: WeakKeyDictionary[nn.Module, tuple[int, torch.device, torch.device]] = WeakKeyDictionary()
"""How many extractions run a model, on which device, and its device before the first."""


def hooks_lock() -> AbstractContextManager[object]:
    """Return the lock under which hooks are added and removed: torch numbers them without one."""
    return _LOCK


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode, and restore its mode when the last of several users has left."""
    with _LOCK:
        modules = list(model.modules())
        for module in modules:
            users, mode = _MODES.get(module, (0, module.training))
            _MODES[module] = (users + 1, mode)
        model.eval()
    try:
        yield
    finally:
        with _LOCK:
            for module in modules:
                users, mode = _MODES.pop(module)
                if users > 1:
                    _MODES[module] = (users - 1, mode)
                else:
                    module.training = mode


@contextmanager
def on_device(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Move the model to a device, and back when the last of several users has left."""
    with _LOCK:
        users, current, home = _DEVICES.get(model, (0, device, device_of(model)))
        if users and current != device:
            raise RuntimeError(
                f"The model is in use on {current} by another thread, so it cannot run on {device}. Pass the same "
                "device, or a copy of the model."
            )
        _DEVICES[model] = (users + 1, device, home)
        if device_of(model) != device:
            model.to(device)
    try:
        yield
    finally:
        with _LOCK:
            users, *_ = _DEVICES.pop(model)
            if users > 1:
                _DEVICES[model] = (users - 1, device, home)
            elif home != device:
                model.to(home)


class _Uncompiled:
    """The stance of torch.compile is global: the first thread to enter sets it, the last one to leave resets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._stance: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._stance = torch.compiler.set_stance("force_eager")
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stance.__exit__(None, None, None)


_UNCOMPILED = _Uncompiled()


def uncompiled() -> AbstractContextManager[None]:
    """Return a context in which compiled modules run uncompiled, because compiled code ignores new hooks."""
    # If torch._dynamo, which takes seconds to import, is not loaded, nothing has been compiled.
    return _UNCOMPILED if "torch._dynamo" in sys.modules else nullcontext()
