"""Exact k-th neighbour distances with torch on any device: matrix product, selection, exact distance.

Selecting the k-th smallest of 45,000 distances costs far more than computing them. The row is therefore split into
groups, and only the k groups with the smallest minima are searched. They contain the k smallest values, because the
minimum of any other group is larger than k of the minima. The distance to the selected neighbour is then computed from
the difference of the two vectors, which is accurate even if they are close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from densecal.density import triton_kernels
from densecal.density.defaults import DEFAULT_MEMORY_BUDGET
from densecal.density.tensor_cores import (
    TABLE_ROWS,
    layer_columns,
    query_columns,
    table_part,
    table_widths,
)

DEFAULT_CUDA_BUDGET = 1 << 30
"""The default on a GPU: 512 queries in 6 layers of 45,000 samples fit in one block."""


def kth_distances(
    queries: Tensor, bank: Tensor, ks: Sequence[int], *, memory_budget: int = DEFAULT_MEMORY_BUDGET
) -> Tensor:
    """Return float32 distances to the k-th nearest rows of the bank, of shape (n_queries, len(ks)), accurate to 1e-3.

    Queries and bank are unit vectors, or zero vectors, which are treated as orthogonal to all others. The queries are
    searched in blocks that fit the memory budget.
    """
    with torch.inference_mode():
        found: Tensor = NeighborSearch([bank], ks, memory_budget=memory_budget)([queries])
    return found[:, 0]


class NeighborSearch(nn.Module):
    """Compute distances to the k-th neighbour in several layers at once. The bank is a buffer of the module.

    ``banks`` are the unit vectors of each layer in float32, or in float16 for half the memory and distances accurate to
    5e-4. The queries are searched in blocks that fit the memory budget, by default 256 MiB, or 1 GiB on a GPU. A
    compiled or exported search processes each batch as one block.
    """

    bank: Tensor
    layer_of_column: Tensor
    is_of_layer: Tensor
    offsets: Tensor
    table: Tensor | None
    table_columns: Tensor
    constants: Tensor
    layer_columns: Tensor
    centre: Tensor

    def __init__(self, banks: Sequence[Tensor], ks: Sequence[int], *, memory_budget: int | None = None) -> None:
        super().__init__()
        self.memory_budget = memory_budget
        self.widths = tuple(int(bank.shape[1]) for bank in banks)
        self.ks = tuple(int(k) for k in ks)
        dtype = torch.float16 if all(bank.dtype == torch.float16 for bank in banks) else torch.float32
        self.register_buffer("bank", torch.cat([bank.to(dtype) for bank in banks], dim=1))
        derived = ("layer_of_column", "is_of_layer", "offsets", "centre", "table", "table_columns", "constants")
        for name in (*derived, "layer_columns"):
            self.register_buffer(name, None, persistent=False)
        self.register_load_state_dict_post_hook(_prepare_again)  # type: ignore[no-untyped-call]
        self.prepare()

    def prepare(self, tensor_cores: bool | None = None) -> None:
        """Build the buffers derived from the bank. Called again when the module is moved, converted or loaded."""
        device = self.bank.device
        wide = torch.float64 if device.type in ("cpu", "cuda") else torch.float32
        layers = torch.arange(len(self.widths), device=device)
        self.layer_of_column = layers.repeat_interleave(torch.tensor(self.widths, device=device))
        self.is_of_layer = (self.layer_of_column[:, None] == layers).to(wide)
        parts = self._by_layer(self.bank)
        is_zero = torch.stack([(part == 0).all(dim=1) for part in parts])
        self.has_zero_rows = bool(is_zero.any())
        self.copies = 3 if self.bank.dtype == torch.float32 else 2
        lengths = torch.stack([part.float().square().sum(dim=1) for part in parts])
        self.offsets = (1 + lengths + is_zero)[:, None]
        self.table = None
        # Only CUDA, not ROCm, multiplies float16 with a float32 output.
        if (self.bank.is_cuda and torch.version.hip is None) if tensor_cores is None else tensor_cores:
            self.centre = self.bank.mean(dim=0, dtype=torch.float32)
            centres = self.centre.split_with_sizes(self.widths)
            self.table = torch.cat([table_part(*pair) for pair in zip(parts, centres, strict=True)], dim=1)
            self.table_columns = query_columns(self.widths, self.copies).to(device)
            self.constants = torch.tensor([[0.0, 1.0]], dtype=torch.float16, device=device)
            self.layer_columns = layer_columns(self.widths, self.copies).to(device)
        self.has_kernels = self.table is not None and triton_kernels.usable(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.bank
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.bank.dtype not in (torch.float16, torch.float32):
            # bfloat16 is too imprecise for unit vectors, and float64 more precise than the features.
            self.bank = before.to(self.bank.device)
        self.prepare()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if not self.bank.is_meta:
            self.prepare()  # A pickle may come from another device or release.

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return distances of shape (n_samples, n_layers, len(ks)) for the features of each layer, of any norm."""
        # While tracing, the batch has no known size.
        rows = 0 if torch.compiler.is_compiling() else features[0].shape[0]
        step = self._rows_per_block() if rows else 1
        if rows <= step:
            return self._search(features)
        starts = range(0, rows, step)
        return torch.cat([self._search([part[start : start + step] for part in features]) for start in starts])

    def _search(self, features: Sequence[Tensor]) -> Tensor:
        columns = torch.cat([part.float() for part in features], dim=1).detach()
        with_kernels = self.has_kernels and not triton_kernels.is_exporting()
        by_k = self._with_kernels(columns) if with_kernels else self._with_torch(columns)
        return by_k[0][:, :, None] if len(by_k) == 1 else torch.stack(by_k, dim=2)

    def _with_kernels(self, columns: Tensor) -> list[Tensor]:
        layers, widest = self.layer_columns, max(self.widths)
        unit, queries = triton_kernels.split_queries(
            columns, self.centre, layers, copies=self.copies, table_width=self.table_columns.shape[0], widest=widest
        )
        samples = len(self.bank)
        if self.table is not None and triton_kernels.can_select(samples, max(self.ks)):
            squared = triton_kernels.products(queries, self.table, layers)
            nearest = [triton_kernels.kth_nearest(squared, k, samples) for k in self.ks]
        else:
            nearest = self._kth_smallest(self._squared_distances(queries))
        return [triton_kernels.distances_to(unit, self.bank, one, layers, widest=widest) for one in nearest]

    def _with_torch(self, columns: Tensor) -> list[Tensor]:
        unit = self._normalise(columns)
        squared = self._squared_distances(unit if self.table is None else self._halves(unit))
        return [self._exact_distances(unit, one.T) for one in self._kth_smallest(squared)]

    def _kth_smallest(self, squared: Tensor) -> list[Tensor]:
        """Return the bank row of the k-th nearest neighbour for each k, of shape (n_layers, n_samples)."""
        found = kth_smallest(squared.flatten(0, 1), self.ks)
        return [found[:, number].view(squared.shape[:2]) for number in range(len(self.ks))]

    def _normalise(self, columns: Tensor) -> Tensor:
        """Divide each row by its Euclidean norm, layer by layer. An all-zero feature remains zero."""
        # float64 squares do not overflow, and unlike float32 products they are never rounded to TF32.
        wide = columns.to(self.is_of_layer.dtype)
        squared = (wide * wide) @ self.is_of_layer
        inverse = torch.where(squared > 0, squared.clamp_min(torch.finfo(wide.dtype).tiny).rsqrt(), 0.0)
        return (wide * inverse[:, self.layer_of_column]).float()

    def _rows_per_block(self) -> int:
        """Return how many queries fit in the memory budget."""
        budget = self.memory_budget
        if budget is None:
            budget = DEFAULT_CUDA_BUDGET if self.bank.is_cuda else DEFAULT_MEMORY_BUDGET
        samples, width = self.bank.shape
        # The products, a copy of the nearest groups, and the vectors, which are float64 without the kernels.
        each = len(self.widths) * samples * 6 + width * (24 if self.has_kernels else 80)
        return max(1, budget // each)

    def banks(self) -> tuple[Tensor, ...]:
        """Return the unit vectors of each layer as views of the bank."""
        return self._by_layer(self.bank)

    def _by_layer(self, columns: Tensor) -> tuple[Tensor, ...]:
        return tuple(columns.split_with_sizes(self.widths, 1))

    def _halves(self, unit: Tensor) -> Tensor:
        """Return -2 times the centred unit vectors as float16 hi and lo, in the column order of the table."""
        centred = unit - self.centre
        wide = centred.to(self.is_of_layer.dtype)
        lengths = ((wide * wide) @ self.is_of_layer).float()
        parts: list[Tensor] = []
        for exact in (-2 * centred, lengths):
            high = exact.half()
            parts += [high, (exact - high).half()]
        return torch.cat([*parts, self.constants.expand(unit.shape[0], 2)], dim=1)[:, self.table_columns]

    def _squared_distances(self, queries: Tensor) -> Tensor:
        """Return approximate squared distances for ranking, of shape (n_layers, n_queries, bank_size)."""
        if self.table is None:
            table, widths = self.bank.float(), list(self.widths)
        else:
            table, widths = self.table, table_widths(self.widths, self.copies)
        pairs = zip(queries.split_with_sizes(widths, 1), table.split_with_sizes(widths, 1), strict=True)
        if torch.compiler.is_compiling():
            products = torch.stack([self._product(left, right.T) for left, right in pairs])
        else:
            products = queries.new_empty((len(widths), queries.shape[0], table.shape[0]), dtype=torch.float32)
            for product, (left, right) in zip(products.unbind(), pairs, strict=True):
                self._product(left, right.T, out=product)
        return products if self.table is not None else products.mul_(-2).add_(self.offsets)

    def _product(self, left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
        if left.dtype == torch.float16 and left.is_cuda:
            # Accumulate in float32, so that no partial sum is rounded to float16.
            return torch.mm(left, right, out_dtype=torch.float32, out=out)
        return torch.mm(left.float(), right.float(), out=out)

    def _exact_distances(self, unit: Tensor, nearest: Tensor) -> Tensor:
        """Return the distance to one bank row per layer; ``nearest`` has shape (n_samples, n_layers)."""
        neighbor = self.bank.gather(0, nearest[:, self.layer_of_column])
        vectors = [unit - neighbor, unit, *([neighbor] if self.has_zero_rows else [])]
        wide = torch.stack(vectors).to(self.is_of_layer.dtype)
        squared = (wide * wide) @ self.is_of_layer
        # A zero vector is orthogonal to all others: 2 - 2 cos = 2, but the squared difference is 1.
        return (squared[0] + (squared[1:] < 0.5).sum(dim=0)).sqrt().float()


def _prepare_again(search: NeighborSearch, _: object) -> None:
    with torch.inference_mode(False):
        search.prepare()


def kth_smallest(values: Tensor, ks: Sequence[int]) -> Tensor:
    """Return the column of the k-th smallest value of each row, of shape (n_rows, len(ks))."""
    rows, columns = values.shape
    deepest = max(ks)
    size = _group_size(columns, deepest)
    if size == 1:
        return _pick(values, ks)
    groups = columns // size
    # Groups are strided, so that the minima of adjacent columns are computed in parallel.
    grouped = values[:, : groups * size].view(rows, size, groups)
    nearest = grouped.amin(dim=1).topk(deepest, largest=False, sorted=False).indices
    candidates = grouped.gather(2, nearest[:, None].expand(-1, size, -1)).flatten(1)
    left_over = columns - groups * size
    if left_over:
        candidates = torch.cat([candidates, values[:, groups * size :]], dim=1)
    chosen = _pick(candidates, ks)
    inside = chosen.clamp_max(size * deepest - 1)
    found = inside // deepest * groups + nearest.gather(1, inside % deepest)
    if left_over:
        found = torch.where(chosen < size * deepest, found, chosen - size * deepest + groups * size)
    return found


def _pick(values: Tensor, ks: Sequence[int]) -> Tensor:
    top = values.topk(max(ks), largest=False, sorted=len(ks) > 1)
    if len(ks) == 1:
        # The maximum of the k smallest values is cheaper than sorting them.
        return top.indices.gather(1, top.values.argmax(dim=1, keepdim=True))
    return torch.stack([top.indices[:, k - 1] for k in ks], dim=1)


def _group_size(columns: int, k: int) -> int:
    """Return the power of two that balances the selections from columns / size and from k * size values."""
    if columns < 1024:
        return 1
    return min(TABLE_ROWS, 1 << max(0, round(math.log2(math.sqrt(columns / k)))))
