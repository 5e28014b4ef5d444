"""The distance to the nearest centre as a module, against float64 distances from the differences of the vectors."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecal import FeatureBank  # noqa: E402
from densecal.density.torch_search import NearestCentres  # noqa: E402

normalise = torch.nn.functional.normalize
WIDTHS, CENTRES = (64, 7, 130, 10), (300, 5, 129, 40)


def spread(rows, width, seed=0):
    return normalise(torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)))


def make_banks(centres=CENTRES):
    return [spread(rows, width, seed=width).half().float() for rows, width in zip(centres, WIDTHS, strict=True)]


def make_search(banks):
    return NearestCentres(banks, [torch.arange(1.0, len(bank) + 1) for bank in banks])


def make_queries(rows, banks=None):
    """Vectors of any length, the first of which are centres themselves."""
    queries = [3 * torch.randn(rows, width, generator=torch.Generator().manual_seed(rows + width)) for width in WIDTHS]
    for part, bank in zip(queries, banks or [], strict=False):
        part[:5] = 0.1 * bank[: min(5, rows)]
    return queries


def by_differences(queries, banks):
    pairs = zip(queries, banks, strict=True)
    all_of = [
        torch.cdist(normalise(part.double()), bank.double(), compute_mode="donot_use_mm_for_euclid_dist")
        for part, bank in pairs
    ]
    return torch.stack([distances.amin(dim=1) for distances in all_of], dim=1).float()


def test_distances_are_those_to_the_nearest_centre_whatever_their_number():
    banks = make_banks()
    got = make_search(banks)(queries := make_queries(50))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, by_differences(queries, banks), atol=2e-6, rtol=0)
    near = make_queries(50, banks)
    torch.testing.assert_close(make_search(banks)(near), by_differences(near, banks), atol=1e-3, rtol=0)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_coarser_products_and_autocast_do_not_spoil_them(precision):
    banks = make_banks()
    queries = make_queries(50, banks)
    torch.set_float32_matmul_precision(precision)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = make_search(banks)(queries)
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(got, by_differences(queries, banks), atol=1e-3, rtol=0)


def test_they_are_those_of_the_bank():
    rows = np.random.default_rng(0).normal(size=(600, 12)).astype(np.float32)
    rows[:30] = 0
    bank = FeatureBank({"a": rows, "b": rows[:, :5], "zero": 0 * rows}, centres=30)
    state = bank.state()
    vectors, counts = ([torch.from_numpy(part) for part in parts.values()] for parts in (state.features, state.counts))
    queries = {"a": rows[20:60] + 1, "b": rows[20:60, :5], "zero": rows[20:60]}
    got = NearestCentres(vectors, counts)([torch.from_numpy(part) for part in queries.values()])
    np.testing.assert_allclose(got, bank.distances(queries), atol=1e-3)


def test_scale_does_not_matter_and_what_is_not_finite_spoils_its_own_row_only():
    search = make_search(make_banks())
    queries = make_queries(6)
    expected = search(queries)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(search([scale * part for part in queries]), expected)
    queries[0][2, 1], queries[2][4, 3] = float("nan"), float("inf")
    got = search(queries)
    assert got.isnan().nonzero().tolist() == [[2, 0], [4, 2]]
    kept = [0, 1, 3, 5]
    torch.testing.assert_close(got[kept], expected[kept])


def test_no_query_gives_no_row():
    assert make_search(make_banks())([torch.zeros(0, width) for width in WIDTHS]).shape == (0, 4)


def test_it_stays_float16_and_survives_moves_copies_and_pickles():
    search = make_search(make_banks())
    queries = make_queries(9)
    expected = search(queries)
    assert search.bank.dtype == torch.float16
    kept = io.BytesIO()
    torch.save(search, kept)
    kept.seek(0)
    others = [copy.deepcopy(search), pickle.loads(pickle.dumps(search)), torch.load(kept, weights_only=False)]
    others += [getattr(copy.deepcopy(search), name)() for name in ("half", "bfloat16", "float", "double")]
    for other in others:
        assert torch.equal(other(queries), expected)
        assert (other.bank.dtype, other.counts.dtype) == (torch.float16, torch.float32)
        torch.testing.assert_close(other.counts_by_layer()[1], torch.arange(1.0, 6.0))
    on_meta = copy.deepcopy(search).to("meta")
    on_meta.to_empty(device="cpu").load_state_dict(search.state_dict())
    assert torch.equal(on_meta(queries), expected)


def test_a_pickle_holds_the_centres_once():
    search = NearestCentres([torch.randn(500, 512)], [torch.ones(500)])
    assert len(pickle.dumps(search)) < 1.1 * 2 * search.bank.numel()


def test_a_state_dict_of_other_centres_takes_effect_and_one_of_another_number_is_refused():
    search = make_search(make_banks())
    other = make_search([bank.flip(1) for bank in make_banks()])
    queries = make_queries(9)
    assert not torch.allclose(other(queries), search(queries))
    other.load_state_dict(search.state_dict())
    assert torch.equal(other(queries), search(queries))
    with pytest.raises(RuntimeError, match="size mismatch for bank"):
        make_search(make_banks((300, 5, 128, 40))).load_state_dict(search.state_dict())


def test_it_compiles_without_a_break_for_any_batch():
    banks = make_banks()
    search = make_search(banks)
    compiled = torch.compile(search, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (40, 33):
        queries = make_queries(rows, banks)
        torch.testing.assert_close(compiled(queries), search(queries), atol=1e-3, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("with_kernels", [True, False])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_gpu_agrees_with_the_cpu(precision, with_kernels, compiled):
    banks = make_banks()
    search = make_search(banks).cuda()
    assert search.has_kernels
    search.has_kernels = with_kernels
    called = torch.compile(search, fullgraph=True) if compiled else search
    torch.set_float32_matmul_precision(precision)
    try:
        for rows in (1, 50, 600):
            queries = make_queries(rows, banks)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                got = called([part.cuda() for part in queries])
            torch.testing.assert_close(got.cpu(), by_differences(queries, banks), atol=1e-3, rtol=0)
    finally:
        torch.set_float32_matmul_precision("highest")
