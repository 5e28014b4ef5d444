"""Extraction to disk: the same values, resuming after an interruption, and no silently wrong file."""

from __future__ import annotations

import copy
import shutil
from mmap import mmap

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from densecal import ArtefactError, Outputs  # noqa: E402
from densecal.torch import extract, extract_to, resumable_extraction  # noqa: E402


class InterruptedRunError(Exception):
    pass


def stopping_after(batches, data, size=5):
    for number, batch in enumerate(DataLoader(data, batch_size=size)):
        if number == batches:
            raise InterruptedRunError
        yield batch


def test_streaming_to_disk_gives_the_same_outputs(net, data, tmp_path):
    expected = extract(net, DataLoader(data, batch_size=5))
    got = extract_to(tmp_path / "all.safetensors", net, DataLoader(data, batch_size=5))
    assert got.layers == expected.layers and isinstance(got.logits.base.base.obj, mmap)
    np.testing.assert_array_equal(got.labels, expected.labels)
    for layer in expected.layers:
        np.testing.assert_array_equal(got.features[layer], expected.features[layer])
    assert [file.name for file in tmp_path.iterdir()] == ["all.safetensors"]
    with pytest.raises(FileExistsError, match=r"all\.safetensors already exists"):
        extract_to(tmp_path / "all.safetensors", net, DataLoader(data, batch_size=5))


def test_an_interrupted_extraction_goes_on_where_it_stopped(net, data, hooks_on, tmp_path):
    path = tmp_path / "all.safetensors"
    with pytest.raises(InterruptedRunError):
        extract_to(path, net, stopping_after(3, data), feature_dtype=torch.float16)
    assert not path.exists() and hooks_on(net) == 0
    # The crash may have happened during a write.
    (tmp_path / "all.safetensors.partial" / ".00000003.safetensors.0123456789abcdef.partial").write_bytes(b"half")
    runs = []
    handle = net.register_forward_hook(lambda module, inputs, output: runs.append(len(output)))
    extract_to(path, net, DataLoader(data, batch_size=5), feature_dtype=torch.float16)
    handle.remove()
    assert runs == [2, 5, 3], "the two samples that choose the layers, then only the batches that were not done"
    expected = extract(net, DataLoader(data, batch_size=5), feature_dtype=torch.float16)
    got = Outputs.load(path)
    np.testing.assert_array_equal(got.logits, expected.logits)
    np.testing.assert_array_equal(got.labels, expected.labels)
    for layer in expected.layers:
        np.testing.assert_array_equal(got.features[layer], expected.features[layer])


def test_going_on_with_other_batches_another_classifier_or_other_layers_is_refused(net, data, tmp_path):
    path = tmp_path / "all.safetensors"
    with pytest.raises(InterruptedRunError):
        extract_to(path, net, stopping_after(2, data))
    with pytest.raises(ArtefactError, match=r"Batch 0 differs in its inputs or labels .*no shuffling"):
        extract_to(path, net, DataLoader(data, batch_size=4))
    other = copy.deepcopy(net)
    nn.init.zeros_(other.body.weight)
    with pytest.raises(ArtefactError, match=r"was started with weights=\w+, not \w+. Delete the folder"):
        extract_to(path, other, DataLoader(data, batch_size=5))
    with pytest.raises(ArtefactError, match=r"was started with layer_choice=auto, not logits"):
        extract_to(path, net, DataLoader(data, batch_size=5), "logits")
    assert not path.exists()


def begun(path, net, data, batches=3, **settings):
    with pytest.raises(InterruptedRunError):
        extract_to(path, net, stopping_after(batches, data), **settings)
    return path.with_name(path.name + ".partial")


def changed(data, change):
    """The batches of the data, each with its images and labels changed."""
    return [change(images, labels) for images, labels in DataLoader(data, batch_size=5)]


MIDDLE_FIRST = [0, 2, 1, 3, 4]
OTHER_BATCHES = {
    "other labels": lambda images, labels: (images, (labels + 1) % 4),
    "no labels": lambda images, labels: images,
    "another sample in the middle": lambda images, labels: (
        torch.cat([images[:1], 2 * images[1:-1], images[-1:]]),
        labels,
    ),
    "another order": lambda images, labels: (images[MIDDLE_FIRST[: len(images)]], labels[MIDDLE_FIRST[: len(images)]]),
    "another type": lambda images, labels: (images.view(torch.int32), labels),
}


