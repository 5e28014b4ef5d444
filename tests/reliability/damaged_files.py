"""Damaged and forged files: refused with the file's name, or read as what was written. Never a bomb, never a crash."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np

import densecal
from densecal import Outputs
from tests.reliability.harness import Tally, fitted, problem, scratch_folder, wrong_with

MOST_BYTES = 1 << 29
"""Memory that reading damaged files may take in addition."""


def flipped(rng, content, most=4):
    """Return the content with a few bits flipped."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, most + 1)):
        changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
    return bytes(changed)


def damaged(rng, content):
    """Return the content with bits flipped, bytes overwritten, cut out, added, moved or zeroed."""
    kind = rng.integers(8)
    if kind < 3:
        return flipped(rng, content)
    start, end = sorted(rng.integers(0, len(content) + 1, 2))
    middle = [
        b"",
        rng.bytes(end - start),
        bytes(end - start),
        content[start:end] * 2,
        content[start:end][::-1],
    ][kind - 3]
    return content[:start] + middle + content[end:]


def forged(rng, content):
    """Return a safetensors file with a hostile header and, mostly, a valid checksum."""
    length = int.from_bytes(content[:8], "little")
    entries, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header = json.loads(entries["__metadata__"]["densecal"])
    names = [name for name in entries if name != "__metadata__"]
    odd = [None, -1, 2**40, 2**70, 1.5, True, "x", [], {}, [[]], float("nan"), "../../etc", "\ud800", 10**400]
    value = odd[rng.integers(len(odd))]
    kind = rng.integers(6)
    if kind == 0:
        change(rng, header, value)
    elif kind == 1 and names:
        entry = entries[names[rng.integers(len(names))]]
        entry[rng.choice(["dtype", "shape", "data_offsets"])] = value
    elif kind == 2 and names:
        entry = entries[names[rng.integers(len(names))]]
        sizes = [[2**28], [2**62, 2**62], [0, 2**62], [-1, -4], [len(data)], [1] * 40]
        entry["shape"], entry["data_offsets"] = sizes[rng.integers(len(sizes))], [0, int(rng.choice([0, len(data)]))]
    elif kind == 3:
        entries["bomb"] = {"dtype": "F32", "shape": [2**28], "data_offsets": [0, 0]}
    elif kind == 4 and names:
        entries[f"{names[0]}_twin"] = entries[names[0]]
    else:
        change(rng, header["stages"][0] if "stages" in header else header, value)
    entries["__metadata__"] = {"sha256": "0" * 64, "densecal": json.dumps(header)}
    text = json.dumps(entries)
    if rng.random() < 0.05:
        text = '{"a":' * 100_000 + text
    encoded = text.encode()
    whole = len(encoded).to_bytes(8, "little") + encoded + data
    if rng.random() < 0.1:
        return whole
    return whole.replace(b"0" * 64, hashlib.sha256(whole).hexdigest().encode(), 1)


def change(rng, tree, value):
    """Set, remove or rename something at a random place of nested dicts and lists."""
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = keys[rng.integers(len(keys))]
    if isinstance(tree[key], (dict, list)) and tree[key] and rng.random() < 0.7:
        change(rng, tree[key], value)
    elif rng.random() < 0.3:
        del tree[key]
    else:
        tree[key] = value


class Artefacts:
    """Files of fitted calibrators."""

    def __init__(self, folder):
        self.path = folder / "cal.densecal"
        self.logits, _, self.features = problem()
        self.originals = []
        for name in ("ts", "spl", "vs", "ir", "dac+ets", "dac-shift"):
            fitted(name).save(self.path)
            self.originals.append((self.path.read_bytes(), self.answer(fitted(name))))

    def answer(self, calibrator):
        return calibrator.predict_proba(self.logits[:20], features={k: v[:20] for k, v in self.features.items()})

    def attempt(self, rng, tally):
        content, expected = self.originals[rng.integers(len(self.originals))]
        is_forged = rng.random() < 0.4
        changed = forged(rng, content) if is_forged else damaged(rng, content)
        if changed == content:
            return
        self.path.write_bytes(changed)
        try:
            calibrator = densecal.load(self.path)
        except Exception as error:
            tally.refuse(error, self.path.name, what="artefact")
            return
        try:
            got = self.answer(calibrator)
        except Exception as error:
            # A forged file may hold another bank or other layers than the features at hand.
            tally.refuse(error, "features", "distances", "logits", what="loaded artefact")
            return
        found = wrong_with(got, self.logits[:20], keeps_class=calibrator.accuracy_preserving)
        if found or not (is_forged or np.array_equal(got, expected)):
            tally.spoil(f"artefact read as another one: {found} {changed[:200]!r}")


