"""Checks of the classifier, and its names without the prefixes of torch.compile and data-parallel wrappers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn

COMPILED = "_orig_mod"
PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def check_module(model: object) -> None:
    """Raise unless the classifier is a module of Python code."""
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("The classifier is a ScriptModule, which has no hooks for its layers. Pass the eager module.")
    if not isinstance(model, nn.Module):
        hint = " Build the network and load the weights into it first." if isinstance(model, Mapping | str) else ""
        raise TypeError(f"The classifier must be an nn.Module, got {type(model).__name__}.{hint}")


def unwrapped(model: nn.Module) -> tuple[nn.Module, str]:
    """Return the classifier inside torch's wrappers, and the prefix that they add to its names."""
    prefix = ""
    while (is_parallel := isinstance(model, PARALLEL)) or COMPILED in model._modules:
        child = "module" if is_parallel else COMPILED
        model, prefix = model.get_submodule(child), f"{prefix}{child}."
    return model, prefix


def runs_compiled(module: nn.Module) -> bool:
    """Return whether the module was compiled, by ``torch.compile`` or in place by ``.compile()``."""
    return COMPILED in module._modules or module._compiled_call_impl is not None


def bare_names(model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Return the name in the unwrapped classifier for each name in the model."""
    prefix = unwrapped(model)[1]
    # A submodule may be compiled on its own.
    return {name: name.removeprefix(prefix).replace(f"{COMPILED}.", "") for name in names}


def find_layers(model: nn.Module, layers: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return for each layer its name in the unwrapped classifier and in the model.

    A layer may be named as in the model or as in the unwrapped classifier.
    """
    bare = bare_names(model, (name for name, _ in model.named_modules()))
    places = {own: name for name, own in bare.items()}
    found = {}
    for layer in layers:
        meanings = {own: places[own] for own in (layer, bare.get(layer)) if own in places}
        if len(meanings) != 1:
            why = f"matches all of {sorted(meanings)}" if meanings else "does not exist"
            raise ValueError(
                f"The layer {layer!r} cannot be found in this {type(unwrapped(model)[0]).__name__}: the name {why}."
            )
        found[layer] = next(iter(meanings.items()))
    return found


def check_no_replicas(classifier: nn.Module) -> None:
    """Raise for DataParallel on several GPUs, which runs replicas of the layers."""
    for module in classifier.modules():
        if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
            raise ValueError(
                f"DataParallel runs replicas of the classifier on {len(module.device_ids)} GPUs, whose layers cannot "
                "be read. Pass the classifier itself, DataParallel(...).module, and use one process per GPU."
            )
