"""Domains: groups of labelled data, each under one shift, from which the accuracy of new batches is learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

MOST_WEIGHT = 45
"""The largest weight of all domains together, so that many domains do not outweigh the mixtures."""
FEWEST_SAMPLES = 15
"""Smaller domains are joined, because their accuracy is too uncertain."""
MIXTURES = 40
MIXED_SHARE = (0.2, 0.8)


class Domain(NamedTuple):
    """The rows of a domain or of a mixture. Domains of one kind are held out together when the error is measured."""

    kind: str
    rows: Any
    weight: float = 1.0
    is_mixture: bool = False


def make_domains(names: Sequence[str], n_clean: int, seed: int = 0) -> list[Domain]:
    """Return groups of rows: the named domains, and mixtures of two domains or of a domain and clean samples.

    Parameters
    ----------
    names
        The domain of each shifted sample. The part before a ``/`` is the kind of shift.
    n_clean
        Rows 0 to ``n_clean`` - 1 are the clean samples; those of the shifted samples follow.
    seed
        Seed of the mixtures.
    """
    rng = np.random.default_rng(seed)
    domains = rows_by_domain(names)
    weight = min(1.0, MOST_WEIGHT / len(domains))
    shifted = [Domain(kind_of(names[rows[0]]), n_clean + rows, weight) for rows in domains]
    return shifted + [_mixture(shifted, n_clean, number, rng) for number in range(MIXTURES)]


def rows_by_domain(names: Sequence[str]) -> list[Any]:
    """Return the rows of each domain. Small domains of one kind are joined, and then those that are still small."""
    every = _rows_by(np.asarray(names, dtype=str), np.arange(len(names)))
    large, small = _split_by_size(every)
    by_kind, small = _split_by_size(_rows_by(np.array([kind_of(names[row]) for row in small], dtype=str), small))
    rest, too_few = _split_by_size([small] if len(small) else [])
    return large + by_kind + rest or [too_few]


def _rows_by(names: Any, rows: Any) -> list[Any]:
    found, place = np.unique(names, return_inverse=True)
    return [rows[place == number] for number in range(len(found))]


def _split_by_size(domains: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return the domains with enough samples, and the rows of the others."""
    small = [rows for rows in domains if len(rows) < FEWEST_SAMPLES]
    return [rows for rows in domains if len(rows) >= FEWEST_SAMPLES], np.concatenate([np.zeros(0, int), *small])


def _mixture(shifted: Sequence[Domain], n_clean: int, number: int, rng: np.random.Generator) -> Domain:
    """Mix a domain with clean samples or with another domain."""
    one = shifted[number % len(shifted)]
    other = np.arange(n_clean) if number % 2 else shifted[int(rng.integers(len(shifted)))].rows
    share, size = rng.uniform(*MIXED_SHARE), min(len(one.rows), len(other))
    counts = (max(1, round(share * size)), max(1, round((1 - share) * size)))
    parts = [rng.choice(rows, count, replace=False) for rows, count in zip((one.rows, other), counts, strict=True)]
    return Domain(one.kind, np.concatenate(parts), is_mixture=True)


def kind_of(name: str) -> str:
    """Return the kind of shift of a domain: the part of its name before a slash."""
    return name.partition("/")[0]
