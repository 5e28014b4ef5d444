"""Extraction to many files: one data set however many processes write it, and nothing lost or twice."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import IterableDataset, TensorDataset  # noqa: E402

from densecal import ArtefactError, Outputs  # noqa: E402
from densecal.torch import extract, extract_shards  # noqa: E402


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def dataset():
    return TensorDataset(torch.randn(50, 4, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 3)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write(folder, model, dataset, **options):
    return extract_shards(folder, model, dataset, **{"shard_size": 8, "batch_size": 4, "progress": False, **options})


def test_any_number_of_processes_writes_the_same_files(model, dataset, tmp_path, monkeypatch):
    write(tmp_path / "one", model, dataset, metadata={"condition": "clean"})
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))  # as torchrun does
        written = write(tmp_path / "three", model, dataset, metadata={"condition": "clean"})
        assert [path.name[5:10] for path in written] == [f"{index:05}" for index in range(rank, 7, 3)]
    assert content(tmp_path / "one") == content(tmp_path / "three")
    whole, expected = Outputs.open(tmp_path / "three"), extract(model, [dataset[:]], progress=False)
    assert (len(whole), whole.layers, whole.metadata["condition"]) == (50, expected.layers, "clean")
    np.testing.assert_array_equal(whole.labels, expected.labels)
    np.testing.assert_allclose(whole.load().logits, expected.logits, atol=1e-6)


@pytest.mark.parametrize("stop_at", [0, 7, 8, 23, 49])
def test_an_interrupted_extraction_goes_on_with_any_number_of_processes(model, dataset, tmp_path, stop_at):
    class Failing(TensorDataset):
        def __getitem__(self, index):
            if index == stop_at:
                raise ConnectionError("the storage does not answer")
            return super().__getitem__(index)

    write(tmp_path / "whole", model, dataset)
    with pytest.raises(ConnectionError):
        write(tmp_path / "part", model, Failing(*dataset.tensors))
    assert len(content(tmp_path / "part")) == stop_at // 8
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "part").iterdir()}
    for rank in (1, 0):
        write(tmp_path / "part", model, dataset, rank=rank, world_size=2)
    assert all(path.stat().st_mtime_ns == then for path, then in times.items())
    assert content(tmp_path / "part") == content(tmp_path / "whole")


def test_files_of_another_extraction_are_not_mixed_with_new_ones(model, dataset, tmp_path):
    write(tmp_path, model, dataset, rank=0, world_size=2)
    before = content(tmp_path)
    other = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    for named, given, options in (
        ("weights=", other, {}),
        ("feature_dtype=torch.float32, not torch.float16", model, {"feature_dtype": torch.float16}),
        ("batch_size=4, not 2", model, {"batch_size": 2}),
        ("condition=None, not fog", model, {"metadata": {"condition": "fog"}}),
        ("none of the 5 files", model, {"shard_size": 10}),
        ("none of the 7 files", model, {"name": "test"}),
    ):
        with pytest.raises(ArtefactError, match=named):
            write(tmp_path, given, dataset, rank=1, world_size=2, **options)
    assert content(tmp_path) == before


def test_what_cannot_be_cut_into_files_is_refused(model, dataset, tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            yield from dataset

    with pytest.raises(TypeError, match="extract_to"):
        write(tmp_path, model, Stream())
    with pytest.raises(ValueError, match="rank must lie in 0 ... 1 for 2 processes, got 2"):
        write(tmp_path, model, dataset, rank=2, world_size=2)
    with pytest.raises(ValueError, match="shard_size and batch_size"):
        write(tmp_path, model, dataset, shard_size=0)
    with pytest.raises(ValueError, match="no samples"):
        write(tmp_path, model, TensorDataset(torch.zeros(0, 4)))
