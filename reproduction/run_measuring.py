"""The stages of the GPU run that measure: ``corrupt``, ``extract``, ``all-layers`` and ``demo``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from reproduction.classifiers import find_classifier
from reproduction.extraction import LayerReader, expected_calibration_error, measure
from reproduction.run_networks import PRETRAINED, TRAINED, load_network, networks
from reproduction.run_sets import Data, say, stage

KS = (1, 10, 50, 100, 200)


def run_corrupt(arguments: argparse.Namespace) -> None:
    """Make the corrupted test sets once, and the perturbed sets that calibrators may be fitted on."""
    import shifts

    data = Data(arguments)
    sources = {
        "test": shifts.corrupted(data.test_images, smoke=arguments.smoke),
        "val-perturbed": shifts.perturbed(data.val_images, smoke=arguments.smoke),
        "test-perturbed": shifts.perturbed(data.test_images, smoke=arguments.smoke),
    }
    for kind, sets in sources.items():
        folder = arguments.work / kind
        folder.mkdir(exist_ok=True)
        if arguments.kinds != "all" and kind not in arguments.kinds.split(","):
            continue
        for name, make in sets:
            if (folder / f"{name}.npy").exists():
                continue
            with stage(f"{kind}/{name}"):
                np.save(folder / f"{name}.partial", make().cpu().numpy())
                (folder / f"{name}.partial.npy").rename(folder / f"{name}.npy")


def exact_arithmetic() -> None:
    """Keep float32 float32: distances are differences of nearly equal numbers."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def run_extract(arguments: argparse.Namespace) -> None:
    """Measure logits and distances of every set for every network."""
    exact_arithmetic()
    data = Data(arguments)
    test = [("clean", data.test_images), *data.shifted("test")]
    for name in networks(arguments, TRAINED + PRETRAINED):
        own = name in TRAINED
        with stage(f"{name}: everything"):
            reader = LayerReader(
                load_network(name, arguments), find_classifier(name), find_classifier(name).layers, arguments.device
            )
            with stage(f"{name}: bank"):
                _, bank = reader(data.train_images if own else data.whole_train())
            perturbed = data.shifted("val-perturbed" if own else "test-perturbed")
            sets = [*test, *data.ood(), *((f"perturbed-{label}", images) for label, images in perturbed)]
            if own:
                sets.insert(0, ("val", data.val_images))
            folder = arguments.work / "results" / f"{name}{arguments.tag}"
            report(name, measure(reader, bank, iter(sets), KS, folder), data)
            (folder / "layers.json").write_text(json.dumps({"layers": list(bank), "ks": KS}))


def report(name: str, results: Iterator[tuple[str, Tensor]], data: Data) -> None:
    """Say accuracy and ECE of the clean sets and the mean of every severity while the results come in."""
    levels: dict[str, list[tuple[float, float]]] = {}
    fitted_on = data.val_labels if name in TRAINED else data.test_labels
    for condition, logits in results:
        if condition.startswith("ood"):
            continue
        labels, level = data.test_labels, condition
        if condition == "val" or condition.startswith("perturbed"):
            labels = fitted_on
        elif condition != "clean":
            level = "severity " + condition.rpartition("-")[2]
        levels.setdefault(level, []).append(expected_calibration_error(logits, labels))
    for level, values in levels.items():
        accuracy, ece = np.mean(values, axis=0)
        say(f"{name}: {level} ({len(values)} sets): accuracy {accuracy:.4f}, ECE {ece:.4f}")


def run_all_layers(arguments: argparse.Namespace) -> None:
    """Measure ResNet18 at every layer, at the paper's k alone, on the first images of every test set."""
    exact_arithmetic()
    data, name = Data(arguments), "c10-resnet18"
    classifier, count = find_classifier(name), arguments.all_layers_images
    reader = LayerReader(load_network(name, arguments), classifier, None, arguments.device)
    _, bank = reader(data.train_images)
    say(f"{len(bank)} layers: {' '.join(bank)}")
    sets = [("val", data.val_images), ("clean", data.test_images), *data.shifted("test")]
    short = ((label, images if label == "val" else images[:count]) for label, images in sets)
    folder = arguments.work / "results" / f"{name}{arguments.tag}-all-layers"
    for _ in measure(reader, bank, short, (classifier.k,), folder):
        pass
    (folder / "layers.json").write_text(json.dumps({"layers": list(bank), "ks": [classifier.k]}))


def run_demo(arguments: argparse.Namespace) -> None:
    """Write logits, labels and layer features of a small subset, for the demo inside the package."""
    exact_arithmetic()
    data, name = Data(arguments), "c10-resnet18"
    reader = LayerReader(
        load_network(name, arguments), find_classifier(name), find_classifier(name).layers, arguments.device
    )
    conditions = dict(data.shifted("test"))
    wanted = {
        "bank": (data.train_images, data.train_labels, arguments.demo_bank),
        "val": (data.val_images, data.val_labels, arguments.demo_val),
        "clean": (data.test_images, data.test_labels, arguments.demo_test),
    }
    for condition in arguments.demo_conditions.split(","):
        if condition in conditions:
            wanted[condition] = (conditions[condition], data.test_labels, arguments.demo_test)
    tensors: dict[str, Tensor] = {}
    for label, (images, labels, count) in wanted.items():
        logits, features = reader(images[:count])
        tensors[f"{label}/logits"], tensors[f"{label}/labels"] = logits.half(), labels[:count].to(torch.uint8)
        tensors |= {f"{label}/{layer}": value.half() for layer, value in features.items() if layer != "logits"}
    path = arguments.out / "demo.safetensors"
    save_file({key: value.cpu().contiguous() for key, value in tensors.items()}, path)
    say(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
