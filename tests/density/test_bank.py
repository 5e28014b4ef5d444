from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from densecal import DAC, FeatureBank, Outputs


def brute_force(queries, bank, k):
    """Every distance, sorted: what the search must give."""
    queries, bank = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, bank))
    return np.sort(np.linalg.norm(queries[:, None] - bank[None], axis=2), axis=1)[:, k - 1]


@pytest.fixture
def features():
    rng = np.random.default_rng(0)
    return {"early": np.abs(rng.normal(size=(300, 6))), "late": rng.normal(size=(300, 17)) * 100}


@pytest.fixture
def queries():
    rng = np.random.default_rng(1)
    return {"late": rng.normal(size=(40, 17)), "early": np.abs(rng.normal(size=(40, 6))), "unused": np.ones((40, 2))}


@pytest.mark.parametrize("backend", ["numpy", "faiss", "torch"])
@pytest.mark.parametrize("k", [1, 7, 300])
def test_distances_equal_those_of_brute_force(features, queries, backend, k):
    if backend != "numpy":
        pytest.importorskip(backend)
    distances = FeatureBank(features, k=k, backend=backend).distances(queries)
    for column, layer in enumerate(["early", "late"]):
        np.testing.assert_allclose(distances[:, column], brute_force(queries[layer], features[layer], k), atol=1e-4)


def test_several_k_come_from_one_search_in_the_order_asked(features, queries):
    bank = FeatureBank(features, k=5)
    together = bank.distances(queries, k=[50, 1, 5])
    assert together.shape == (40, 2, 3)
    for column, k in enumerate([50, 1, 5]):
        np.testing.assert_array_equal(together[:, :, column], bank.distances(queries, k=k))
    np.testing.assert_array_equal(together[:, :, 2], bank.distances(queries))


def test_distances_of_a_subset_are_the_subset_of_the_distances(features, queries):
    bank = FeatureBank(features, k=9)
    rows = np.array([3, 30, 4])
    part = bank.distances({layer: array[rows] for layer, array in queries.items()})
    np.testing.assert_allclose(part, bank.distances(queries)[rows], atol=1e-6)


def test_a_tight_memory_budget_changes_nothing(features, queries):
    frugal = FeatureBank(features, k=9, memory_budget=200)
    np.testing.assert_allclose(frugal.distances(queries), FeatureBank(features, k=9).distances(queries), atol=1e-6)


def test_a_training_sample_can_leave_itself_out_of_its_neighbours(features):
    bank = FeatureBank(features, k=3)
    without = bank.distances(features, exclude_self=True)
    np.testing.assert_allclose(without, bank.distances(features, k=4), atol=1e-3)
    assert bank.distances(features, k=1).max() < 2e-3
    assert bank.distances(features, k=1, exclude_self=True).min() > 0.01


def test_a_stranger_is_not_left_out_by_exclude_self(features, queries):
    bank = FeatureBank(features, k=3)
    np.testing.assert_array_equal(bank.distances(queries, exclude_self=True), bank.distances(queries))


def test_scaling_a_feature_does_not_move_it(features, queries):
    bank = FeatureBank(features, k=3)
    huge = {layer: array * 1e30 for layer, array in queries.items()}
    tiny = {layer: array * 1e-30 for layer, array in queries.items()}
    for other in (huge, tiny):
        np.testing.assert_allclose(bank.distances(other), bank.distances(queries), atol=1e-5)


def test_an_all_zero_feature_counts_as_orthogonal_to_everything(features, queries):
    bank = FeatureBank(features, k=3)
    dead = {layer: np.zeros_like(array) for layer, array in queries.items()}
    np.testing.assert_allclose(bank.distances(dead), np.sqrt(2), atol=1e-5)


def test_torch_and_numpy_give_the_same_and_each_its_own_kind(features, queries):
    torch = pytest.importorskip("torch")
    bank = FeatureBank(features, k=5)
    tensors = {layer: torch.from_numpy(array) for layer, array in queries.items()}
    distances = bank.distances(tensors)
    assert isinstance(distances, torch.Tensor)
    np.testing.assert_allclose(distances.numpy(), bank.distances(queries), atol=1e-4)
    from_tensors = FeatureBank({layer: torch.from_numpy(array) for layer, array in features.items()}, k=5)
    assert isinstance(from_tensors.distances(queries), np.ndarray)


