from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import densecal
from densecal import DAC, FeatureBank, Outputs
from densecal.density.sample import FeatureSample

CLASSES = 12


def clusters(n_samples, *, seed, spread=0.25, width=24):
    """Directions around a few classes, in the order of the classes as an image folder has them."""
    means = np.random.default_rng(0).normal(size=(CLASSES, width))
    draw = np.random.default_rng(seed)
    rows = means[np.arange(n_samples) * CLASSES // n_samples] + spread * draw.normal(size=(n_samples, width))
    return rows.astype(np.float32)


def exact(queries, centres):
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    return np.linalg.norm(unit[:, None] - np.asarray(centres, np.float64)[None], axis=2).min(axis=1)


def mean_distance(bank, queries):
    return float(np.mean(bank.distances({"pool": queries})))


def batches(rows, size):
    return ({"pool": rows[start : start + size]} for start in range(0, len(rows), size))


@pytest.fixture(scope="module")
def train():
    return clusters(6_000, seed=1)


@pytest.fixture(scope="module")
def new():
    return clusters(600, seed=2)


def test_the_distance_is_that_to_the_nearest_centre(train, new):
    bank = FeatureBank({"pool": train}, centres=40)
    assert (bank.centres, bank.k, bank["pool"].shape) == (40, None, (40, 24))
    np.testing.assert_allclose(bank.distances({"pool": new})[:, 0], exact(new, bank["pool"]), atol=1e-5)
    np.testing.assert_array_equal(bank.distances({"pool": new[:7]}), bank.distances({"pool": new})[:7])


def test_centres_are_nearer_than_as_many_rows(train, new):
    centres, rows = FeatureBank({"pool": train}, centres=60), FeatureBank({"pool": train}, k=1, bank_size=60)
    assert mean_distance(centres, new) < 0.85 * mean_distance(rows, new)


def test_shifted_inputs_are_far_from_the_centres(train, new):
    bank = FeatureBank({"pool": train})
    shifted = new + np.random.default_rng(3).normal(size=new.shape)
    assert np.median(bank.distances({"pool": shifted})) > np.quantile(bank.distances({"pool": new}), 0.95)


@pytest.mark.parametrize("size", [1, 77, 1024, 6_000])
def test_a_stream_gives_the_centres_of_the_whole_for_every_batch_size(train, size):
    streamed = FeatureBank.from_batches(batches(train, size), centres=20, seed=5)
    np.testing.assert_array_equal(streamed["pool"], FeatureBank({"pool": train}, centres=20, seed=5)["pool"])


def test_a_stream_is_read_once_and_may_be_sorted_by_class(train, new):
    reads = iter(batches(train, 100))
    by_class = FeatureBank.from_batches(reads, centres=30)
    assert next(reads, None) is None
    shuffled = FeatureBank.from_batches(batches(np.random.default_rng(4).permutation(train), 100), centres=30)
    assert mean_distance(by_class, new) == pytest.approx(mean_distance(shuffled, new), rel=0.03)


def test_a_long_stream_keeps_a_bounded_sample_that_is_fair_to_all_of_it():
    sample = FeatureSample(500, seed=0)
    for number in range(200):
        sample.add({"position": np.full((100, 2), [number + 1.0, 200.0 - number])})
    rows = sample.rows()["position"].astype(np.float64)
    assert (sample.n_seen, rows.shape) == (20_000, (500, 2))
    positions = 201 * rows[:, 0] / rows.sum(axis=1)
    assert abs(positions.mean() - 100.5) < 3 * 200 / np.sqrt(12 * 500)
    assert sum(part.nbytes for parts in sample._parts.values() for part in parts) == 500 * 2 * 2


def test_workers_that_know_the_numbers_of_their_rows_keep_the_sample_of_one_process(train):
    order, whole = np.random.default_rng(2).permutation(len(train)), FeatureSample(300, seed=5)
    whole.add({"pool": train})
    for n_samples in (None, len(train)):
        merged = FeatureSample.for_centres(5, 5, n_samples)
        merged.size = 300
        for numbers in np.array_split(order, 7):
            worker = FeatureSample.for_centres(5, 5, n_samples)
            worker.size = 300
            worker.add({"pool": train[numbers]}, numbers)
            merged.merge(worker)
        np.testing.assert_array_equal(merged.rows()["pool"], whole.rows()["pool"])
    with pytest.raises(ValueError, match="one number per row"):
        merged.add({"pool": train}, order[:3])


def test_samples_of_several_workers_are_a_sample_of_all(train, new):
    workers = []
    for number, part in enumerate(np.array_split(train, 3)):
        workers.append(FeatureSample(2_000, seed=number))
        workers[-1].add({"pool": part})
    first, *others = workers
    for other in others:
        first.merge(other)
    joint = FeatureBank.from_sample(first, centres=30)
    assert first.n_seen == len(train)
    assert mean_distance(joint, new) == pytest.approx(
        mean_distance(FeatureBank({"pool": train}, centres=30), new), rel=0.03
    )


def test_a_seed_decides(train):
    one, two, other = (FeatureBank({"pool": train}, centres=20, seed=seed)["pool"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_merged_banks_are_as_good_as_one_of_all_data(train, new):
    first, second = FeatureBank({"pool": train[:3_000]}, centres=40), FeatureBank({"pool": train[3_000:]}, centres=40)
    merged, whole = first.merge(second), FeatureBank({"pool": train}, centres=40)
    assert merged.centres == 40
    assert mean_distance(merged, new) == pytest.approx(mean_distance(whole, new), rel=0.1)
    assert mean_distance(first, new) > 1.5 * mean_distance(merged, new)


def test_an_updated_bank_knows_the_new_training_data(train):
    bank = FeatureBank({"pool": train}, centres=40)
    strange = np.random.default_rng(9).normal(size=(1, 24)) + 0.1 * np.random.default_rng(8).normal(size=(500, 24))
    updated = bank.updated({"pool": strange})
    assert updated.centres == 40
    assert mean_distance(updated, strange) < 0.5 * mean_distance(bank, strange)
    assert mean_distance(updated, train[::10]) < 1.2 * mean_distance(bank, train[::10])


def test_what_needs_rows_says_so(train, new):
    bank = FeatureBank({"pool": train}, centres=20)
    rows = FeatureBank({"pool": train}, k=5)
    for options in ({"k": 3}, {"k": [1, 2]}, {"exclude_self": True}):
        with pytest.raises(ValueError, match="need rows"):
            bank.distances({"pool": new}, **options)
    with pytest.raises(ValueError, match="need rows"):
        DAC(bank, scores="published_code").measure(Outputs(np.eye(600, 3), features={"pool": new}))
    with pytest.raises(ValueError, match="Only banks with centres"):
        rows.merge(rows)
    with pytest.raises(ValueError, match="same layers"):
        bank.merge(FeatureBank({"other": train}, centres=20))
    with pytest.raises(ValueError, match="same layers and widths"):
        FeatureBank.from_batches([{"pool": train}, {"pool": train[:, :5]}])
    with pytest.raises(ValueError, match="no samples"):
        FeatureBank.from_batches([])


@pytest.mark.parametrize("rows", [np.zeros((30, 4)), np.tile(np.eye(4), (10, 1)), np.ones((1, 4))])
def test_degenerate_training_data_make_a_bank(rows):
    bank = FeatureBank({"pool": rows})
    found = bank.distances({"pool": np.array([[0.0, 0, 0, 0], [1, 0, 0, 0]])})
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], np.sqrt(2), atol=1e-4)
    assert bank.distances({"pool": np.zeros((0, 4))}).shape == (0, 1)


def test_zero_rows_are_no_centre(train, new):
    with_zeros = np.concatenate([train, np.zeros((3_000, 24), np.float32)])
    assert mean_distance(FeatureBank({"pool": with_zeros}, centres=40), new) < 1.05 * mean_distance(
        FeatureBank({"pool": train}, centres=40), new
    )


def test_torch_measures_the_same_distances(train, new):
    torch = pytest.importorskip("torch")
    bank = FeatureBank({"pool": train}, centres=50)
    found = bank.distances({"pool": torch.from_numpy(new)})
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), bank.distances({"pool": new}), atol=1e-5)
    of_tensors = FeatureBank({"pool": torch.from_numpy(train)}, centres=50)
    assert mean_distance(of_tensors, new) == pytest.approx(mean_distance(bank, new), rel=0.02)


