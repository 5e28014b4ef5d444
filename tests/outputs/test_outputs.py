from __future__ import annotations

import errno
import io
import os
import zipfile
from mmap import mmap

import numpy as np
import pytest

import densecal
from densecal import Outputs


@pytest.fixture
def outputs():
    rng = np.random.default_rng(0)
    features = {"conv/1": rng.normal(size=(20, 8)).astype(np.float16), "pool": rng.normal(size=(20, 3))}
    return Outputs(rng.normal(size=(20, 4)), rng.integers(0, 4, 20), features, metadata={"data": "made up"})


def assert_same(left: Outputs, right: Outputs) -> None:
    np.testing.assert_array_equal(left.logits, right.logits)
    np.testing.assert_array_equal(left.labels, right.labels)
    assert left.layers == right.layers
    for layer in left.layers:
        np.testing.assert_array_equal(left.features[layer], right.features[layer])


def test_a_saved_file_comes_back_as_it_was_and_half_precision_stays_half(outputs, tmp_path):
    outputs.save(tmp_path / "val.safetensors")
    loaded = Outputs.load(tmp_path / "val.safetensors")
    assert_same(loaded, outputs)
    assert loaded.features["conv/1"].dtype == np.float16
    assert loaded.metadata == {"data": "made up"}


def test_a_loaded_file_is_memory_mapped(outputs, tmp_path):
    outputs.save(tmp_path / "val.safetensors")
    assert isinstance(Outputs.load(tmp_path / "val.safetensors").features["pool"].base.base.obj, mmap)


def test_outputs_load_from_npz_and_from_a_folder_of_npy(outputs, tmp_path):
    arrays = {"logits": outputs.logits, "labels": outputs.labels}
    arrays |= {f"features/{name}": array for name, array in outputs.features.items()}
    np.savez(tmp_path / "val.npz", **arrays)
    for name, array in arrays.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "folder" / f"{name}.npy", array)
    for source in ("val.npz", "folder"):
        assert_same(Outputs.load(tmp_path / source), outputs)


def test_slices_masks_and_index_arrays_cut_every_array_alike(outputs):
    mask = np.arange(20) % 2 == 0
    for rows in (slice(3, 9), mask, np.array([5, 1, 1]), 7):
        part = outputs[rows]
        assert len(part) == len(part.labels) == len(part.features["pool"])
    np.testing.assert_array_equal(outputs[np.array([5, 1])].labels, outputs.labels[[5, 1]])
    np.testing.assert_array_equal(outputs[-1].logits, outputs.logits[-1:])


def test_concatenation_undoes_slicing(outputs):
    assert_same(Outputs.concatenate([outputs[:7], outputs[7:]]), outputs)


def test_a_split_by_name_has_the_samples_of_each_name_in_their_order(outputs):
    names = np.array(["fog", "blur"])[np.arange(len(outputs)) % 2]
    parts = outputs.split(names)
    assert list(parts) == ["blur", "fog"]
    assert_same(parts["fog"], outputs[::2])
    assert_same(parts["blur"], outputs[1::2])


def test_torch_tensors_are_kept_and_saved(tmp_path):
    torch = pytest.importorskip("torch")
    outputs = Outputs(torch.randn(3, 2), torch.tensor([0, 1, 1]), {"pool": torch.randn(3, 4).half()})
    assert isinstance(outputs[1:].logits, torch.Tensor)
    outputs.save(tmp_path / "t.safetensors")
    np.testing.assert_array_equal(Outputs.load(tmp_path / "t.safetensors").logits, outputs.logits.numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits": np.zeros(5)}, "shape .n_samples, n_classes."),
        ({"logits": np.array([[1.0, np.nan]])}, "NaN or infinite, first in row 0"),
        ({"logits": np.ones((3, 2)), "labels": [0, 1]}, "labels must have shape"),
        ({"logits": np.ones((2, 2)), "labels": [0, 2]}, "0 ... 1 for 2 classes"),
        ({"logits": np.ones((2, 2)), "features": {"pool": np.ones((3, 4))}}, "3 samples but logits have 2"),
        ({"logits": np.ones((2, 2)), "features": {"map": np.ones((2, 4, 4))}}, "Average feature maps over"),
        (
            {"logits": np.ones((2, 2)), "features": {"pool": np.full((2, 1), np.inf)}},
            r"features\['pool'\] must be finite",
        ),
    ],
)
def test_bad_arrays_are_named_at_construction(arguments, message):
    with pytest.raises(ValueError, match=message):
        Outputs(**arguments)


def test_outputs_of_different_classifiers_do_not_concatenate(outputs):
    with pytest.raises(ValueError, match="outputs of different classifiers"):
        Outputs.concatenate([outputs, Outputs(np.zeros((2, 4)), [0, 1])])


