"""Distances to the nearest centre and exact distances to the k-th neighbour, with torch on any device.

Selecting the k-th smallest of 45,000 distances costs far more than computing them. The row is therefore split into
groups, and only the k groups with the smallest minima are searched. They contain the k smallest values, because the
minimum of any other group is larger than k of the minima. The distance to the selected neighbour is then computed from
the difference of the two vectors, which is accurate even if they are close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from densecal.arrays import row_blocks
from densecal.density import triton_kernels
from densecal.density.defaults import DEFAULT_MEMORY_BUDGET

DEFAULT_CUDA_BUDGET = 1 << 30
"""The default on a GPU: 512 queries of 45,000 samples fit in one block."""
LARGEST_GROUP, SHORTEST_GROUPED = 64, 1024
TINY = torch.finfo(torch.float32).tiny
ALIGNMENT = 16
"""Rows of centres are padded with zeros to a multiple of this, for aligned loads of tensor cores."""


def kth_distances(
    queries: Tensor, bank: Tensor, ks: Sequence[int], *, memory_budget: int = DEFAULT_MEMORY_BUDGET
) -> Tensor:
    """Return float32 distances to the k-th nearest rows of the bank, of shape (n_queries, len(ks)), accurate to 1e-3.

    Queries and bank are unit vectors, or zero vectors, which are treated as orthogonal to all others. The queries are
    searched in blocks that fit the memory budget.
    """
    with torch.inference_mode():
        return _search(queries, bank, squared_offsets(bank), ks, memory_budget)


class PreparedSearch(nn.Module):
    """A search whose derived buffers follow its bank when it is moved, converted or loaded."""

    bank: Tensor
    dtypes: ClassVar[Mapping[str, tuple[torch.dtype, ...]]]
    """The dtypes that a buffer may have. Converted to another one, it keeps its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_post_hook(_prepare_again)  # type: ignore[no-untyped-call]

    def prepare(self) -> None:
        """Build what is derived from the bank."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = {name: getattr(self, name) for name in self.dtypes}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, dtypes in self.dtypes.items():
            after = getattr(self, name)
            setattr(self, name, after if after.dtype in dtypes else before[name].to(after.device))
        self.prepare()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if not self.bank.is_meta:
            self.prepare()  # A pickle may come from another device or release.


def _prepare_again(search: PreparedSearch, _: object) -> None:
    with torch.inference_mode(False):
        search.prepare()


class NeighborSearch(PreparedSearch):
    """Compute distances to the k-th neighbour in several layers. The bank is a buffer of the module.

    ``banks`` are the unit vectors of each layer in float32, or in float16 for half the memory and distances accurate to
    5e-4. The queries are searched in blocks that fit the memory budget, by default 256 MiB, or 1 GiB on a GPU. A
    compiled or exported search processes each batch as one block.
    """

    offsets: Tensor
    # bfloat16 is too imprecise for unit vectors, and float64 more precise than the features.
    dtypes: ClassVar = {"bank": (torch.float16, torch.float32)}

    def __init__(self, banks: Sequence[Tensor], k: int, *, memory_budget: int | None = None) -> None:
        super().__init__()
        self.memory_budget = memory_budget
        self.widths = tuple(int(bank.shape[1]) for bank in banks)
        self.k = int(k)
        dtype = torch.float16 if all(bank.dtype == torch.float16 for bank in banks) else torch.float32
        self.register_buffer("bank", torch.cat([bank.to(dtype) for bank in banks], dim=1))
        self.register_buffer("offsets", None, persistent=False)
        self.prepare()

    def prepare(self) -> None:
        """Build the offsets."""
        self.offsets = torch.stack([squared_offsets(bank) for bank in self.banks()])
        self.has_kernels = triton_kernels.usable(self.bank.device)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return distances of shape (n_samples, n_layers) for the features of each layer, of any norm."""
        budget = self.memory_budget
        if budget is None:
            budget = DEFAULT_CUDA_BUDGET if self.bank.is_cuda else DEFAULT_MEMORY_BUDGET
        layers = zip(features, self.banks(), self.offsets.unbind(), strict=True)
        return torch.cat([_search(part, bank, offsets, [self.k], budget) for part, bank, offsets in layers], dim=1)

    def banks(self) -> tuple[Tensor, ...]:
        """Return the unit vectors of each layer as views of the bank."""
        return tuple(self.bank.split_with_sizes(self.widths, 1))


