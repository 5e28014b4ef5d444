"""Hooks that pool the outputs of layers while a classifier runs, and the state of a model that threads share.

An output is pooled as soon as its layer has run, so that no feature map is kept. Several extractions may run one model
at the same time: the first to enter a state of it (modes, device) sets it, the last to leave resets it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from densecal.torch.batches import device_of
from densecal.torch.features.layout import Layout, first_tensor

LOCK = threading.RLock()
"""Held while hooks are added or removed, which torch does without a lock, and while a shared state changes."""
Reset = Callable[[], object]
_Users = WeakKeyDictionary[nn.Module, tuple[int, Reset]]
"""The number of extractions that share the state of a model, and the function that resets it."""
_EVALUATED, _MOVED, _COMPILED = _Users(), _Users(), _Users()
_ANY_MODEL = nn.Identity()
"""The stance of torch.compile is that of all models."""


class LayerCapture:
    """Captures the pooled features of some layers of a model until it is removed.

    Features are captured per thread, so threads may share a model.
    """

    def __init__(self, model: nn.Module, layouts: Mapping[str, Layout]) -> None:
        self.layouts = dict(layouts)
        self._current = _PerThread()
        self._handles: list[RemovableHandle] = []
        with LOCK:
            for name, layout in self.layouts.items():
                hook = _Hook(name, layout, self._current)
                self._handles.append(model.get_submodule(name).register_forward_hook(hook))

    def reading(self, mask: Tensor | None = None) -> Self:
        """Return a context whose dict the next forward pass fills, in the order in which the layers run."""
        self._current.mask = mask
        return self

    def __enter__(self) -> dict[str, Tensor]:
        features: dict[str, Tensor] = {}  # torch.compile cannot trace dict[str, Tensor]().
        self._current.features = features
        return features

    def __exit__(self, *_: object) -> None:
        self._current.features = self._current.mask = None

    def ordered(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the features in the order of the layouts; raise if a layer did not run."""
        missing = [name for name in self.layouts if name not in features]
        if missing:
            raise ValueError(
                f"The layers {missing} did not run in this forward pass, so they have no features. Choose layers that "
                "run for every input."
            )
        return {name: features[name] for name in self.layouts}

    def __del__(self) -> None:
        # A deleted calibrated model must leave no hooks on the classifier.
        self.remove()

    def remove(self) -> None:
        """Remove every hook from the model."""
        with LOCK:
            for handle in self._handles:
                handle.remove()
            self._handles.clear()


class _PerThread(threading.local):
    def __init__(self) -> None:
        # Called in every thread. Older torch.compile would read class attributes instead of these.
        self.features: dict[str, Tensor] | None = None
        self.mask: Tensor | None = None

    def __reduce__(self) -> tuple[type[_PerThread], tuple[()]]:
        # A copied or pickled model has its own state.
        return _PerThread, ()


class _Hook:
    def __init__(self, name: str, layout: Layout, current: _PerThread) -> None:
        self.name, self.layout, self.current = name, layout, current

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        features = self.current.features
        if features is None:
            return
        if self.name in features:
            raise ValueError(
                f"The layer {self.name!r} ran twice in one forward pass, so its features are ambiguous. Choose one "
                "of the modules around it instead."
            )
        tensor = first_tensor(output)
        if tensor is None:
            raise TypeError(f"The layer {self.name!r} returned {type(output).__name__}, which contains no tensor.")
        features[self.name] = self.layout.pool(tensor.detach(), self.current.mask)


@contextmanager
def _sharing(users: _Users, model: nn.Module, enter: Callable[[], Reset]) -> Iterator[int]:
    """Yield the number of those who share the state already."""
    with LOCK:
        count, reset = users.get(model) or (0, enter())
        users[model] = (count + 1, reset)
    try:
        yield count
    finally:
        with LOCK:
            count, reset = users.pop(model)
            if count > 1:
                users[model] = (count - 1, reset)
            else:
                reset()


def evaluating(model: nn.Module) -> AbstractContextManager[object]:
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

    with _sharing(_MOVED, model, enter) as users:
        if users and device_of(model).type != device.type:
            raise RuntimeError(
                f"The model is in use on {device_of(model)} by another thread, so it cannot run on {device}. Pass the "
                "same device, or a copy of the model."
            )
        yield


def uncompiled() -> AbstractContextManager[object]:
    """Return a context in which compiled modules run uncompiled, because compiled code ignores new hooks."""
    # If torch._dynamo, which takes seconds to import, is not loaded, nothing has been compiled.
    if "torch._dynamo" not in sys.modules:
        return nullcontext()

    def enter() -> Reset:
        stance = torch.compiler.set_stance("force_eager")
        return lambda: stance.__exit__(None, None, None)

    return _sharing(_COMPILED, _ANY_MODEL, enter)
