"""Distances to the nearest centre with torch: one product and a minimum per layer, or one kernel for all layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Self

import torch
from torch import Tensor, nn

from densecal.density import triton_kernels
from densecal.density.torch_search import PreparedSearch, normalise, product_dtype, squared_offsets

ALIGNMENT = 16
"""Rows of centres are padded with zeros to a multiple of this, for aligned loads of tensor cores."""


class NearestCentres(PreparedSearch):
    """Compute the distance to the nearest centre in several layers at once. The centres are a buffer of the module.

    ``banks`` are the centres of each layer, of shape (n_centres, width), and ``counts`` the number of training samples
    around each; layers may have different numbers of centres. They are stored in float16 in one buffer. Distances are
    accurate to 1e-3, whatever precision torch's float32 products have.
    """

    bank: Tensor
    counts: Tensor
    offsets: Tensor
    layers: Tensor

    def __init__(self, banks: Sequence[Tensor], counts: Sequence[Tensor]) -> None:
        super().__init__()
        self.widths = tuple(int(bank.shape[1]) for bank in banks)
        self.centres = tuple(int(bank.shape[0]) for bank in banks)
        padded = [nn.functional.pad(bank.float(), (0, -bank.shape[1] % ALIGNMENT)).flatten() for bank in banks]
        self.sizes = tuple(len(part) for part in padded)
        self.register_buffer("bank", torch.cat(padded).half())
        self.register_buffer("counts", torch.cat([part.float() for part in counts]))
        self.register_buffer("offsets", None, persistent=False)
        self.register_buffer("layers", None, persistent=False)
        self.prepare()

    def prepare(self) -> None:
        """Build the buffers derived from the centres. Called again when the module is moved, converted or loaded."""
        self.offsets = torch.cat([squared_offsets(bank) for bank in self.banks()])
        starts = [list(accumulate(sizes, initial=0))[:-1] for sizes in (self.widths, self.sizes, self.centres)]
        columns = [starts[0], self.widths, self.centres, *starts[1:]]
        self.layers = torch.tensor(columns, device=self.bank.device)
        self.has_kernels = triton_kernels.usable(self.bank.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.bank, self.counts
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if (self.bank.dtype, self.counts.dtype) != (torch.float16, torch.float32):
            # The centres are float16 numbers: other types are larger or less precise.
            self.bank, self.counts = (part.to(self.bank.device) for part in before)
        self.prepare()
        return self

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return distances of shape (n_samples, n_layers) for the features of each layer, of any norm."""
        if self.has_kernels and not triton_kernels.is_exporting():
            columns = torch.cat(list(features), dim=1).detach()
            return triton_kernels.nearest_distances(columns, self.bank, self.offsets, self.layers)
        dtype = product_dtype(self.bank.device)
        parts = zip(features, self.banks(), self.offsets.split_with_sizes(self.centres), strict=True)
        squared = [
            torch.addmm(offsets.to(dtype), normalise(part.detach()).to(dtype), centres.to(dtype).T, alpha=-2).amin(
                dim=1
            )
            for part, centres, offsets in parts
        ]
        return torch.stack(squared, dim=1).clamp_min(0).sqrt().float()

    def banks(self) -> tuple[Tensor, ...]:
        """Return the centres of each layer as views of the bank."""
        parts = zip(self.bank.split_with_sizes(self.sizes), self.centres, self.widths, strict=True)
        return tuple(part.view(centres, -1)[:, :width] for part, centres, width in parts)

    def counts_by_layer(self) -> tuple[Tensor, ...]:
        """Return the number of training samples around each centre of each layer."""
        return tuple(self.counts.split_with_sizes(self.centres))
