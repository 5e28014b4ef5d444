"""The Triton kernel of the search against the torch operations; test_triton_kernels.py runs this file.

Without a GPU it needs TRITON_INTERPRET=1 before Triton is imported, so it runs in a process of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from test_torch_centres import by_differences, make_banks, make_queries, make_search, spread

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") else "cuda")


def with_kernel(banks, queries):
    search = make_search(banks).to(DEVICE)
    search.has_kernels = True
    return search([part.to(DEVICE) for part in queries]).cpu()


@pytest.mark.parametrize("rows", [1, 16, 50])
def test_layers_of_any_width_and_number_of_centres_are_searched(rows):
    banks, queries = make_banks(), make_queries(rows)
    torch.testing.assert_close(with_kernel(banks, queries), by_differences(queries, banks), atol=2e-6, rtol=0)


def test_queries_that_are_centres_have_no_distance_from_them():
    banks = make_banks()
    queries = make_queries(20, banks)
    torch.testing.assert_close(with_kernel(banks, queries), by_differences(queries, banks), atol=1e-5, rtol=0)


def test_a_wide_layer_of_nearly_one_direction_stays_right_to_one_thousandth():
    directions = torch.nn.functional.normalize(1 + 1e-2 * spread(140, 520))
    bank, queries = directions[:130].half().float(), directions[130:]
    expected = by_differences([queries], [bank])
    torch.testing.assert_close(with_kernel([bank], [queries]), expected, atol=1e-3, rtol=0)


def test_zero_vectors_are_orthogonal_to_everything():
    banks = [torch.zeros(1, 3), spread(20, 5).half().float()]
    queries = [spread(4, 3), torch.zeros(4, 5)]
    torch.testing.assert_close(with_kernel(banks, queries), torch.full((4, 2), 2**0.5), atol=1e-3, rtol=0)


def test_scale_does_not_matter_and_what_is_not_finite_spoils_its_own_row_only():
    banks, queries = make_banks(), make_queries(6)
    expected = with_kernel(banks, queries)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(with_kernel(banks, [scale * part for part in queries]), expected)
    queries[0][2, 1], queries[2][4, 3] = float("nan"), float("inf")
    got = with_kernel(banks, queries)
    assert got.isnan().nonzero().tolist() == [[2, 0], [4, 2]]
    kept = [0, 1, 3, 5]
    torch.testing.assert_close(got[kept], expected[kept])


def test_features_in_half_precision_and_empty_batches_are_read_as_they_are():
    banks, queries = make_banks(), [part.half() for part in make_queries(5)]
    expected = by_differences(queries, banks)
    torch.testing.assert_close(with_kernel(banks, queries), expected, atol=2e-6, rtol=0)
    assert with_kernel(banks, [part[:0] for part in queries]).shape == (0, 4)
