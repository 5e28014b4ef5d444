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

    Rows 0 to ``n_clean`` - 1 are the clean samples. Those of the shifted samples, whose domains are named, follow.
    """
    rng = np.random.default_rng(seed)
    domains = rows_by_domain(names)
    weight = min(1.0, MOST_WEIGHT / len(domains))
    shifted = [Domain(kind_of(names[rows[0]]), n_clean + rows, weight) for rows in domains]
    return shifted + [_mixture(shifted, n_clean, number, rng) for number in range(MIXTURES)]


def rows_by_domain(names: Sequence[str]) -> list[Any]:
    """Return the rows of each domain. Small domains of one kind are joined, and then those that are still small."""
    domains, rest = list[Any](), np.arange(len(names))
    for group_of in (str, kind_of, lambda name: ""):
        of_rest = np.array([group_of(names[row]) for row in rest.tolist()], dtype=str)
        found, place = np.unique(of_rest, return_inverse=True)
        groups = [rest[place == number] for number in range(len(found))]
        domains += [rows for rows in groups if len(rows) >= FEWEST_SAMPLES]
        rest = np.concatenate([rest[:0], *(rows for rows in groups if len(rows) < FEWEST_SAMPLES)])
    return domains or [rest]


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
