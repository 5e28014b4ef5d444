"""Domains of perturbed inputs other than images: tables and token ids.

A fit with ``shifted=`` learns from labelled data under several shifts. For images there is `perturb`; these functions
make named domains from tables and texts. Run the classifier on each of them and pass ``{name: outputs}`` to ``fit``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from densecal.arrays.checks import check_choice
from densecal.errors import warn_user

STRENGTHS: Mapping[str, float] = MappingProxyType({"weak": 0.15, "medium": 0.4, "strong": 0.8})
"""The fraction of cells or tokens that is changed."""
Missing: TypeAlias = Literal["typical", "nan"]
Table = TypeVar("Table", pd.DataFrame, NDArray[Any])


def table_domains(table: Table, *, missing: Missing = "typical", seed: int = 0) -> dict[str, Table]:
    """Return perturbed copies of a table by name: noise, shuffled columns and missing values at three strengths.

    Parameters
    ----------
    table : DataFrame or array of shape (n_samples, n_columns)
        The inputs of the validation set, before they are encoded.
    missing : {"typical", "nan"}
        The replacement of missing values: ``"typical"`` is the mean of a numeric column and the most frequent value of
        any other; ``"nan"`` is for classifiers that accept NaN.
    seed : int
        Seed of the perturbations.

    Returns
    -------
    dict
        ``"noise/weak"``, ... ``"missing/strong"``: copies of the table with the same rows. The strength is the fraction
        of cells that change: 15, 40 or 80 %. Noise has one standard deviation of the column and changes numeric columns
        only; numbers stored as text are categories. A table without a numeric column has no noise.

    Examples
    --------
    >>> copies = table_domains(np.arange(20.0).reshape(10, 2))
    >>> list(copies)[:3], copies["noise/weak"].shape
    (['noise/weak', 'noise/medium', 'noise/strong'], (10, 2))
    """
    check_choice("missing", missing, Missing)
    if issparse(table):
        raise TypeError(
            "table must be a DataFrame or an array, got a sparse matrix. Noise leaves few zeros, so the copies are "
            "dense: pass table.toarray(), or the columns before they are encoded."
        )
    if len(np.shape(table)) != 2:
        raise ValueError(
            f"table must have shape (n_samples, n_columns), got {np.shape(table)}. A single column is passed as "
            "frame[[name]] or array.reshape(-1, 1). Texts are perturbed as token ids, by token_domains."
        )
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table))
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    kinds = ["noise", "shuffled", "missing"]
    if not any(_is_number(_as_numbers(values)) for values in columns):
        kinds.remove("noise")
        warn_user(
            "table_domains: no column is numeric, so no copies have noise. Numbers that are stored as text are "
            "converted by pandas.to_numeric or array.astype(float)."
        )
    rng = np.random.default_rng(seed)
    domains = {}
    for kind in kinds:
        for name, share in STRENGTHS.items():
            copy = pd.concat([_perturbed(values, kind, share, missing, rng) for values in columns], axis=1)
            domains[f"{kind}/{name}"] = copy if isinstance(table, pd.DataFrame) else copy.to_numpy()
    return domains


def _is_number(values: pd.Series[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def _as_numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of objects that are numbers as a column of numbers, and any other column unchanged."""
    inferred = column.infer_objects()
    return inferred if _is_number(inferred) else column


def _perturbed(
    column: pd.Series[Any], kind: str, share: float, missing: str, rng: np.random.Generator
) -> pd.Series[Any]:
    """Return a column of the same type with a share of its values changed; whole numbers may become others."""
    values = _as_numbers(column)
    is_number = _is_number(values)
    if is_number and pd.api.types.is_extension_array_dtype(values):
        values = values.astype("Float64")  # integer columns with pd.NA cannot hold other numbers
    new = values
    if kind == "shuffled":
        new = values.iloc[rng.permutation(len(values))].set_axis(values.index)
    elif kind == "missing":
        typical = values.mean() if is_number else next(iter(values.mode()), np.nan)
        new = pd.Series([np.nan if missing == "nan" else typical] * len(values), index=values.index)
    elif is_number:
        new = values + rng.normal(0, values.std(ddof=0), len(values))
    mixed = values.where(rng.random(len(values)) >= share, new)
    if column.dtype == object:
        return mixed.astype(object)
    return mixed.astype(values.dtype) if values.dtype.kind == "f" else mixed


def token_domains(
    tokens: NDArray[np.integer[Any]],
    *,
    pad_id: int,
    mask_id: int | None = None,
    special_ids: Collection[int] = (),
    seed: int = 0,
) -> dict[str, NDArray[np.integer[Any]]]:
    """Return perturbed copies of texts by name: tokens dropped, masked and replaced at three strengths.

    Parameters
    ----------
    tokens : array of shape (n_samples, length)
        Token ids of the validation texts, padded on the right.
    pad_id : int
        The id of the padding; the attention mask of a copy is ``ids != pad_id``.
    mask_id : int, optional
        The id of the tokenizer's mask token. Without it no tokens are masked.
    special_ids : collection of int
        Ids that are never changed, such as those at the start and the end of a text.
    seed : int
        Seed of the perturbations.

    Returns
    -------
    dict
        ``"dropped/weak"``, ... ``"replaced/strong"``: copies of the same shape. Replacements are tokens of other texts.

    Examples
    --------
    >>> tokens = np.array([[101, 7, 8, 9, 102, 0], [101, 5, 6, 102, 0, 0]])
    >>> copies = token_domains(tokens, pad_id=0, mask_id=103, special_ids=(101, 102))
    >>> list(copies)[3], copies["masked/strong"].tolist()
    ('masked/weak', [[101, 103, 103, 103, 102, 0], [101, 5, 103, 102, 0, 0]])
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        raise ValueError(f"tokens must be integers of shape (n_samples, length), got {tokens.dtype} {tokens.shape}.")
    is_padding = tokens == pad_id
    if (is_padding[:, :-1] & ~is_padding[:, 1:]).any():
        raise ValueError(
            f"tokens must be padded on the right, but pad_id {pad_id} stands before other tokens. Pass the id of the "
            "padding, and for texts padded on the left tokens[:, ::-1], and reverse the copies."
        )
    rng = np.random.default_rng(seed)
    free = ~np.isin(tokens, [pad_id, *special_ids])
    kinds = ("dropped", "replaced") if mask_id is None else ("dropped", "masked", "replaced")
    domains = {}
    for kind in kinds:
        for name, share in STRENGTHS.items():
            changed = free & (rng.random(tokens.shape) < share)
            if kind == "replaced":
                new = rng.choice(tokens[free], tokens.shape)
            else:
                new = np.array(pad_id if kind == "dropped" else mask_id)
            copy = np.where(changed, new, tokens).astype(tokens.dtype)
            if kind == "dropped":  # the padding in their place moves to the end
                copy = np.take_along_axis(copy, np.argsort(changed, axis=1, kind="stable"), axis=1)
            domains[f"{kind}/{name}"] = copy
    return domains
