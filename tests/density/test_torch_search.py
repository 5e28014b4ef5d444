"""The torch search against sorted float64 distances, in every form the products can take."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from densecal.density.torch_search import NeighborSearch, kth_distances, kth_smallest  # noqa: E402

normalise = torch.nn.functional.normalize


def by_sorting(queries, bank, ks):
    """Every distance from the difference of the vectors, in float64, sorted."""
    distances = torch.cdist(queries.double(), bank.double(), compute_mode="donot_use_mm_for_euclid_dist")
    ordered = distances.sort(dim=1).values
    return torch.stack([ordered[:, k - 1] for k in ks], dim=1).float()


def spread(samples, width, seed=0):
    return normalise(torch.randn(samples, width, generator=torch.Generator().manual_seed(seed)))


def clusters(samples, width, radius, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(10, width, generator=generator)
    chosen = centres[torch.randint(10, (samples,), generator=generator)]
    return normalise(chosen + radius * torch.randn(samples, width, generator=generator))


def one_direction(samples, width, radius, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return normalise(torch.ones(width) + radius * torch.randn(samples, width, generator=generator))


CASES = {
    "spread out": (spread(3001, 64), spread(40, 64, seed=1), [50]),
    "tight clusters": (clusters(3001, 10, 0.01), clusters(40, 10, 0.01), [50]),
    "very tight clusters": (clusters(3001, 16, 3e-3), clusters(40, 16, 3e-3), [1, 20]),
    "wide, several k": (clusters(2500, 256, 0.01), clusters(40, 256, 0.01), [1, 10, 200]),
    "nearly one direction": (one_direction(2500, 512, 1e-3), one_direction(40, 512, 1e-3, seed=1), [10]),
    "small bank": (spread(70, 33), spread(40, 33, seed=1), [1, 70]),
    "queries from the bank": (clusters(2000, 8, 0.01), clusters(2000, 8, 0.01)[:40], [1, 2]),
}


@pytest.mark.parametrize("case", CASES)
def test_distances_are_those_of_the_sorted_neighbours(case):
    bank, queries, ks = CASES[case]
    torch.testing.assert_close(kth_distances(queries, bank, ks), by_sorting(queries, bank, ks), atol=2e-4, rtol=0)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_coarser_products_and_autocast_do_not_spoil_them(precision):
    bank, queries, ks = CASES["tight clusters"]
    torch.set_float32_matmul_precision(precision)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = kth_distances(queries, bank, ks)
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(got, by_sorting(queries, bank, ks), atol=2e-4, rtol=0)


def test_several_layers_are_searched_as_if_one_at_a_time():
    banks = [spread(1500, 24), clusters(1500, 7, 0.05), spread(1500, 3)]
    queries = [5 * spread(9, 24, seed=1), 0.1 * clusters(9, 7, 0.05, seed=1), spread(9, 3, seed=1)]
    alone = [by_sorting(normalise(query), bank, [5]) for query, bank in zip(queries, banks, strict=True)]
    torch.testing.assert_close(NeighborSearch(banks, 5)(queries), torch.cat(alone, dim=1), atol=2e-4, rtol=0)


def test_blocks_that_fit_the_budget_give_the_same_distances():
    bank, queries, ks = CASES["spread out"]
    tiny = kth_distances(queries, bank, ks, memory_budget=1 << 16)
    assert torch.equal(tiny, kth_distances(queries, bank, ks, memory_budget=1 << 30))


def test_a_compiled_search_takes_any_batch_in_one_block():
    search = NeighborSearch([spread(1500, 8)], 5, memory_budget=1 << 16)
    compiled = torch.compile(search, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (40, 33):
        queries = [spread(rows, 8, seed=1)]
        torch.testing.assert_close(compiled(queries), search(queries), atol=1e-6, rtol=0)


PEAK_OF_A_SEARCH = """
import sys
from pathlib import Path
import torch
from densecal import FeatureBank

def memory(line):
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(row for row in status.splitlines() if row.startswith(line)).split()[1])

