"""Turn what came back from the GPU machine into the measurements that `densecal reproduce` reads.

    python -m reproduction.collect.py --labels .device-data/b/labels.npz --out results FOLDER...

FOLDERs hold the files that ``run_on_gpu.py pack`` wrote (NETWORK.NN.safetensors), all of a network's.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open

from reproduction.measurements import CLEAN, OOD, VAL, MeasuredSet, Measurements


def read_pieces(paths: list[Path]) -> tuple[dict[str, object], dict[str, MeasuredSet]]:
    """Join the files of one network."""
    about: dict[str, object] = {}
    sets: dict[str, MeasuredSet] = {}
    for path in paths:
        with safe_open(path, "np") as file:
            found = json.loads(file.metadata()["densecal"])
            if about and found != about:
                raise ValueError(f"{path} has {found}, but the files before it have {about}: pack with the same --ks")
            about = found
            for key in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
                name, _, kind = key.rpartition("/")
                if kind == "logits":
                    sets[name] = MeasuredSet(file.get_tensor(key), file.get_tensor(f"{name}/distances"))
    return about, sets


def with_labels(sets: dict[str, MeasuredSet], labels: dict[str, np.ndarray]) -> dict[str, MeasuredSet]:
    """Give the clean test set and the validation set their labels; the others take theirs from these."""
    wanted = {VAL: labels["train_labels"][labels["val_indices"]], CLEAN: labels["test_labels"]}
    done = dict(sets)
    for name, truth in wanted.items():
        if name in sets:
            count = len(sets[name].logits)
            done[name] = MeasuredSet(sets[name].logits, sets[name].distances, truth[:count].astype(np.int64))
    order = [VAL, CLEAN, *sorted(name for name in sets if name not in (VAL, CLEAN) and not name.startswith(OOD))]
    order += sorted(name for name in sets if name.startswith(OOD))
    return {name: done[name] for name in order if name in done}


def main() -> None:
    """Collect every network in the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    labels = dict(np.load(arguments.labels))
    pieces: dict[str, list[Path]] = {}
    for folder in arguments.folders:
        for path in sorted(folder.glob("*.[0-9][0-9].safetensors")):
            if "-weights." not in path.name:
                pieces.setdefault(path.name.split(".")[0], []).append(path)
    for network, paths in pieces.items():
        about, sets = read_pieces(sorted(paths, key=lambda path: path.name))
        layers, ks = tuple(about["layers"]), tuple(about["ks"])  # type: ignore[arg-type]
        classifier = network.removesuffix("-all-layers")
        folder = arguments.out / "measurements" / network
        Measurements(classifier, layers, ks, with_labels(sets, labels)).save(folder)
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        sys.stdout.write(f"{network}: {len(sets)} sets, {size / 2**20:.1f} MiB in {folder}\n")


if __name__ == "__main__":
    main()
