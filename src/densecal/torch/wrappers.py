"""The names of layers and weights without what torch.compile and the data-parallel wrappers put into them."""

from __future__ import annotations

COMPILED = "_orig_mod."
PARALLEL = "module."


def bare_name(name: str) -> str:
    """Return the name that a layer or a weight has in the classifier itself.

    Examples
    --------
    >>> bare_name("module._orig_mod.layer1.0")
    'layer1.0'
    """
    # A part of a classifier may be compiled too; the data-parallel wrappers go around the whole.
    name = name.replace(COMPILED, "")
    while name.startswith(PARALLEL):
        name = name.removeprefix(PARALLEL)
    return name