@pytest.mark.parametrize("what", OTHER_BATCHES)
def test_going_on_with_batches_that_differ_anywhere_is_refused(net, data, tmp_path, what):
    begun(tmp_path / "all.safetensors", net, data)
    data = TensorDataset(*(tensor[:20] for tensor in data.tensors))
    with pytest.raises(ArtefactError, match=r"Batch 0 differs in its inputs or labels .*delete the folder"):
        extract_to(tmp_path / "all.safetensors", net, changed(data, OTHER_BATCHES[what]))


def test_going_on_in_another_precision_is_refused(net, data, tmp_path):
    path = tmp_path / "all.safetensors"
    begun(path, net, data, feature_dtype=torch.float16, autocast=torch.bfloat16)
    loader = DataLoader(data, batch_size=5)
    with pytest.raises(ArtefactError, match=r"with autocast=torch.bfloat16, not None. Delete the folder"):
        extract_to(path, net, loader, feature_dtype=torch.float16)
    with pytest.raises(ArtefactError, match=r"with feature_dtype=torch.float16, not torch.float32. Delete the folder"):
        extract_to(path, net, loader, autocast=torch.bfloat16)
    with pytest.raises(ArtefactError, match=r"was started with weights="):
        half = copy.deepcopy(net).half()
        extract_to(path, half, loader, feature_dtype=torch.float16, autocast=torch.bfloat16)
    got = extract_to(path, net, loader, feature_dtype=torch.float16, autocast=torch.bfloat16)
    assert {array.dtype for array in got.features.values()} == {np.dtype(np.float16)}


def test_a_loader_that_has_become_shorter_than_what_is_done_is_refused(net, data, tmp_path):
    path = tmp_path / "all.safetensors"
    folder = begun(path, net, data)
    for batches in (0, 2):
        with pytest.raises(ArtefactError, match=rf"already has 3 batches, but the loader yielded only {batches}"):
            extract_to(path, net, list(DataLoader(data, batch_size=5))[:batches])
    assert folder.exists() and not path.exists()
    assert len(extract_to(path, net, list(DataLoader(data, batch_size=5))[:3])) == 15


def test_other_layers_are_refused_even_when_every_batch_is_done(net, data, tmp_path):
    path = tmp_path / "all.safetensors"
    folder = begun(path, net, data)
    done = list(DataLoader(data, batch_size=5))[:3]
    with pytest.raises(ArtefactError, match=r"was started with layer_choice=auto, not body. Delete the folder"):
        extract_to(path, net, done, ["body"])
    assert folder.exists() and not path.exists()


def test_an_overflow_of_float16_keeps_what_is_done(net, data, tmp_path):
    path = tmp_path / "all.safetensors"
    large = [*list(DataLoader(data, batch_size=5))[:3], (1e9 * data.tensors[0], data.tensors[1])]
    with pytest.raises(ValueError, match="float16 maximum is 65,504"):
        extract_to(path, net, large, feature_dtype=torch.float16)
    done = Outputs.open(tmp_path / "all.safetensors.partial")
    assert len(done) == 15 and not path.exists()


def test_finished_batches_are_on_the_disk_even_if_the_process_is_killed(net, data, tmp_path, monkeypatch):
    monkeypatch.setattr(resumable_extraction, "RECORD_SECONDS", -1.0)
    path = tmp_path / "all.safetensors"

    def watched():
        for number, batch in enumerate(DataLoader(data, batch_size=5)):
            if number:
                assert len(Outputs.open(tmp_path / "all.safetensors.partial", verify=True)) == 5 * number
            yield batch

    got = extract_to(path, net, watched(), progress=False)
    np.testing.assert_array_equal(got.logits, extract(net, DataLoader(data, batch_size=5)).logits)


def test_batches_with_and_without_labels_are_not_mixed(net, data, tmp_path, monkeypatch):
    monkeypatch.setattr(resumable_extraction, "RECORD_SECONDS", -1.0)
    images, labels = data.tensors
    with pytest.raises(ArtefactError, match="was started with labels and this batch has none"):
        extract_to(tmp_path / "all.safetensors", net, [(images[:5], labels[:5]), images[5:9]])


def test_only_safetensors_files_are_written(net, data, tmp_path):
    with pytest.raises(ValueError, match=r"writes a \.safetensors file, got 'all\.npz'"):
        extract_to(tmp_path / "all.npz", net, DataLoader(data, batch_size=5))


