"""The labelled shifted samples that ``CalibratedClassifier.fit`` takes, by their domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sklearn.utils.validation import _num_samples

Domains: TypeAlias = dict[str | None, tuple[Any, Any]]
"""Samples and labels by the name of the domain, which is None for samples that are not named."""


def read_domains(X: Any, y: Any) -> Domains | None:
    """Return the shifted samples and their labels; one array of labels may serve all domains."""
    if (X is None) != (y is None):
        raise ValueError("X_shifted and y_shifted must be passed together.")
    if X is None:
        return None
    is_list_of_tables = isinstance(X, list) and bool(X) and hasattr(X[0], "shape") and len(X[0].shape) > 1
    if is_list_of_tables or (isinstance(y, Mapping) and (not isinstance(X, Mapping) or X.keys() != y.keys())):
        raise ValueError(
            "X_shifted and y_shifted must be two arrays, or two mappings with the same names of domains: "
            "X_shifted={'night/weak': X1, ...}, y_shifted={'night/weak': y1, ...}."
        )
    samples: Mapping[str | None, Any] = X if isinstance(X, Mapping) else {None: X}
    domains = {name: (one, y[name] if isinstance(y, Mapping) else y) for name, one in samples.items()}
    for name, (one, labels) in domains.items():
        if _num_samples(one) != _num_samples(labels):
            place = "X_shifted" if name is None else f"X_shifted[{name!r}]"
            raise ValueError(
                f"{place} has {_num_samples(one)} samples, but y_shifted has {_num_samples(labels)} labels for it. "
                "Pass one array of labels if all domains have the same rows, or else a mapping from the names of the "
                "domains to their labels."
            )
    return domains


def find_copies(domains: Domains | None, X: Any) -> dict[str | None, Any]:
    """Return the domains that have as many rows as X."""
    return {name: one for name, (one, _) in (domains or {}).items() if _num_samples(one) == _num_samples(X)}
