"""Centres of the training features: spherical k-means, and distances to the nearest centre."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from densecal.arrays import Array, asarray_like, is_torch, namespace, row_blocks, to_numpy
from densecal.density.defaults import DEFAULT_MEMORY_BUDGET, Centres, choose_centres
from densecal.density.sample import FeatureSample

N_ITERATIONS = 12
"""Iterations of k-means. ``reproduction/studies/centres.py`` compares other numbers."""
PRODUCT_BYTES = 4 << 20
"""Products of this size stay in the cache of a CPU until their maximum is found, which saves a third of the time."""

_Map = Callable[[Callable[[slice], tuple[Array, Array]], Iterable[slice]], Iterable[tuple[Array, Array]]]
_lock = threading.Lock()


def find_centres(
    sample: FeatureSample, wanted: Centres, memory_budget: int
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the centres of each layer of a sample, and the number of training samples around each."""
    number = choose_centres(sample.n_seen, wanted)
    centres, counts = {}, {}
    for layer, rows in sample.rows().items():
        found, in_sample = spherical_kmeans(rows, number, memory_budget=memory_budget)
        centres[layer], counts[layer] = rounded(found), in_sample * (sample.n_seen / rows.shape[0])
    return centres, counts


def spherical_kmeans(
    rows: Array,
    n_centres: int,
    *,
    weights: Array | None = None,
    n_iterations: int = N_ITERATIONS,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> tuple[Array, Array]:
    """Return at most ``n_centres`` unit vectors, and the total weight of the rows assigned to each.

    The rows are unit vectors in a random order: the first are the initial centres. All-zero rows have no direction and
    are ignored. A centre without rows moves to the row that is farthest from its own centre, and is dropped at the end.
    """
    xp = namespace(rows)
    has_direction = xp.any(rows != 0, axis=1)
    if not bool(xp.any(has_direction)):
        return xp.astype(rows[:1], xp.float32), xp.ones_like(rows[:1, 0], dtype=xp.float32)
    rows = rows[has_direction]
    weights = xp.ones_like(rows[:, 0], dtype=xp.float32) if weights is None else weights[has_direction]
    centres = xp.astype(rows[:n_centres], xp.float32)
    before = None
    with _threads(rows) as each:
        for step in range(n_iterations):
            nearest, similarity = _assign(rows, centres, memory_budget, each)
            sums, counts = _sum_by_centre(rows, nearest, weights, centres.shape[0], memory_budget)
            norms = xp.sqrt(xp.sum(sums * sums, axis=1, keepdims=True))
            centres = xp.where(norms > 0, sums / xp.where(norms > 0, norms, xp.ones_like(norms)), centres)
            if (before is not None and bool(xp.all(nearest == before))) or step == n_iterations - 1:
                break
            before = nearest
            empty = np.flatnonzero(to_numpy(counts) == 0)
            if empty.size:
                centres[empty] = xp.astype(rows[xp.argsort(similarity)[: empty.size]], xp.float32)
    return centres[counts > 0], counts[counts > 0]


def merge_centres(vectors: Sequence[Array], weights: Sequence[Array]) -> tuple[Array, Array]:
    """Return the centres and weights of several sets of centres, as many as the largest set has."""
    first = vectors[0]
    xp = namespace(first)
    joined = xp.concat([asarray_like(one, first) for one in vectors])
    weight = xp.concat([asarray_like(one, first) for one in weights])
    # The initial centres are drawn in proportion to the number of training samples around them.
    draw = np.random.default_rng(0).exponential(size=joined.shape[0])
    order = np.argsort(draw / np.maximum(to_numpy(weight), 1e-12))
    return spherical_kmeans(joined[order], max(map(len, vectors)), weights=weight[order])


def rounded(centres: Array) -> Array:
    """Round centres to float16, the precision of a saved bank, and return them in float32."""
    xp = namespace(centres)
    return xp.astype(xp.astype(centres, xp.float16), xp.float32)


def nearest_distances(queries: Array, centres: Array, memory_budget: int = DEFAULT_MEMORY_BUDGET) -> Array:
    """Return the distance of unit vectors to their nearest centre, of shape (n_queries,).

    An all-zero vector is treated as orthogonal to all others.
    """
    xp, centres = namespace(queries), asarray_like(centres, queries)
    nearest, _ = _assign(queries, centres, memory_budget)
    is_zero = ~xp.any(centres != 0, axis=1)
    found = []
    for block in _blocks(queries.shape[0], 8 * queries.shape[1], memory_budget):
        own, centre = queries[block], centres[nearest[block]]
        # The difference is accurate for near vectors too. Between an all-zero vector and a unit vector it is 1, not 2.
        missing = is_zero[nearest[block]] | ~xp.any(own != 0, axis=1)
        squared = xp.sum((own - centre) ** 2, axis=1)
        found.append(xp.sqrt(xp.where(missing, xp.full_like(squared, 2.0), squared)))
    return xp.concat(found)


@contextmanager
def _threads(rows: Array) -> Iterator[_Map]:
    """Yield a map that runs on as many threads as NumPy's products, each with products of its own.

    The threads of one product wait for each other, in a loop and after every block.
    """
    if is_torch(rows):
        yield map
        return
    with _lock:  # A second limit at the same time would restore the first one.
        blas = ThreadpoolController().select(user_api="blas")
        n_threads = max((library["num_threads"] for library in blas.info()), default=1)
        with blas.limit(limits=1), ThreadPoolExecutor(n_threads) as pool:
            yield pool.map


def _assign(rows: Array, centres: Array, memory_budget: int, each: _Map = map) -> tuple[Array, Array]:
    """Return the nearest centre of each row, and the product of the two."""
    xp = namespace(rows)
    # |x - c|^2 = |x|^2 + |c|^2 - 2 x c, where rounded centres are not quite of length one.
    offsets = xp.sum(centres * centres, axis=1) / 2

    def assign(block: slice) -> tuple[Array, Array]:
        found = xp.astype(rows[block], xp.float32) @ centres.T
        found -= offsets
        best = xp.argmax(found, axis=1)
        return best, xp.take_along_axis(found, best[:, None], axis=1)[:, 0]

    if each is not map:
        memory_budget = min(memory_budget, PRODUCT_BYTES)
    blocks = _blocks(rows.shape[0], 8 * centres.shape[0] + 4 * rows.shape[1], memory_budget)
    nearest, products = zip(*each(assign, blocks), strict=True)
    return xp.concat(nearest), xp.concat(products)


def _blocks(n_rows: int, bytes_per_row: int, memory_budget: int) -> list[slice]:
    return list(row_blocks(n_rows, bytes_per_row, memory_budget)) or [slice(0)]


def _sum_by_centre(
    rows: Array, nearest: Array, weights: Array, n_centres: int, memory_budget: int
) -> tuple[Array, Array]:
    """Return the weighted sum and the total weight of the rows of each centre."""
    if is_torch(rows):
        import torch

        sums = torch.zeros((n_centres, rows.shape[1]), device=rows.device)
        for block in row_blocks(len(rows), 8 * rows.shape[1], memory_budget):
            sums.index_add_(0, nearest[block], rows[block].float() * weights[block, None])
        return sums, torch.bincount(nearest, weights=weights, minlength=n_centres).float()
    from scipy.sparse import csr_array

    total: Any = np.zeros((n_centres, rows.shape[1]), np.float32)
    for block in row_blocks(len(rows), 8 * rows.shape[1], memory_budget):
        members = nearest[block]
        chosen = csr_array((weights[block], (members, np.arange(len(members)))), shape=(n_centres, len(members)))
        total += chosen @ rows[block].astype(np.float32)
    return total, np.bincount(nearest, weights=weights, minlength=n_centres).astype(np.float32)
