"""The names of layers and weights without what torch.compile and the data-parallel wrappers put into them."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

COMPILED = "_orig_mod"
PARALLEL = "module"


def unwrapped(model: nn.Module) -> tuple[nn.Module, str]:
    """Return the classifier within its wrappers, and what they put before the names in it.

    Examples
    --------
    >>> unwrapped(nn.DataParallel(nn.ReLU()))
    (ReLU(), 'module.')
    """
    prefix = ""
    while (child := _wrapped_as(model)) is not None:
        model, prefix = model.get_submodule(child), f"{prefix}{child}."
    return model, prefix


def _wrapped_as(model: nn.Module) -> str | None:
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return PARALLEL
    return COMPILED if is_compiled(model) else None


def is_compiled(model: nn.Module) -> bool:
    """Return whether this is what torch.compile makes of a module.

    Examples
    --------
    >>> is_compiled(nn.ReLU())
    False
    """
    return COMPILED in model._modules


def runs_compiled(module: nn.Module) -> bool:
    """Return whether a call of the module runs what torch.compile made of it, by ``torch.compile`` or ``.compile()``.

    Examples
    --------
    >>> runs_compiled(nn.ReLU())
    False
    """
    return is_compiled(module) or module._compiled_call_impl is not None


def bare_names(model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Return for each name what it is in the classifier itself.

    Examples
    --------
    >>> bare_names(nn.DataParallel(nn.Linear(1, 2)), ["module.weight"])
    {'module.weight': 'weight'}
    """
    prefix = unwrapped(model)[1]
    # A part of a classifier may be compiled by itself.
    return {name: name.removeprefix(prefix).replace(f"{COMPILED}.", "") for name in names}


def old_name(name: str) -> str:
    """Return a name as the first releases wrote it, without anything that looks like a wrapper's.

    Examples
    --------
    >>> old_name("module._orig_mod.layer1.0")
    'layer1.0'
    """
    name = name.replace(f"{COMPILED}.", "")
    while name.startswith(f"{PARALLEL}."):
        name = name.removeprefix(f"{PARALLEL}.")
    return name


def find_layers(model: nn.Module, layers: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return for each layer its name in the classifier itself and the one to get it by from the wrapped classifier.

    Parameters
    ----------
    model : nn.Module
        The classifier, in whatever wrapper.
    layers : iterable of str
        Names in this classifier, or in the same one in another wrapper or in none.

    Examples
    --------
    >>> find_layers(nn.DataParallel(nn.Sequential(nn.ReLU())), ["0"])
    {'0': ('0', 'module.0')}
    """
    bare = bare_names(model, (name for name, _ in model.named_modules()))
    by_bare = {own: name for name, own in bare.items()}
    found = {}
    for layer in layers:
        meanings = {own: by_bare[own] for own in (layer, bare.get(layer)) if own in by_bare}
        if not meanings and old_name(layer) in by_bare:
            meanings = {old_name(layer): by_bare[old_name(layer)]}
        if len(meanings) != 1:
            said = f"means any of {sorted(meanings)}" if meanings else "is not in it"
            raise ValueError(
                f"The layer {layer!r} cannot be found in this {type(unwrapped(model)[0]).__name__}: the name {said}."
            )
        found[layer] = next(iter(meanings.items()))
    return found


def refuse_replicas(classifier: nn.Module) -> None:
    """Refuse a classifier whose layers run in copies."""
    for module in classifier.modules():
        if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
            raise ValueError(
                f"DataParallel runs copies of the classifier on {len(module.device_ids)} GPUs, whose layers cannot be "
                "read from here. Pass the classifier itself, DataParallel(...).module, and one process for each GPU."
            )
