"""Exact k-th neighbour distances for many queries at once, several k in one go.

``torch.topk`` over a bank of 45,000 runs one thread block a row through many passes and takes minutes for a million
queries. Here the bank is cut into groups: the k largest similarities lie in the k groups with the largest maxima.
Both the choice of groups and the k-th value are found by bisection, which is counting, which is only memory traffic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

GROUP = 8
SPARE = 64  # groups beyond k that ties may add before a row is handed to topk


def kth_largest(values: Tensor, ks: Sequence[int]) -> Tensor:
    """Give the k-th largest value of each row, (rows, len(ks)); k counts from 1."""
    count, largest = values.shape[1], max(ks)
    groups = count // GROUP
    if groups < 2 * (largest + SPARE):
        top = values.topk(largest, dim=1).values
        return top[:, [k - 1 for k in ks]]
    body = values[:, : groups * GROUP].unflatten(1, (GROUP, groups))
    maxima = body.amax(1)
    floor, counts = _floors(maxima, largest)
    crowded = counts > largest + SPARE
    candidates = _candidates(body, maxima, torch.where(crowded, torch.inf, floor), largest + SPARE)
    candidates = torch.cat([candidates, values[:, groups * GROUP :]], 1)
    result = _select(candidates, ks, floor)
    if bool(crowded.any()):
        rows = crowded.nonzero()[:, 0]
        result[rows] = values[rows].topk(largest, dim=1).values[:, [k - 1 for k in ks]]
    return result


def _floors(maxima: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Bisect for a value that at least ``largest`` of each row's maxima reach, and few more."""
    low, high = maxima.amin(1), maxima.amax(1)
    counts = torch.full_like(low, maxima.shape[1], dtype=torch.long)
    for step in range(32):
        middle = (low + high) / 2
        reached = (maxima >= middle[:, None]).sum(1)
        enough = reached >= largest
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        counts = torch.where(enough, reached, counts)
        if step >= 9 and step % 3 == 0 and int(counts.max()) <= largest + SPARE:
            break
    return low, counts


def _candidates(body: Tensor, maxima: Tensor, floor: Tensor, slots: int) -> Tensor:
    """Collect the members of every group whose maximum reaches the row's floor, padded with -inf."""
    chosen = maxima >= floor[:, None]
    counts = chosen.sum(1)
    row, group = chosen.nonzero(as_tuple=True)
    slot = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    candidates = body.new_full((len(body), slots, GROUP), -torch.inf)
    candidates[row, slot] = body[row, :, group]
    return candidates.flatten(1)


def _select(candidates: Tensor, ks: Sequence[int], floor: Tensor) -> Tensor:
    """Bisect each k-th value among the candidates, the largest k first since its value bounds the others."""
    top = candidates.amax(1)
    found: dict[int, Tensor] = {}
    low = floor
    for k in sorted(set(ks), reverse=True):
        if k == 1:
            found[k] = top
            continue
        high = top
        for _ in range(16):
            middle = (low + high) / 2
            enough = (candidates >= middle[:, None]).sum(1) >= k
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        found[k] = torch.where(candidates >= low[:, None], candidates, torch.inf).amin(1)
        low = found[k]
    return torch.stack([found[k] for k in ks], 1)


@torch.no_grad()
def kth_distances(queries: Tensor, bank: Tensor, ks: Sequence[int], *, rows: int = 10_000) -> Tensor:
    """Give the Euclidean distances from unit queries to their k-th nearest unit bank vectors, (N, len(ks))."""
    parts = []
    for part in queries.split(rows):
        similarity = kth_largest(part @ bank.T, ks)
        parts.append((2 - 2 * similarity).clamp_min(0).sqrt())
    return torch.cat(parts)
