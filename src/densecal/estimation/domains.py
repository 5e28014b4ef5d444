"""Domains: groups of labelled data, each under one shift, from which the accuracy of new batches is learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

CLEAN = "(clean)"
"""The kind of the clean groups, which no domain of a user has."""
CLEAN_GROUPS = 15
CLEAN_WEIGHT = 3.0
"""Weight of a clean group, where a domain has 1."""
MOST_WEIGHT = 45
"""Weight of all domains together, at most: however many there are, they do not outweigh the clean data."""
FEWEST_SAMPLES = 15
"""Smaller domains are not used on their own: their accuracy is too uncertain."""
MIXTURES = 40
MIXED_SHARE = (0.2, 0.8)


class Domain(NamedTuple):
    """Rows of one domain. Domains of the same kind are held out together when the error is measured."""

    kind: str
    rows: Any
    weight: float = 1.0


def make_domains(names: Sequence[str], n_clean: int, seed: int = 0) -> list[Domain]:
    """Return groups of rows: clean samples, the named domains, and mixtures of two.

    Parameters
    ----------
    names
        The domain of each shifted sample. The part before a ``/`` is the kind of shift.
    n_clean
        Rows 0 to ``n_clean`` - 1 are the clean samples; those of the shifted samples follow.
    seed
        Seed of the clean groups and the mixtures.
    """
    rng = np.random.default_rng(seed)
    domains = rows_by_domain(names)
    weight = min(1.0, MOST_WEIGHT / len(domains))
    shifted = [Domain(kind_of(names[rows[0]]), n_clean + rows, weight) for rows in domains]
    size = max(1, n_clean // 2)
    clean = [Domain(CLEAN, rng.choice(n_clean, size, replace=False), CLEAN_WEIGHT) for _ in range(CLEAN_GROUPS)]
    return clean + shifted + [_mixture(shifted, n_clean, number, rng) for number in range(MIXTURES)]


def rows_by_domain(names: Sequence[str]) -> list[Any]:
    """Return the rows of each domain with enough samples, or all rows together if there is none."""
    found, place = np.unique(np.asarray(names, dtype=str), return_inverse=True)
    domains = [np.flatnonzero(place == number) for number in range(len(found))]
    return [rows for rows in domains if len(rows) >= FEWEST_SAMPLES] or [np.arange(len(names))]


def _mixture(shifted: Sequence[Domain], n_clean: int, number: int, rng: np.random.Generator) -> Domain:
    """Mix a domain with clean samples or with another domain."""
    one = shifted[number % len(shifted)]
    other = np.arange(n_clean) if number % 2 else shifted[int(rng.integers(len(shifted)))].rows
    share, size = rng.uniform(*MIXED_SHARE), min(len(one.rows), len(other))
    counts = (max(1, round(share * size)), max(1, round((1 - share) * size)))
    parts = [rng.choice(rows, count, replace=False) for rows, count in zip((one.rows, other), counts, strict=True)]
    return Domain(one.kind, np.concatenate(parts))


def kind_of(name: str) -> str:
    """Return the kind of shift of a domain: the part of its name before a slash."""
    return name.partition("/")[0]
