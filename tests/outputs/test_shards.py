from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest

import densecal
from densecal import Outputs, TemperatureScaling
from densecal.errors import ArtefactError
from densecal.outputs.shards import shard_name


def make_outputs(n_samples, seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_samples, 4)).astype(dtype)
    features = {"pool": rng.normal(size=(n_samples, 3)).astype(np.float16)}
    return Outputs(logits, rng.integers(4, size=n_samples), features, metadata={"condition": "fog", "rank": str(seed)})


@pytest.fixture
def parts():
    return [make_outputs(size, seed) for seed, size in enumerate((5, 3, 7))]


def save(parts, folder, suffix=".safetensors"):
    for place, part in enumerate(parts):
        part.save(folder / shard_name("test", place, len(parts), suffix))


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_shards_are_one_data_set_in_the_order_of_their_numbers(parts, tmp_path, suffix):
    save(parts, tmp_path, suffix)
    shards, whole = Outputs.open(tmp_path), Outputs.concatenate(parts)
    assert (len(shards), shards.n_classes, shards.layers) == (15, 4, ("pool",))
    assert shards.metadata == {"condition": "fog"}
    assert np.array_equal(shards.labels, whole.labels)
    joined = Outputs.concatenate(shards.batches(2))
    for found in (joined, shards.load()):
        assert np.array_equal(found.logits, whole.logits)
        assert np.array_equal(found.features["pool"], whole.features["pool"])
    assert max(len(batch) for batch in shards.batches(2)) == 2


@pytest.mark.parametrize(
    "rows", [3, -1, slice(4, 9), slice(None, None, -2), [12, 0, 7], np.arange(15) % 2 == 0], ids=str
)
def test_rows_are_those_of_the_joined_outputs(parts, tmp_path, rows):
    save(parts, tmp_path)
    found, expected = Outputs.open(tmp_path)[rows], Outputs.concatenate(parts)[rows]
    assert np.array_equal(found.logits, expected.logits)
    assert np.array_equal(found.labels, expected.labels)


def test_parts_hold_no_arrays_until_they_are_read(tmp_path):
    parts = [make_outputs(1000, seed) for seed in range(2)]
    save(parts, tmp_path, ".npz")
    found = Outputs.open(tmp_path).parts()
    assert all(len(pickle.dumps(part)) < 2000 for _, part in found)
    assert np.array_equal(found[1][1].load().logits, parts[1].logits)


def test_half_precision_is_read_as_float32(tmp_path):
    part = make_outputs(6, 0, np.float16)
    part.save(tmp_path / "one.safetensors")
    (batch,) = Outputs.open(tmp_path).batches()
    assert batch.logits.dtype == np.float32
    assert np.array_equal(batch.logits, part.logits.astype(np.float32))


def test_a_missing_shard_is_named_and_a_sequence_of_files_may_go_without_it(parts, tmp_path):
    save(parts, tmp_path)
    (tmp_path / shard_name("test", 1, 3)).unlink()
    with pytest.raises(ValueError, match=r"2 of 3 shards of test; missing: 1"):
        Outputs.open(tmp_path)
    assert len(Outputs.open(sorted(tmp_path.iterdir()))) == 12
    assert len(Outputs.open(tmp_path / shard_name("test", 2, 3))) == 7


def test_a_shard_that_is_there_twice_is_an_error(parts, tmp_path):
    save(parts, tmp_path)
    parts[0].save(tmp_path / shard_name("test", 0, 3, ".npz"))
    with pytest.raises(ValueError, match="holds the shard test-00000-of-00003 twice"):
        Outputs.open(tmp_path)


def test_a_file_named_twice_is_an_error(parts, tmp_path):
    save(parts, tmp_path)
    one, other, _ = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match="holds the shard test-00000-of-00003 twice"):
        Outputs.open([one, other, one])
    plain = tmp_path / "plain.safetensors"
    parts[0].save(plain)
    with pytest.raises(ValueError, match="hold the same data"):
        Outputs.open([plain, plain])


def test_the_same_data_under_two_numbers_are_an_error(parts, tmp_path):
    save(parts, tmp_path)
    shutil.copy(tmp_path / shard_name("test", 0, 3), tmp_path / shard_name("test", 1, 3))
    with pytest.raises(ValueError, match="hold the same data"):
        Outputs.open(tmp_path)


