"""Safetensors files: what is written is read, and no header is trusted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from densecal import ArtefactError, Outputs
from densecal.io import safetensors_file

ARRAYS = {
    "half": np.arange(5, dtype=np.float16),
    "wide": np.arange(6.0).reshape(2, 3),
    "none": np.empty((0, 4), np.int64),
}


def written_by_hand(path, entries, data=b""):
    text = entries if isinstance(entries, str) else json.dumps(entries)
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + data)
    return path


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_the_library_reads_what_densecal_writes_and_the_reverse(tmp_path):
    safetensors_file.write(tmp_path / "ours", {"format": "any"}, ARRAYS)
    save_file(ARRAYS, tmp_path / "theirs")
    header, ours = safetensors_file.read(tmp_path / "ours")
    for arrays in (load_file(tmp_path / "ours"), ours, safetensors_file.read(tmp_path / "theirs")[1]):
        for name, array in ARRAYS.items():
            assert arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(arrays[name], array)
    assert header == {"format": "any"}


def test_big_endian_and_longdouble_arrays_are_written_as_their_values(tmp_path):
    values = np.array([[1.5, -2.0], [0.25, 3.0]])
    for dtype in (">f4", ">f8", np.longdouble):
        Outputs(values.astype(dtype), features={"pool": values.astype(dtype)}).save(tmp_path / "val.safetensors")
        got = Outputs.load(tmp_path / "val.safetensors")
        np.testing.assert_array_equal(got.logits, values)
        np.testing.assert_array_equal(got.features["pool"], values)


@pytest.mark.parametrize("place", range(0, 520, 13))
def test_every_flipped_bit_is_noticed(tmp_path, place):
    path = tmp_path / "val.safetensors"
    Outputs([[2.0, 1.0], [0.0, 3.0]], [0, 1], {"pool": np.ones((2, 9))}).save(path)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << place % 8
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match=r"val\.safetensors"):
        Outputs.load(path)


@pytest.mark.parametrize(
    ("entries", "data", "message"),
    [
        ({"logits": entry([268435456], 0, 0)}, b"", "'logits' needs 1073741824 bytes, but has 0"),
        ({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12), "'b' overlaps"),
        ({"a": entry([1], 4, 8)}, bytes(8), "'a' overlaps another one or follows a gap"),
        ({"a": entry([1], 0, 4)}, bytes(8), "has 8 bytes of data, but its header requires 4"),
        ({"a": entry([2], 0, 8)}, bytes(4), "truncated: it has 4 bytes"),
        ({"a": entry([-1, -1], 0, 4)}, bytes(4), "no valid dtype, shape"),
        ({"a": entry([True], 0, 4)}, bytes(4), "no valid dtype, shape"),
        ({"a": entry([1], 0, 1, "F8_E4M3")}, bytes(1), "unsupported dtype 'F8_E4M3'"),
        ({"a": entry([0, 2**62, 2**62], 0, 0)}, b"", "wrong shape"),
        ({"a": {"dtype": "F32"}}, b"", "no valid dtype, shape"),
        ({"a": 3}, b"", "no valid dtype, shape"),
        ({"__metadata__": 3}, b"", "__metadata__ must map"),
        ({"__metadata__": {"densecal": "[1]"}}, b"", "not an object"),
        ({"__metadata__": {"densecal": '{"format": "densecal.outputs"}'}}, b"", "no checksum"),
        ('{"a": 1, "a": 2}', b"", "no valid JSON"),
        ("[" * 100_000, b"", "no valid JSON .RecursionError"),
        ("[]", b"", "not an object"),
    ],
)
def test_a_malformed_header_is_refused_before_anything_is_allocated(tmp_path, entries, data, message):
    path = written_by_hand(tmp_path / "bomb.safetensors", entries, data)
    with pytest.raises(ArtefactError, match=rf"bomb\.safetensors.*{message}"):
        safetensors_file.read(path)
    assert safetensors_file.read_header(path) in ({}, {"format": "densecal.outputs"})
