from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))

from device_data import decode, encode  # noqa: E402
from neighbours import kth_distances, kth_largest  # noqa: E402
from packing import pack_weights, unpack_weights  # noqa: E402

KS = (1, 10, 50, 200)


def by_sorting(values: torch.Tensor) -> torch.Tensor:
    return values.sort(dim=1, descending=True).values[:, [k - 1 for k in KS]]


@pytest.mark.parametrize("count", [300, 6000, 6007])
def test_the_kth_largest_is_the_one_that_sorting_finds(count):
    values = torch.randn(40, count, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(kth_largest(values, KS), by_sorting(values), rtol=0, atol=1e-4)


def test_ties_and_crowded_rows_are_still_exact():
    values = torch.randn(6, 6000, generator=torch.Generator().manual_seed(0))
    values[0] = 0.5
    values[1, :300] = 9.0
    values[2] = (values[2] > 1).float()
    torch.testing.assert_close(kth_largest(values, KS), by_sorting(values), rtol=0, atol=1e-4)


def test_collapsed_features_keep_their_small_distances():
    generator = torch.Generator().manual_seed(0)
    centre = torch.nn.functional.normalize(torch.randn(1, 64, generator=generator), dim=1)
    bank = torch.nn.functional.normalize(centre + 1e-3 * torch.randn(6000, 64, generator=generator), dim=1)
    queries = torch.nn.functional.normalize(centre + 1e-3 * torch.randn(20, 64, generator=generator), dim=1)
    wanted = torch.cdist(queries.double(), bank.double()).sort(dim=1).values[:, [k - 1 for k in KS]]
    torch.testing.assert_close(kth_distances(queries, bank, KS).double(), wanted, rtol=0, atol=2e-4)


@pytest.mark.parametrize("shape", [(3, 32, 32, 3), (4, 28, 28, 1)])
def test_packed_images_come_back_unchanged(shape):
    images = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    assert (decode(encode(images), shape) == images).all()


def test_weights_cut_into_pieces_come_back_joined(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    monkeypatch.setattr("packing.FILE_BYTES", 4000)
    weights = {"a.weight": torch.randn(100, 50), "b.count": torch.tensor(7), "c.bias": torch.randn(3)}
    save_file(weights, tmp_path / "net.safetensors")
    list(pack_weights(tmp_path / "net.safetensors", tmp_path))
    pieces = sorted(tmp_path.glob("net-weights.*"))
    assert len(pieces) > 2
    back = unpack_weights(pieces)
    assert set(back) == set(weights)
    torch.testing.assert_close(back["a.weight"], weights["a.weight"], rtol=1e-3, atol=1e-3)
    assert back["b.count"] == 7