def test_a_bank_size_is_the_same_rows_in_every_layer_and_in_every_run(features):
    same = {"a": features["late"], "b": features["late"]}
    bank = FeatureBank(same, k=1, bank_size=0.1, seed=3)
    assert len(bank) == 30
    np.testing.assert_array_equal(bank["a"], bank["b"])
    np.testing.assert_array_equal(bank["a"], FeatureBank(same, k=1, bank_size=30, seed=3)["a"])
    assert not np.array_equal(bank["a"], FeatureBank(same, k=1, bank_size=30, seed=4)["a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 301}, "k must be at most 300, .* got 301"),
        ({"k": 0}, "at least 1"),
        ({"k": 2.5}, "at least 1"),
        ({"k": 5, "bank_size": 1.5}, "fraction must lie in"),
        ({"k": 5, "bank_size": 1000}, "lie in 1 ... 300, .* got 1000"),
        ({"k": 50, "bank_size": 20}, "k must be at most 20, .* got 50"),
        ({"bank_size": 20}, "bank_size counts rows, .* pass k too"),
        ({"k": 5, "centres": 30}, "pass one of them"),
        ({"centres": 301}, "centres must be at most 300, .* got 301"),
        ({"centres": 0}, "centres must be 'auto' or an integer"),
        ({"backend": "gpu"}, "backend must be one of"),
    ],
)
def test_impossible_options_are_explained(features, options, message):
    with pytest.raises(ValueError, match=message):
        FeatureBank(features, **options)


def test_a_missing_layer_and_a_wrong_width_are_named(features, queries):
    bank = FeatureBank(features, k=3)
    with pytest.raises(ValueError, match=r"lack the layers \['late'\]"):
        bank.distances({"early": queries["early"]})
    with pytest.raises(ValueError, match="width 5, but the bank has width 17"):
        bank.distances({**queries, "late": np.ones((40, 5))})
    with pytest.raises(TypeError, match="map layer names"):
        bank.distances(queries["late"])
    with pytest.raises(ValueError, match="NaN or infinite"):
        bank.distances({**queries, "late": np.full((40, 17), np.nan)})


@pytest.mark.parametrize("backend", ["numpy", "faiss"])
def test_several_k_may_be_an_array_but_not_empty(features, queries, backend):
    if backend == "faiss":
        pytest.importorskip("faiss")
    bank = FeatureBank(features, k=5, backend=backend)
    assert bank.distances(queries, k=np.array([1, 5])).shape == (40, 2, 2)
    with pytest.raises(ValueError, match="empty sequence"):
        bank.distances(queries, k=[])


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_banks_that_differ_in_a_single_row_do_not_accept_each_others_distances(backend):
    asarray = pytest.importorskip("torch").tensor if backend == "torch" else np.asarray
    train = np.random.default_rng(0).normal(size=(1000, 8))
    changed = train.copy()
    changed[7] = -changed[7]
    bank, same, other = (FeatureBank({"pool": asarray(rows)}, k=5) for rows in (train, train, changed))
    assert bank.fingerprint == same.fingerprint != other.fingerprint
    val = Outputs(np.eye(4).repeat(50, 0), np.arange(200) % 4, {"pool": train[:200] + 0.1})
    assert DAC(bank).accepts(DAC(same).measure(val).distances)
    assert not DAC(bank).accepts(DAC(other).measure(val).distances)


def test_a_bank_is_known_by_its_content(features):
    bank = FeatureBank(features, k=5)
    assert bank.fingerprint == FeatureBank(features, k=7).fingerprint
    assert bank.fingerprint != FeatureBank({"late": features["late"], "early": features["early"]}, k=5).fingerprint
    assert bank.fingerprint != bank.select(["late"]).fingerprint
    with pytest.raises(ValueError, match=r"has the layers \['early', 'late'\], got \['zz'\]"):
        bank.select(["zz"])


def test_a_missing_backend_says_how_to_install_it(features, queries, monkeypatch):
    monkeypatch.setattr("densecal.density.search.is_installed", lambda package: False)
    with pytest.raises(ImportError, match=r"pip install \"densecal\[faiss\]\""):
        FeatureBank(features, k=5, backend="faiss").distances(queries)
    assert FeatureBank(features, k=5).distances(queries).shape == (40, 2)


def test_float64_features_beyond_the_range_of_float32_are_measured():
    rng = np.random.default_rng(0)
    bank = FeatureBank({"pool": rng.normal(size=(30, 4))}, k=3)
    queries = rng.normal(size=(5, 4))
    expected = bank.distances({"pool": queries})
    for scale in (1e-300, 1e-60, 1e60, 1e300):
        np.testing.assert_allclose(bank.distances({"pool": scale * queries}), expected, atol=1e-3)


@pytest.mark.parametrize("shape", [(5,), (5, 0)])
def test_centres_of_a_saved_bank_must_be_rows(shape):
    state = FeatureBank({"pool": np.random.default_rng(0).normal(size=(500, 8))}).state()
    counts = {"pool": np.ones(5, np.float32)}
    with pytest.raises(ValueError, match=r"must have shape \(n_samples, width\), got \(5"):
        FeatureBank.from_state(replace(state, features={"pool": np.ones(shape, np.float32)}, counts=counts))