samples, width = map(int, sys.argv[1:])
bank = FeatureBank({"a": torch.randn(samples, width)}, k=10, memory_budget=64 << 20)
queries = {"a": torch.randn(3000, width)}
bank.distances({"a": queries["a"][:1]})
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
bank.distances(queries)
print(memory("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to read a peak of memory")
@pytest.mark.parametrize(("samples", "width"), [(30_000, 1024), (20_000, 8), (500, 1000)])
def test_neither_the_bank_nor_the_queries_take_more_memory_than_the_budget(samples, width):
    """In a process of its own, whose peak no other test and no thread of theirs can move."""
    command = [sys.executable, "-c", PEAK_OF_A_SEARCH, str(samples), str(width)]

    def peak() -> int:
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    # Pages of libraries that the system had dropped count when they are read again, so a peak can be too high.
    assert any(peak() < 96 << 20 for _ in range(3))


@pytest.mark.parametrize("half_bank", [False, True])
def test_a_layer_of_a_module_is_searched_in_parts_that_fit_the_budget(half_bank):
    bank, queries = clusters(3000, 40, 0.05), clusters(70, 40, 0.05)
    whole, cut = (NeighborSearch([bank, bank], 5, memory_budget=budget) for budget in (1 << 30, 1 << 18))
    if half_bank:
        whole, cut = whole.half(), cut.half()
    torch.testing.assert_close(cut([queries, queries]), whole([queries, queries]), atol=1e-6, rtol=0)


def test_no_query_gives_no_row():
    assert kth_distances(torch.zeros(0, 4), torch.eye(4), [1, 2]).shape == (0, 2)


def test_a_zero_vector_is_orthogonal_to_everything_on_either_side():
    bank = torch.cat([torch.eye(4), torch.zeros(1, 4)])
    queries = torch.stack([torch.zeros(4), torch.eye(4)[0]])
    root = 2**0.5
    expected = torch.tensor([[root, root, root], [0.0, root, root]])
    torch.testing.assert_close(kth_distances(queries, bank, [1, 2, 5]), expected)


def test_a_nan_query_is_answered_with_nan_and_leaves_the_others_alone():
    bank, queries, ks = CASES["spread out"]
    broken = queries.clone()
    broken[3, 0] = float("nan")
    got = kth_distances(broken, bank, ks)
    assert got[3].isnan().all()
    kept = [row for row in range(len(queries)) if row != 3]
    torch.testing.assert_close(got[kept], kth_distances(queries, bank, ks)[kept])


def test_large_and_tiny_features_keep_their_direction():
    bank = spread(300, 5)
    search = NeighborSearch([bank], 1)
    queries = spread(4, 5, seed=2)
    expected = search([queries])
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(search([queries * scale]), expected)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 3000),
    k=st.integers(1, 60),
    levels=st.sampled_from([3, 50, 100_000]),
    seed=st.integers(0, 2**31),
)
def test_the_kth_smallest_is_found_whatever_the_ties(rows, columns, k, levels, seed):
    k = min(k, columns)
    values = torch.randint(levels, (rows, columns), generator=torch.Generator().manual_seed(seed)).float()
    found = kth_smallest(values, [k])
    assert torch.equal(values.gather(1, found), values.sort(dim=1).values[:, [k - 1]])


def test_moving_to_half_and_back_rebuilds_what_depends_on_the_bank():
    bank, queries, ks = CASES["tight clusters"]
    search = NeighborSearch([bank], ks[0])
    half = copy.deepcopy(search).half()
    assert half.bank.dtype == torch.float16
    torch.testing.assert_close(half([queries]), by_sorting(queries, bank, ks), atol=6e-4, rtol=0)
    assert copy.deepcopy(search).bfloat16().bank.dtype == torch.float32, "bfloat16 has too few digits for a bank"
    assert copy.deepcopy(search).double().bank.dtype == torch.float32


def test_a_loaded_state_dict_takes_effect():
    first, second = NeighborSearch([spread(200, 4)], 3), NeighborSearch([spread(200, 4, seed=9)], 3)
    queries = [spread(5, 4, seed=3)]
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(queries), first(queries))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES)
def test_the_gpu_agrees_with_the_cpu(case):
    bank, queries, ks = CASES[case]
    got = kth_distances(queries.cuda(), bank.cuda(), ks).cpu()
    torch.testing.assert_close(got, by_sorting(queries, bank, ks), atol=1e-3, rtol=0)
