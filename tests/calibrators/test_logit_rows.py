from __future__ import annotations

import numpy as np
import pytest

import densecal
from densecal import arrays
from densecal.arrays import by_row_blocks, keep_top_class
from densecal.calibrators.solvers.logit_rows import centre_rows, for_fit


def test_centred_rows_do_not_feel_a_large_constant():
    logits = np.array([[0.5, -0.25, 1.0]], dtype=np.float32)
    np.testing.assert_allclose(centre_rows(logits + np.float32(2**16)), centre_rows(logits), atol=1e-2)
    np.testing.assert_array_equal(centre_rows(logits + np.float32(64)), centre_rows(logits))


def test_the_fits_order_depends_on_the_samples_alone():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    order = rng.permutation(50)
    expected, again = for_fit(logits, labels), for_fit(logits[order], labels[order])
    np.testing.assert_array_equal(expected[0], again[0])
    np.testing.assert_array_equal(expected[1], again[1])
    assert (np.diff(expected[1]) >= 0).all()


def test_rows_with_the_same_numbers_in_another_order_are_told_apart():
    logits = np.array([[3.0, 1.0, 0.0], [3.0, 0.0, 1.0]])
    labels = np.array([0, 0])
    expected, again = for_fit(logits, labels), for_fit(logits[::-1], labels)
    np.testing.assert_array_equal(expected[0], again[0])


def test_a_map_by_blocks_is_the_map(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(arrays, "CACHED_BYTES", 64)
    monkeypatch.setattr(arrays, "TORCH_BLOCK_BYTES", 64)
    logits = np.arange(21.0).reshape(7, 3)
    np.testing.assert_array_equal(by_row_blocks(np.exp, logits), np.exp(logits))
    np.testing.assert_array_equal(by_row_blocks(torch.exp, torch.from_numpy(logits)), torch.from_numpy(logits).exp())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_tie_is_broken_by_one_digit_for_arrays_and_tensors_alike(dtype):
    torch = pytest.importorskip("torch")
    probabilities = np.array([[0.4, 0.4, 0.2], [0.1, 0.6, 0.3]], dtype=dtype)
    logits = np.array([[0.0, 1.0, -1.0], [0.0, 1.0, -1.0]], dtype=dtype)
    from_tensors = keep_top_class(torch.from_numpy(probabilities.copy()), torch.from_numpy(logits)).numpy()
    from_arrays = keep_top_class(probabilities.copy(), logits)
    np.testing.assert_array_equal(from_arrays.argmax(axis=1), [1, 1])
    np.testing.assert_array_equal(from_arrays, from_tensors)
    np.testing.assert_allclose(from_arrays, probabilities, rtol=1e-6)
    np.testing.assert_array_equal(from_arrays[1], probabilities[1])


@pytest.mark.parametrize("name", ["pts", "vs", "dir", "dia"])
def test_a_fit_on_the_tensors_own_device_ends_where_the_arrays_fit_does(name, ten_classes, monkeypatch):
    """A GPU's tensors stay on it; here the CPU plays the GPU."""
    torch = pytest.importorskip("torch")
    logits, labels = ten_classes
    expected = densecal.make_calibrator(name).fit(logits, labels).predict_proba(logits)
    monkeypatch.setattr(logit_rows, "_lies_on_cpu", lambda tensor: False)
    tensors = torch.from_numpy(logits), torch.from_numpy(labels)
    ours = densecal.make_calibrator(name).fit(*tensors).predict_proba(tensors[0])
    np.testing.assert_allclose(ours.numpy(), expected, atol=0.02)
    assert np.abs(ours.numpy() - expected).mean() < 1e-3


def test_distances_without_rows_are_refused():
    rng = np.random.default_rng(0)
    dac = densecal.DAC().fit(rng.normal(size=(90, 3)), rng.integers(0, 3, 90), distances=rng.uniform(size=(90, 2)))
    with pytest.raises(ValueError, match=r"distances must have shape \(n_samples > 0, n_layers\), got \(0, 2\)"):
        dac.temperatures(distances=np.empty((0, 2)))
