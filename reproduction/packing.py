"""Gather results into few files of limited size, and read them back.

A condition's logits and distances are stored under ``condition/logits`` and ``condition/distances``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

FILE_BYTES = 15_500_000
FILES_A_PART = 4


def plan(folders: list[Path], ks: tuple[int, ...]) -> list[tuple[Path, list[str]]]:
    """Say which conditions go into which file, before any is written, so that parts never depend on each other."""
    files: list[tuple[Path, list[str]]] = []
    for folder in folders:
        metadata = json.loads((folder / "layers.json").read_text())
        wanted = len([k for k in metadata["ks"] if k in ks])
        filled = FILE_BYTES
        for path in sorted(folder.glob("*.safetensors")):
            size = path.stat().st_size
            share = 1.0
            if metadata["ks"] != list(ks):
                width = len(metadata["layers"])
                classes = 10
                share = (classes + width * wanted) / (classes + width * len(metadata["ks"]))
            if filled + size * share > FILE_BYTES:
                files.append((folder, []))
                filled = 0
            files[-1][1].append(path.stem)
            filled += size * share
    return files


def pack(folders: list[Path], out: Path, ks: tuple[int, ...], part: int) -> Iterator[str]:
    """Write one part (at most four files under 15.5 MB) of the results into ``out``."""
    files = plan(folders, ks)
    parts = -(-len(files) // FILES_A_PART)
    yield f"{len(files)} files in {parts} parts; this is part {part}"
    for index in range(part * FILES_A_PART, min(len(files), (part + 1) * FILES_A_PART)):
        folder, conditions = files[index]
        metadata = json.loads((folder / "layers.json").read_text())
        chosen = [i for i, k in enumerate(metadata["ks"]) if k in ks]
        tensors: dict[str, Tensor] = {}
        for condition in conditions:
            stored = load_file(folder / f"{condition}.safetensors")
            tensors[f"{condition}/logits"] = stored["logits"]
            tensors[f"{condition}/distances"] = stored["distances"][..., chosen].contiguous()
        about = {"layers": metadata["layers"], "ks": [metadata["ks"][i] for i in chosen], "network": folder.name}
        path = out / f"{folder.name}.{index:02d}.safetensors"
        save_file(tensors, path, metadata={"densecal": json.dumps(about)})
        yield f"{path.name}: {len(conditions)} conditions, {path.stat().st_size / 2**20:.2f} MiB"


def pack_weights(weights: Path, out: Path) -> Iterator[str]:
    """Write a network's weights as float16 in files under 15.5 MB; a large tensor is cut along its first axis."""
    pieces: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, tensor in load_file(weights).items():
        value = tensor.half() if tensor.dtype == torch.float32 else tensor
        rows = max(1, FILE_BYTES // max(1, value[:1].nbytes)) if value.ndim else 1
        for start in range(0, max(1, len(value)) if value.ndim else 1, rows):
            cut = value[start : start + rows].contiguous() if value.ndim else value
            if filled + cut.nbytes > FILE_BYTES:
                pieces.append({})
                filled = 0
            pieces[-1][f"{name}@{start}"] = cut
            filled += cut.nbytes
    for index, piece in enumerate(pieces):
        path = out / f"{weights.stem}-weights.{index:02d}.safetensors"
        save_file(piece, path)
        yield f"{path.name}: {path.stat().st_size / 2**20:.2f} MiB"


def unpack_weights(paths: list[Path]) -> dict[str, Tensor]:
    """Join what :func:`pack_weights` wrote, back in float32."""
    parts: dict[str, dict[int, Tensor]] = {}
    for path in paths:
        for key, value in load_file(path).items():
            name, _, start = key.rpartition("@")
            parts.setdefault(name, {})[int(start)] = value
    joined: dict[str, Tensor] = {}
    for name, cuts in parts.items():
        values = [cuts[start] for start in sorted(cuts)]
        value = values[0] if len(values) == 1 else torch.cat(values)
        joined[name] = value.float() if value.dtype == torch.float16 else value
    return joined