def test_a_truncated_file_says_so(outputs, tmp_path):
    path = tmp_path / "val.safetensors"
    outputs.save(path)
    whole = path.read_bytes()
    for cut in (0, 5, 60, len(whole) - 10):
        path.write_bytes(whole[:cut])
        with pytest.raises(densecal.ArtefactError, match="truncated|cannot be read"):
            Outputs.load(path)


def test_a_missing_or_foreign_file_says_what_was_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Outputs.load(tmp_path / "nothing.safetensors")
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    with pytest.raises(densecal.ArtefactError, match="no array named 'logits'"):
        Outputs.load(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("not a zip")
    with pytest.raises(densecal.ArtefactError, match="npz"):
        Outputs.load(tmp_path / "text.npz")


def test_a_save_that_fails_leaves_the_old_file_whole(outputs, tmp_path, monkeypatch):
    path = tmp_path / "val.safetensors"
    outputs.save(path)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    with pytest.raises(OSError, match=r"val\.safetensors was not written: No space left on device"):
        outputs[:3].save(path)
    assert len(Outputs.load(path)) == 20
    assert [file.name for file in tmp_path.iterdir()] == ["val.safetensors"]


def test_outputs_saved_as_npz_are_a_true_npz_file_with_all_that_was_in_them(outputs, tmp_path):
    outputs.save(tmp_path / "o.npz")
    with np.load(tmp_path / "o.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["logits"], outputs.logits)
    loaded = Outputs.load(tmp_path / "o.npz")
    assert_same(loaded, outputs)
    assert loaded.metadata == outputs.metadata


@pytest.mark.parametrize("name", ["o.csv", "o.pt", "o.npy", "o.pkl"])
def test_outputs_are_not_saved_under_a_name_that_says_something_else(outputs, tmp_path, name):
    with pytest.raises(ValueError, match=r"\.safetensors or \.npz"):
        outputs.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("written", "named"), [("o.safetensors", "o.npz"), ("o.npz", "o.safetensors")])
def test_a_file_that_is_not_what_its_suffix_says_is_named_for_what_it_is(outputs, tmp_path, written, named):
    outputs.save(tmp_path / written)
    (tmp_path / written).rename(tmp_path / named)
    with pytest.raises(densecal.ArtefactError, match=f"Rename it to {written}"):
        Outputs.load(tmp_path / named)


@pytest.mark.parametrize("name", ["o.npz", "o.safetensors", "o.pkl", "o.npy"])
def test_nobody_is_advised_to_unpickle(tmp_path, name):
    import pickle

    (tmp_path / name).write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(densecal.ArtefactError) as caught:
        Outputs.load(tmp_path / name)
    assert "pickle.load" not in str(caught.value)
    assert "allow_pickle" not in str(caught.value)


def test_an_array_of_objects_is_refused_by_its_name(tmp_path):
    np.savez(tmp_path / "o.npz", logits=np.eye(2), labels=np.array(["a", 1], dtype=object))
    with pytest.raises(densecal.ArtefactError, match=r"'labels' holds .*array.astype\(str\), or array.astype\(int"):
        Outputs.load(tmp_path / "o.npz")
    np.savez(tmp_path / "o.npz", logits=np.eye(2).astype(object))
    with pytest.raises(densecal.ArtefactError, match=r"'logits' holds Python objects.*first: array.astype\(float\)"):
        Outputs.load(tmp_path / "o.npz")


@pytest.mark.parametrize("name", ["note", "metadata"])
def test_an_array_of_objects_that_is_not_used_is_ignored(tmp_path, name):
    arrays = {"logits": np.eye(2), name: np.array([{"a": 1}, None])}
    np.savez(tmp_path / "o.npz", **arrays)
    (tmp_path / "folder").mkdir()
    for stem, array in arrays.items():
        np.save(tmp_path / "folder" / f"{stem}.npy", array, allow_pickle=True)
    for source in ("o.npz", "folder"):
        with pytest.warns(densecal.CalibrationWarning, match=f"{name} is ignored"):
            assert Outputs.load(tmp_path / source).n_classes == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [("x.npy", "np.load('"), ("x.pt", "weights_only=True"), ("x.pkl", "numpy.savez")],
)
def test_a_format_that_is_not_read_is_answered_with_those_that_are_and_a_conversion(tmp_path, name, words):
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(densecal.ArtefactError, match=r"reads \.safetensors and \.npz") as caught:
        Outputs.load(tmp_path / name)
    assert words in str(caught.value)
    assert "features/LAYER" in str(caught.value)


def test_the_advised_conversion_of_an_npy_file_works(outputs, tmp_path, monkeypatch):
    import re
    import shlex
    import subprocess
    import sys

    monkeypatch.chdir(tmp_path)
    np.save("x.npy", outputs.logits)
    np.save("labels.npy", outputs.labels)
    with pytest.raises(densecal.ArtefactError) as caught:
        Outputs.load("x.npy")
    command = shlex.split(re.search(r"Convert it: (.*)", str(caught.value))[1])
    subprocess.run([sys.executable, *command[1:]], check=True)
    np.testing.assert_array_equal(Outputs.load("x.npz").labels, outputs.labels)