def test_a_link_in_the_folder_is_refused_and_its_target_untouched(net, data, tmp_path):
    photo = tmp_path / "photo"
    photo.write_text("a photo")
    for name, stop in (("00000000.safetensors", 3), ("00000003.safetensors", 3), ("00000000.safetensors", 0)):
        folder = begun(tmp_path / "all.safetensors", net, data, stop) if stop else tmp_path / "all.safetensors.partial"
        folder.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(photo)
        with pytest.raises(ArtefactError, match=rf"holds '{name}', which extract_to did not write"):
            extract_to(tmp_path / "all.safetensors", net, DataLoader(data, batch_size=5))
        assert photo.read_text() == "a photo"
        shutil.rmtree(folder)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtefactError, match="must be a folder, not a file or a link"):
        extract_to(tmp_path / "all.safetensors", net, DataLoader(data, batch_size=5))


def test_files_of_others_in_the_folder_are_never_removed(net, data, tmp_path):
    folder = tmp_path / "all.safetensors.partial"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(ArtefactError, match=r"holds 'thesis\.txt', which extract_to did not write"):
        extract_to(tmp_path / "all.safetensors", net, DataLoader(data, batch_size=5))
    assert (folder / "thesis.txt").exists()


def test_a_damaged_or_missing_file_of_batches_is_noticed(net, data, tmp_path, monkeypatch):
    monkeypatch.setattr(resumable_extraction, "RECORD_SECONDS", -1.0)
    folder = begun(tmp_path / "all.safetensors", net, data)
    middle = folder / "00000001.safetensors"
    content = middle.read_bytes()
    for change in (lambda: middle.write_bytes(content[:-7] + b"damaged"), lambda: middle.write_bytes(content[:-4])):
        change()
        with pytest.raises(ArtefactError, match=r"partial is damaged: .*00000001.*Delete the folder"):
            extract_to(tmp_path / "all.safetensors", net, DataLoader(data, batch_size=5))
    middle.unlink()
    with pytest.raises(ArtefactError, match=r"is damaged: it lacks 00000001\.safetensors. Delete the folder"):
        extract_to(tmp_path / "all.safetensors", net, DataLoader(data, batch_size=5))
    assert not (tmp_path / "all.safetensors").exists()


@pytest.mark.parametrize("kept", [(), ("00000003.safetensors",), ("00000000.safetensors", "00000003.safetensors")])
def test_an_interruption_when_all_batches_are_in_one_file_is_gone_on_with(net, data, tmp_path, monkeypatch, kept):
    path, loader = tmp_path / "all.safetensors", DataLoader(data, batch_size=5)
    folder = begun(path, net, data)
    first = (folder / "00000000.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(type(path), "replace", no_replacement_of(path, type(path).replace))
        with pytest.raises(InterruptedRunError):
            extract_to(path, net, loader)
    assert [file.name for file in folder.iterdir()] == ["joined.safetensors"] and not path.exists()
    for name in kept:  # it may have happened while they were removed
        (folder / name).write_bytes(first)
    other = copy.deepcopy(net)
    nn.init.zeros_(other.body.weight)
    with pytest.raises(ArtefactError, match="was started with weights="):
        extract_to(path, other, loader)
    np.testing.assert_array_equal(extract_to(path, net, []).logits, extract(net, loader).logits)
    assert list(tmp_path.iterdir()) == [path]


def no_replacement_of(path, replace):
    def replaced(self, target):
        if target == path:
            raise InterruptedRunError
        return replace(self, target)

    return replaced


def test_a_file_that_is_there_is_kept_and_so_are_the_batches_beside_it(net, data, tmp_path):
    path = tmp_path / "all.safetensors"
    folder = begun(path, net, data)
    path.write_bytes(b"years of work")
    with pytest.raises(FileExistsError, match=r"all\.safetensors already exists"):
        extract_to(path, net, DataLoader(data, batch_size=5))
    assert folder.exists() and path.read_bytes() == b"years of work"


def test_two_extractions_to_the_same_file_do_not_mix(net, data, tmp_path):
    path = tmp_path / "all.safetensors"

    def batches():
        with pytest.raises(ArtefactError, match="is in use by another process that extracts to the same file"):
            extract_to(path, net, DataLoader(data, batch_size=5))
        yield from DataLoader(data, batch_size=5)

    assert len(extract_to(path, net, batches(), progress=False)) == len(data)