def test_a_saved_bank_measures_the_same_and_can_be_merged(train, new, tmp_path):
    rng = np.random.default_rng(0)
    bank = FeatureBank({"pool": train})
    logits, labels = rng.normal(size=(600, 3)) * 3, rng.integers(0, 3, 600)
    dac = DAC(bank).fit(Outputs(logits, labels, {"pool": new}))
    dac.save(tmp_path / "dac.densecal")
    loaded = densecal.load(tmp_path / "dac.densecal").bank
    assert loaded.fingerprint == bank.fingerprint
    np.testing.assert_array_equal(loaded.distances({"pool": new}), bank.distances({"pool": new}))
    np.testing.assert_array_equal(loaded.merge(loaded)["pool"], bank.merge(bank)["pool"])
    assert (tmp_path / "dac.densecal").stat().st_size < 500 * 24 * 2 + 500 * 4 + 8_000


def test_layers_with_different_numbers_of_centres_are_saved_and_restored(new):
    rng = np.random.default_rng(0)
    few = np.repeat(rng.normal(size=(7, 3)), 40, axis=0)
    bank = FeatureBank({"narrow": few, "wide": rng.normal(size=(280, 8))}, centres=60)
    assert len(bank["narrow"]) < len(bank["wide"])
    restored = FeatureBank.from_state(bank.state())
    assert np.array_equal(restored["narrow"], bank["narrow"])


def test_the_number_of_threads_does_not_change_the_centres_and_is_restored(train):
    def n_threads():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before, of_two = n_threads(), FeatureBank({"pool": train})["pool"]
        assert n_threads() == before
    with threadpool_limits(1, user_api="blas"):
        np.testing.assert_array_equal(FeatureBank({"pool": train})["pool"], of_two)
