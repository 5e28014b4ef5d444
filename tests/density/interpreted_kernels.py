"""The Triton kernels on the CPU against sorted float64 distances; test_triton_kernels.py runs this file.

It needs TRITON_INTERPRET=1 before Triton is imported, so it runs in a process of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from densecal.density import triton_kernels
from densecal.density.torch_search import NeighborSearch

sys.path.insert(0, str(Path(__file__).parent))
from test_torch_search import CASES, by_sorting, clusters, normalise, spread


def with_kernels(banks, ks):
    search = NeighborSearch(banks, ks)
    search.prepare(tensor_cores=True)
    search.has_kernels = True
    return search


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("half_bank", [False, True])
def test_distances_stay_right_to_one_thousandth(case, half_bank):
    bank, queries, ks = CASES[case]
    queries = queries[:5]
    got = with_kernels([bank.half() if half_bank else bank], ks)([3 * queries])[:, 0]
    torch.testing.assert_close(got, by_sorting(queries, bank, ks), atol=1e-3, rtol=0)


def test_layers_zero_rows_and_scales_are_those_of_the_torch_search():
    banks = [spread(700, 24), clusters(700, 7, 0.05), torch.cat([spread(699, 3), torch.zeros(1, 3)])]
    queries = [1e-30 * spread(5, 24, seed=1), 1e30 * clusters(5, 7, 0.05, seed=1), spread(5, 3, seed=1)]
    queries[2][3] = 0
    expected = NeighborSearch(banks, [5, 700])(queries)
    torch.testing.assert_close(with_kernels(banks, [5, 700])(queries), expected, atol=2e-5, rtol=0)


def test_more_queries_than_one_tile_of_the_product_holds_are_all_searched():
    banks = [spread(300, 5), spread(300, 9, seed=2)]
    queries = [spread(130, 5, seed=1), spread(130, 9, seed=3)]
    expected = NeighborSearch(banks, [4])(queries)
    torch.testing.assert_close(with_kernels(banks, [4])(queries), expected, atol=2e-5, rtol=0)


def test_a_nan_query_is_answered_with_nan_and_leaves_the_others_alone():
    queries = spread(3, 16, seed=1)
    queries[1, 4] = float("nan")
    got = with_kernels([spread(500, 16)], [7])([queries])[:, 0, 0]
    assert got.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_ties_do_not_hide_the_kth_neighbour(levels):
    values = torch.randint(levels, (2, 3, 1500), generator=torch.Generator().manual_seed(levels)).float()
    for k in (1, 40, 1500):
        found = triton_kernels.kth_nearest(values, k, samples=1500)
        assert torch.equal(values.gather(2, found[:, :, None])[:, :, 0], values.sort(dim=2).values[:, :, k - 1])


def test_a_bank_too_large_for_the_selection_is_searched_all_the_same(monkeypatch):
    monkeypatch.setattr(triton_kernels, "LARGEST_BANK", 100)
    bank, queries = clusters(900, 6, 0.1), normalise(torch.randn(4, 6, generator=torch.Generator().manual_seed(2)))
    got = with_kernels([bank], [10])([queries])[:, 0]
    torch.testing.assert_close(got, by_sorting(queries, bank, [10]), atol=1e-3, rtol=0)