def test_shards_of_different_runs_data_sets_or_classifiers_are_not_joined(parts, tmp_path):
    save(parts, tmp_path)
    parts[0].save(tmp_path / "other" / shard_name("test", 0, 2))
    with pytest.raises(ValueError, match="different runs"):
        Outputs.open([*tmp_path.glob("*.safetensors"), *(tmp_path / "other").iterdir()])
    parts[0].save(tmp_path / "val-00000-of-00001.safetensors")
    with pytest.raises(ValueError, match="different data sets: test, val"):
        Outputs.open(tmp_path)
    assert len(Outputs.open(tmp_path / "test-*.safetensors")) == 15
    Outputs([[1.0, 2.0]], labels=[0]).save(tmp_path / shard_name("test", 1, 3))
    with pytest.raises(ValueError, match="not shards of one data set"):
        Outputs.open(tmp_path / "test-*.safetensors")


def test_a_sequence_may_hold_the_shards_of_several_data_sets_in_order(parts, tmp_path):
    files = [tmp_path / shard_name(name, place, 2) for name in ("web", "scans") for place in range(2)]
    for seed, file in enumerate(files):
        make_outputs(2 + seed, seed).save(file)
    assert Outputs.open(files).paths == tuple(files) and len(Outputs.open(files)) == 14


def test_files_without_numbers_come_in_natural_order(tmp_path):
    for number in (10, 2, 1):
        Outputs([[float(number), 0.0]], labels=[0]).save(tmp_path / f"part-{number}.safetensors")
    assert Outputs.open(tmp_path).load().logits[:, 0].tolist() == [1, 2, 10]


def test_a_file_that_is_replaced_meanwhile_is_not_mixed_with_the_old_one(parts, tmp_path):
    save(parts, tmp_path)
    shards = Outputs.open(tmp_path)
    make_outputs(3, 9).save(tmp_path / shard_name("test", 1, 3))
    with pytest.raises(ArtefactError, match=r"test-00001-of-00003.safetensors was replaced"):
        list(shards.batches())


def test_damage_that_keeps_the_size_is_found_when_all_is_read_or_on_request(parts, tmp_path):
    save(parts, tmp_path)
    path = tmp_path / shard_name("test", 2, 3)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match="does not match its checksum"):
        Outputs.open(tmp_path, verify=True)
    with pytest.raises(ArtefactError, match="does not match its checksum"):
        Outputs.open(tmp_path).load()


def test_a_row_that_is_not_finite_is_told_with_its_file(tmp_path):
    for place, value in enumerate((0.0, np.inf)):
        path = tmp_path / shard_name("test", place, 2, ".npz")
        np.savez(path, logits=np.full((2, 4), value), labels=[0, 1])
    with pytest.raises(ValueError, match=r"test-00001-of-00002.npz: logits must be finite"):
        list(Outputs.open(tmp_path).batches())


def test_a_sample_is_random_rows_in_their_order(parts, tmp_path):
    save(parts, tmp_path)
    shards, whole = Outputs.open(tmp_path), Outputs.concatenate(parts)
    assert np.array_equal(shards.sample(6, seed=3).logits, whole.sample(6, seed=3).logits)
    assert len(whole.sample(6)) == 6
    assert whole.sample(15) is whole
    assert not np.array_equal(whole.sample(6, seed=1).labels, whole.sample(6, seed=2).labels)


def test_a_calibrator_says_how_to_use_shards(parts, tmp_path):
    save(parts, tmp_path)
    with pytest.raises(TypeError, match=r"fit on shards.sample\(n\)"):
        TemperatureScaling().fit(densecal.Outputs.open(tmp_path))


def test_tables_keep_the_order_of_their_columns_but_several_follow_the_first(tmp_path):
    (tmp_path / "a.csv").write_text("logit_cat,logit_dog,label\n3,1,cat\n")
    (tmp_path / "b.csv").write_text("logit_dog,logit_cat,label\n3,1,dog\n")
    alone = Outputs.load(tmp_path / "b.csv")
    assert (alone.logits.tolist(), alone.labels.tolist()) == ([[3, 1]], [0])
    both = Outputs.open([tmp_path / "a.csv", tmp_path / "b.csv"]).load()
    assert (both.logits.tolist(), both.labels.tolist()) == ([[3, 1], [1, 3]], [0, 1])
