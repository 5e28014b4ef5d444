"""The model of ``densecal extract``: from torchvision, timm or the user's own code, and its weights."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densecal.cli.command import UsageError

if TYPE_CHECKING:
    from torch import nn

Pixels = tuple[tuple[float, float, float], tuple[float, float, float]]


def build_model(
    spec: str, num_classes: int, *, weights: Path | None = None, pretrained: bool = False
) -> tuple[nn.Module, Pixels | None]:
    """Return the model named by ``spec`` and, if the library provides them, the mean and std of its inputs."""
    library, _, name = spec.partition(":")
    pixels: Pixels | None = None
    if not name:
        raise UsageError(f"Unknown model {spec!r}. Use torchvision:NAME, timm:NAME or package.module:callable.")
    if library == "torchvision":
        model = _from_torchvision(name, num_classes, pretrained)
    elif library == "timm":
        model, pixels = _from_timm(name, num_classes, pretrained)
    else:
        model = _from_user(library, name, num_classes)
    if weights is not None:
        load_weights(model, weights)
    return model, pixels


def _from_torchvision(name: str, num_classes: int, pretrained: bool) -> nn.Module:
    from torchvision import models

    if name not in models.list_models():
        raise UsageError(f"torchvision has no model {name!r}. It has {', '.join(models.list_models()[:6])}, ...")
    # Pretrained weights fix the number of classes.
    options: dict[str, Any] = {"weights": "DEFAULT"} if pretrained else {"weights": None, "num_classes": num_classes}
    model: nn.Module = models.get_model(name, **options)
    return model


def _from_timm(name: str, num_classes: int, pretrained: bool) -> tuple[nn.Module, Pixels | None]:
    import timm

    options: dict[str, Any] = {} if pretrained else {"num_classes": num_classes}
    try:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
    except RuntimeError as error:
        raise UsageError(f"timm has no model {name!r}: {error}") from error
    if not pretrained:
        return model, None
    # Not every pretrained model was trained with ImageNet's usual normalisation.
    published: Any = model.pretrained_cfg
    return model, (tuple(published["mean"]), tuple(published["std"]))


def _from_user(module: str, name: str, num_classes: int) -> nn.Module:
    from torch import nn

    # Modules in the current folder can be imported, as with `python -m`.
    sys.path.insert(0, str(Path.cwd()))
    try:
        made: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ValueError(f"The module {module!r} of the model cannot be imported: {error}") from error
    except AttributeError:
        raise ValueError(f"The module {module!r} has no {name!r}.") from None
    finally:
        sys.path.pop(0)
    if isinstance(made, nn.Module):
        return made
    takes = inspect.signature(made).parameters
    model = made(num_classes=num_classes) if "num_classes" in takes else made()
    if not isinstance(model, nn.Module):
        raise TypeError(f"{module}:{name} must return a torch.nn.Module, got {type(model).__name__}.")
    return model


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a state_dict into a model; the prefix that `DataParallel` adds to names is removed."""
    import torch

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: --weights must name a file.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as weights (code is not unpickled): {error}") from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    state = {name.removeprefix("module."): value for name, value in state.items()}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = " ".join(str(error).split())
        raise ValueError(f"The weights in {path} do not match the model: {lines[:300]}") from error