class NearestCentres(PreparedSearch):
    """Compute the distance to the nearest centre in several layers at once. The centres are a buffer of the module.

    ``banks`` are the centres of each layer, of shape (n_centres, width), and ``counts`` the number of training samples
    around each; layers may have different numbers of centres. They are stored in float16 in one buffer. Without
    kernels a transposed float32 copy makes the search for one image faster. Distances are accurate to 1e-3,
    whatever precision torch's float32 products have.
    """

    counts: Tensor
    offsets: Tensor
    layers: Tensor
    # The centres are float16 numbers: other types are larger or less precise.
    dtypes: ClassVar = {"bank": (torch.float16,), "counts": (torch.float32,)}

    def __init__(self, banks: Sequence[Tensor], counts: Sequence[Tensor]) -> None:
        super().__init__()
        self.widths = tuple(int(bank.shape[1]) for bank in banks)
        self.centres = tuple(int(bank.shape[0]) for bank in banks)
        padded = [nn.functional.pad(bank.float(), (0, -bank.shape[1] % ALIGNMENT)).flatten() for bank in banks]
        self.sizes = tuple(len(part) for part in padded)
        self.register_buffer("bank", torch.cat(padded).half())
        self.register_buffer("counts", torch.cat([part.float() for part in counts]))
        for derived in ("offsets", "layers"):
            self.register_buffer(derived, None, persistent=False)
        self.prepare()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "operands": []}  # They are larger than the centres, and `prepare` builds them again.

    def prepare(self) -> None:
        """Build the offsets, the kernel's table of layers, and the operands of the products."""
        self.offsets = torch.cat([squared_offsets(bank) for bank in self.banks()])
        starts = [list(accumulate(sizes, initial=0))[:-1] for sizes in (self.widths, self.sizes, self.centres)]
        columns = [starts[0], self.widths, self.centres, *starts[1:]]
        self.layers = torch.tensor(columns, device=self.bank.device)
        self.has_kernels = triton_kernels.usable(self.bank.device)
        self.operands = self._stored_operands()
        if not self.has_kernels:
            self.operands = [(offsets, centres.float().contiguous()) for offsets, centres in self.operands]

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return distances of shape (n_samples, n_layers) for the features of each layer, of any norm."""
        if self.has_kernels and not triton_kernels.is_exporting():
            columns = torch.cat(list(features), dim=1).detach()
            return triton_kernels.nearest_distances(columns, self.bank, self.offsets, self.layers)
        dtype = product_dtype(self.bank.device)
        # An exported program stores the centres in half precision.
        operands = self._stored_operands() if triton_kernels.is_exporting() else self.operands
        squared = [
            _squared_products(normalise(part.detach()), centres, offsets, dtype).amin(dim=1)
            for part, (offsets, centres) in zip(features, operands, strict=True)
        ]
        return torch.stack(squared, dim=1).clamp_min(0).sqrt().float()

    def _stored_operands(self) -> list[tuple[Tensor, Tensor]]:
        """Return the offsets and the transposed centres of each layer, as views of the buffers."""
        offsets = self.offsets.split_with_sizes(self.centres)
        return [(part, bank.T) for part, bank in zip(offsets, self.banks(), strict=True)]

    def banks(self) -> tuple[Tensor, ...]:
        """Return the centres of each layer as views of the bank."""
        parts = zip(self.bank.split_with_sizes(self.sizes), self.centres, self.widths, strict=True)
        return tuple(part.view(centres, -1)[:, :width] for part, centres, width in parts)

    def counts_by_layer(self) -> tuple[Tensor, ...]:
        """Return the number of training samples around each centre of each layer."""
        return tuple(self.counts.split_with_sizes(self.centres))


def normalise(features: Tensor) -> Tensor:
    """Divide each row by its Euclidean norm, in float32. An all-zero row remains zero."""
    features = features.float()
    # Scaling by the largest entry first prevents overflow and underflow of the squares.
    largest = torch.linalg.vector_norm(features, math.inf, dim=1, keepdim=True)
    scaled: Tensor = features / largest.clamp_min_(TINY)
    # The norm is zero or at least one.
    return scaled.div_(torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp_min_(1))


def product_dtype(device: torch.device) -> torch.dtype:
    """Return float32, or float64 if torch may round float32 products to TF32, bfloat16 or float16."""
    if triton_kernels.is_exporting() or device.type not in ("cpu", "cuda"):
        return torch.float32
    # Compilers cannot trace the question for the precision.
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(device.type):
        return torch.float64
    try:
        return torch.float32 if torch.get_float32_matmul_precision() == "highest" else torch.float64
    except RuntimeError:
        # A backend has a precision of its own.
        return torch.float64


def squared_offsets(bank: Tensor) -> Tensor:
    """Return 1 + |b|^2 of each row, and 2 for a zero row, which is orthogonal to all others."""
    blocks = row_blocks(len(bank), 8 * bank.shape[1], 1 << 24)
    lengths = torch.cat([torch.linalg.vector_norm(bank[rows], dim=1, dtype=torch.float32) for rows in blocks]).square()
    return 1 + lengths + (lengths == 0)


def _search(queries: Tensor, bank: Tensor, offsets: Tensor, ks: Sequence[int], memory_budget: int) -> Tensor:
    """Return distances of shape (n_queries, len(ks)), in blocks of queries that fit the memory budget."""
    size, width = bank.shape
    # While tracing, the batch has no known size.
    rows = 0 if torch.compiler.is_compiling() else queries.shape[0]
    # The products with a copy of the nearest groups, and the vectors; half of the budget is for converted rows.
    step = max(1, memory_budget // 2 // (8 * size + 4 * width * (4 + 2 * len(ks))))
    part = max(1, memory_budget // 2 // (8 * (2 * width + step))) if rows else size
    if rows <= step:
        return _search_block(queries, bank, offsets, ks, part)
    return torch.cat([_search_block(block, bank, offsets, ks, part) for block in torch.split(queries, step)])


def _search_block(queries: Tensor, bank: Tensor, offsets: Tensor, ks: Sequence[int], part: int) -> Tensor:
    unit = normalise(queries.detach())
    nearest = kth_smallest(_squared_distances(unit, bank, offsets, part), ks)
    neighbours = bank[nearest].float()
    squared = (unit[:, None] - neighbours).square().sum(dim=2)
    # A zero vector is orthogonal to all others: 2 - 2 cos = 2, but the squared difference is 1.
    is_zero = (unit.square().sum(dim=1) < 0.5)[:, None] | (neighbours.square().sum(dim=2) < 0.5)
    return torch.where(is_zero, 2.0, squared).sqrt()


def _squared_distances(unit: Tensor, bank: Tensor, offsets: Tensor, part: int) -> Tensor:
    """Return squared distances for ranking; ``part`` rows of the bank at a time are converted if they have to be."""
    dtype = product_dtype(bank.device)
    if bank.dtype == dtype or part >= len(bank):
        return _squared_products(unit, bank.T, offsets, dtype).float()
    squared = unit.new_empty((len(unit), len(bank)))
    for rows in row_blocks(len(bank), 1, part):
        squared[:, rows] = _squared_products(unit, bank[rows].T, offsets[rows], dtype).float()
    return squared


def _squared_products(unit: Tensor, columns: Tensor, offsets: Tensor, dtype: torch.dtype) -> Tensor:
    """Return offsets - 2 unit @ columns, computed in a dtype."""
    if columns.dtype != dtype:
        unit, columns, offsets = (part.to(dtype) for part in (unit, columns, offsets))
    return torch.addmm(offsets, unit, columns, alpha=-2)


def kth_smallest(values: Tensor, ks: Sequence[int]) -> Tensor:
    """Return the column of the k-th smallest value of each row, of shape (n_rows, len(ks))."""
    rows, columns = values.shape
    deepest = max(ks)
    # The power of two that balances the selections from columns / size and from k * size values.
    size = min(LARGEST_GROUP, 1 << max(0, round(math.log2(math.sqrt(columns / deepest)))))
    if size == 1 or columns < SHORTEST_GROUPED:
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
