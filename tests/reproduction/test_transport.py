from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from reproduction.measuring import transport  # noqa: E402


@pytest.mark.parametrize("channels", [1, 3])
def test_images_travel_without_loss(channels):
    images = np.random.default_rng(0).integers(256, size=(5, 8, 8, channels), dtype=np.uint8)
    assert (transport.decode(transport.encode(images), images.shape) == images).all()


def test_a_data_set_is_the_same_after_packing_and_unpacking(cifar100, tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "BLOCK", 15)
    pieces, out = tmp_path / "pieces", tmp_path / "unpacked"
    transport.pack_data(cifar100, "cifar100", out=pieces)
    transport.unpack_data(pieces, out)
    for split in ("train", "val", "train+val", "test"):
        here, there = (transport.open_split("cifar100", folder, split) for folder in (cifar100, out))
        assert (here.labels == there.labels).all()
        assert (here.batch(range(len(here)))[0] == there.batch(range(len(there)))[0]).all()
        assert here.classes == there.classes


def test_out_of_domain_sets_lie_beside_the_unpacked_data(tmp_path):
    np.save(tmp_path / "ood-black.npy", np.zeros((3, 32, 32, 3), np.uint8))
    (name, dataset) = next(iter(transport.open_out_of_domain(tmp_path).items()))
    assert (name, len(dataset)) == ("black", 3)


def test_weights_are_split_into_small_files_and_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "FILE_BYTES", 64)
    state = {"layer.weight": torch.arange(60.0).view(20, 3), "bias": torch.ones(3), "batches": torch.tensor(7)}
    save_file(state, tmp_path / "network.safetensors")
    transport.split_weights(tmp_path / "network.safetensors", tmp_path / "pieces")
    pieces = sorted((tmp_path / "pieces").iterdir())
    assert len(pieces) > 2
    for paths in (pieces, [tmp_path / "network.safetensors"]):
        joined = transport.join_weights(paths)
        assert joined.keys() == state.keys()
        assert all(
            torch.equal(joined[name], value) for name, value in load_file(tmp_path / "network.safetensors").items()
        )
