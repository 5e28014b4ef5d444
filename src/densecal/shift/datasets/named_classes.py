"""Class names that are too many for a line of code: text files beside this one, a name a line."""

from __future__ import annotations

import functools
import importlib.resources


@functools.cache
def named_classes(file: str) -> tuple[str, ...]:
    """Read the class names of a file in this package.

    Examples
    --------
    >>> len(named_classes("imagenet_wnids.txt")), named_classes("cifar100_classes.txt")[:2]
    (1000, ('apple', 'aquarium_fish'))
    """
    text = (importlib.resources.files("densecal.shift.datasets") / file).read_text(encoding="utf-8")
    return tuple(text.split())
