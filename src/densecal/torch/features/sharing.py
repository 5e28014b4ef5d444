"""State of a model that threads share: the modes of its modules, its device, its hooks and torch.compile's stance.

Several extractions may run one model at the same time. The first to enter a state sets it, the last to leave resets it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from weakref import WeakKeyDictionary

import torch
from torch import nn

from densecal.torch.features.batches import device_of

_LOCK = threading.RLock()
Reset = Callable[[], object]
_Users = WeakKeyDictionary[nn.Module, tuple[int, Reset]]
"""How many extractions share the state of a model, and what resets it."""
_EVALUATED, _MOVED, _COMPILED = _Users(), _Users(), _Users()
_ANY_MODEL = nn.Identity()
"""The stance of torch.compile is that of all models."""


def hooks_lock() -> AbstractContextManager[object]:
    """Return the lock under which hooks are added and removed: torch numbers them without one."""
    return _LOCK


@contextmanager
def _sharing(users: _Users, model: nn.Module, enter: Callable[[], Reset]) -> Iterator[None]:
    with _LOCK:
        count, reset = users.get(model) or (0, enter())
        users[model] = (count + 1, reset)
    try:
        yield
    finally:
        with _LOCK:
            count, reset = users.pop(model)
            if count > 1:
                users[model] = (count - 1, reset)
            else:
                reset()


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which every module is in evaluation mode; it has its own mode again afterwards."""

    def enter() -> Reset:
        modes = {module: module.training for module in model.modules()}
        model.eval()

        def reset() -> None:
            for module, mode in modes.items():
                module.training = mode

        return reset

    return _sharing(_EVALUATED, model, enter)


@contextmanager
def on_device(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Move the model to a device, and back when the last of several users has left."""

    def enter() -> Reset:
        home = device_of(model)
        if home == device:
            return lambda: None
        model.to(device)
        return lambda: model.to(home)

    with ExitStack() as stack:
        with _LOCK:
            if model in _MOVED and device_of(model) != device:
                raise RuntimeError(
                    f"The model is in use on {device_of(model)} by another thread, so it cannot run on {device}. Pass "
                    "the same device, or a copy of the model."
                )
            stack.enter_context(_sharing(_MOVED, model, enter))
        yield


def uncompiled() -> AbstractContextManager[None]:
    """Return a context in which compiled modules run uncompiled, because compiled code ignores new hooks."""
    # If torch._dynamo, which takes seconds to import, is not loaded, nothing has been compiled.
    if "torch._dynamo" not in sys.modules:
        return nullcontext()

    def enter() -> Reset:
        stance = torch.compiler.set_stance("force_eager")
        return lambda: stance.__exit__(None, None, None)

    return _sharing(_COMPILED, _ANY_MODEL, enter)
