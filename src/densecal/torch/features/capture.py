"""Hooks that pool a layer's output as soon as it has run, so that no feature map is kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from densecal.torch.features.layout import Layout, first_tensor
from densecal.torch.features.sharing import hooks_lock


class LayerCapture:
    """Captures the pooled features of some layers of a model until it is removed.

    Features are captured per thread, so threads may share a model.
    """

    def __init__(self, model: nn.Module, layouts: Mapping[str, Layout]) -> None:
        self.layouts = dict(layouts)
        self._current = _PerThread()
        self._handles: list[RemovableHandle] = []
        with hooks_lock():
            for name, layout in self.layouts.items():
                hook = _Hook(name, layout, self._current)
                self._handles.append(model.get_submodule(name).register_forward_hook(hook))

    def reading(self, mask: Tensor | None = None) -> Self:
        """Return a context whose dict the next forward pass fills, in the order in which the layers run."""
        self._current.mask = mask
        return self

    def __enter__(self) -> dict[str, Tensor]:
        self._current.features = features = dict[str, Tensor]()
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
        with hooks_lock():
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