class OutputFiles:
    """Files of outputs: safetensors, .npz, and .csv, which has no checksum."""

    def __init__(self, folder):
        logits, labels, features = problem(40)
        self.outputs = Outputs(logits, labels, features, metadata={"data": "made up"})
        self.originals = {}
        for name in ("val.safetensors", "val.npz"):
            self.outputs.save(folder / name)
            self.originals[folder / name] = (folder / name).read_bytes()
        compressed = folder / "small.npz"
        np.savez_compressed(compressed, logits=logits, labels=labels)
        self.originals[compressed] = compressed.read_bytes()
        table = folder / "val.csv"
        rows = [",".join([*map(repr, row.tolist()), str(label)]) for row, label in zip(logits, labels, strict=True)]
        table.write_text("\n".join(["logit0,logit1,logit2,logit3,label", *rows]))
        self.originals[table] = table.read_bytes()

    def attempt(self, rng, tally):
        path = list(self.originals)[rng.integers(len(self.originals))]
        content = self.originals[path]
        is_forged = path.suffix == ".safetensors" and rng.random() < 0.4
        changed = forged(rng, content) if is_forged else damaged(rng, content)
        path.write_bytes(changed)
        try:
            got = Outputs.load(path)
        except Exception as error:
            tally.refuse(error, path.name, what=path.suffix)
            return
        if not np.isfinite(got.logits).all():
            tally.spoil(f"{path.suffix} read with NaN")
        if is_forged or path.suffix == ".csv":
            return
        same = np.array_equal(got.logits, self.outputs.logits) and np.array_equal(got.labels, self.outputs.labels)
        if not same or any(not np.array_equal(got.features[one], self.outputs.features[one]) for one in got.features):
            tally.spoil(f"{path.suffix} read as another one")


class UnfinishedExtractions:
    """Folders of unfinished extractions: files of a few batches each."""

    def __init__(self, folder):
        import torch
        from torch import nn

        from densecal.torch import extract_to, resumable_extraction

        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.folder, self.path = folder / "all.safetensors.partial", folder / "all.safetensors"
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
        self.batches = [(torch.randn(3, 3), torch.tensor([0, 1, 2])) for _ in range(3)]
        self.run = lambda batches: extract_to(self.path, model, batches, progress=False)
        self.expected = self.run(self.batches)
        self.path.unlink()
        before, resumable_extraction.RECORD_SECONDS = resumable_extraction.RECORD_SECONDS, -1.0
        try:
            self.run([*self.batches[:2], "not a batch"])
        except TypeError:
            self.files = {file.name: file.read_bytes() for file in self.folder.iterdir()}
        finally:
            resumable_extraction.RECORD_SECONDS = before

    def attempt(self, rng, tally):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.path.unlink(missing_ok=True)
        self.folder.mkdir()
        chosen = list(self.files)[rng.integers(len(self.files))]
        is_forged = rng.random() < 0.4
        for name, content in self.files.items():
            changed = content if name != chosen else forged(rng, content) if is_forged else damaged(rng, content)
            (self.folder / name).write_bytes(changed)
        if rng.random() < 0.1:
            outside = self.folder.parent / "photo"
            outside.write_text("photo")
            (self.folder / chosen).unlink()
            (self.folder / chosen).symlink_to(outside)
        try:
            got = self.run(self.batches)
        except Exception as error:
            tally.refuse(error, self.folder.name, what="unfinished extraction")
            if (self.folder.parent / "photo").exists() and (self.folder.parent / "photo").read_text() != "photo":
                tally.spoil("a file outside was changed")
            return
        if not np.array_equal(got.logits, self.expected.logits) or not np.array_equal(got.labels, self.expected.labels):
            tally.spoil(f"extraction went on wrongly from a damaged {chosen}")


def damaged_files(count, seed=0):
    """Try so many damaged files, within a limit of memory."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = [make(Path(name)) for make in (Artefacts, OutputFiles, UnfinishedExtractions)]
        limits = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, limits[1]))
        try:
            for number in range(count):
                tally.tried += 1
                kinds[2 if number % 8 == 0 else 1 if number % 4 == 1 else 0].attempt(rng, tally)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
    return tally


def payload_flips(count, seed=0):
    """Flip single bits anywhere in artefacts and outputs: every one must be refused."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as name:
        files = [Path(name) / "cal.densecal", Path(name) / "val.safetensors"]
        fitted("dac+ets").save(files[0])
        Outputs(*problem(40)).save(files[1])
        originals = [file.read_bytes() for file in files]
        for number in range(count):
            tally.tried += 1
            file, content = files[number % 2], originals[number % 2]
            file.write_bytes(flipped(rng, content, most=1))
            try:
                (densecal.load if number % 2 == 0 else Outputs.load)(file)
            except Exception as error:
                tally.refuse(error, file.name, what="flip")
            else:
                tally.spoil("a flipped bit was not noticed")
    return tally