def test_an_array_under_a_name_that_is_not_read_is_warned_of(tmp_path):
    np.savez(tmp_path / "x.npz", logits=3 * np.eye(2), y=[0, 1])
    with pytest.warns(densecal.CalibrationWarning, match="y is ignored. Expected names: logits, labels") as caught:
        assert Outputs.load(tmp_path / "x.npz").labels is None
    assert caught[0].filename == __file__


def test_a_safetensors_file_of_another_program_is_read_by_the_arrays_names(outputs, tmp_path):
    from safetensors.numpy import save_file

    save_file({"logits": outputs.logits, "labels": outputs.labels}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(Outputs.load(tmp_path / "x.safetensors").labels, outputs.labels)


def test_a_table_of_numbered_logits_and_a_label_is_read(tmp_path):
    (tmp_path / "x.csv").write_text("label,logit1,logit0\n1,2.5,-1\n0,0.5,3\n")
    loaded = Outputs.load(tmp_path / "x.csv")
    np.testing.assert_array_equal(loaded.logits, [[-1, 2.5], [3, 0.5]])
    np.testing.assert_array_equal(loaded.labels, [1, 0])


@pytest.mark.parametrize("header", ["id,logit0,logit1", ",0,1", "0,2,label", "predicted,confidence,p0"])
def test_a_column_that_is_not_a_class_is_never_taken_for_one(tmp_path, header):
    (tmp_path / "x.csv").write_text(f"{header}\n1,2,0\n")
    with pytest.raises(densecal.ArtefactError, match="has the columns"):
        Outputs.load(tmp_path / "x.csv")


def test_what_is_wrong_with_a_files_arrays_is_said_with_the_files_name(tmp_path):
    np.savez(tmp_path / "bad.npz", logits=3 * np.eye(2), labels=[0, 7])
    with pytest.raises(ValueError, match=r"bad\.npz: labels must lie in 0 \.\.\. 1"):
        Outputs.load(tmp_path / "bad.npz")


def test_an_npz_bomb_is_refused_unless_its_size_is_allowed(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, logits=np.zeros((40_000_000, 2), np.float32), labels=np.zeros(3, int))
    with pytest.raises(
        densecal.ArtefactError, match=r"bomb\.npz has .* bytes, but its arrays need 320,0.*max_bytes=320"
    ):
        Outputs.load(path)
    np.savez_compressed(path, logits=np.zeros((4000, 2), np.float32))
    assert len(Outputs.load(path)) == 4000
    with pytest.raises(densecal.ArtefactError, match="max_bytes"):
        Outputs.load(path, max_bytes=1000)


def test_an_array_whose_header_promises_more_than_the_archive_holds_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 2)})
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        archive.writestr("logits.npy", header.getvalue() + bytes(64))
    with pytest.raises(densecal.ArtefactError, match=r"bomb\.npz is not a valid \.npz file"):
        Outputs.load(tmp_path / "bomb.npz")


@pytest.mark.parametrize("columns", ["logit0,logit_0,logit1", "logit0,logit0,logit1", "0,1,label,labels"])
def test_a_csv_file_with_a_column_twice_is_refused(tmp_path, columns):
    (tmp_path / "val.csv").write_text(columns + "\n" + ",".join(["1"] * len(columns.split(","))) + "\n")
    with pytest.raises(densecal.ArtefactError, match=r"val\.csv has the columns .* each once"):
        Outputs.load(tmp_path / "val.csv")


@pytest.mark.parametrize(
    "logits",
    [
        np.ones((3, 2), bool),
        np.ones((3, 2), complex),
        np.array([["a", "b"]]),
        np.array([[1, 2.0]], object),
        np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]),
        [[1.0, 2.0], [3.0]],
    ],
    ids=["bool", "complex", "text", "object", "masked", "ragged"],
)
def test_what_are_no_numbers_is_refused_by_name(logits):
    with pytest.raises((TypeError, ValueError), match="^logits must be"):
        Outputs(logits)
    with pytest.raises((TypeError, ValueError), match="^(logits|features.'pool'.) must be"):
        Outputs([[2.0, 1.0]] * len(logits), features={"pool": logits})


def test_a_masked_array_without_masked_values_is_an_array():
    assert len(Outputs(np.ma.masked_array([[1.0, 2.0]], mask=False))) == 1


def test_types_that_only_torch_has_are_kept_as_float32(tmp_path):
    torch = pytest.importorskip("torch")
    logits = torch.tensor([[1.0, 2.0], [4.0, 0.5]])
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        Outputs(logits.to(dtype), features={"pool": logits.to(dtype)}).save(tmp_path / "val.safetensors")
        np.testing.assert_array_equal(Outputs.load(tmp_path / "val.safetensors").logits, logits.numpy())
    with pytest.raises(TypeError, match="logits must be numbers, got dtype torch.bool"):
        Outputs(logits > 1)
