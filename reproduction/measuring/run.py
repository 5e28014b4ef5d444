"""Measure a classifier: logits and neighbour distances of every data set, as input of the tables.

Each finished set is saved immediately, so an interrupted run continues where it stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from densecal.display import track
from densecal.io.atomic_files import atomic_write
from densecal.shift import CORRUPTIONS, SEVERITIES, Dataset, Perturbed, open_dataset, shifted_sets
from densecal.shift import PERTURBATIONS as KINDS
from reproduction.classifiers import Classifier, find_classifier
from reproduction.measuring.measurements import CLEAN, OOD, PERTURBED, VAL, MeasuredSet, Measurements
from reproduction.measuring.out_of_domain import open_out_of_domain
from reproduction.measuring.reading import LOGITS, Banks, disable_tf32, image_batches, read_dataset
from reproduction.networks import load_network

KS = (1, 10, 50, 100, 200)
CORRUPTED_SIZE = 224
"""Size at which ImageNet images are corrupted; they are enlarged afterwards for networks with a larger input."""

# Perturbed sets by name: options of densecal.shift.perturb and the number of seeds. Sets are stored as NAME-SEED.
FIRST_TRY = ("rotate", "shear", "translate", "posterise", "solarise", "gamma", "channel_offset", "cutout")
FAMILIES = ("geometric", "tonal", "colour", "occlusion")
PERTURBATIONS: dict[str, tuple[dict[str, Any], int]] = {
    "perturbed": ({"kinds": FIRST_TRY}, 3),
    "mild": ({"kinds": FIRST_TRY, "strength": (0.05, 0.5)}, 1),
    "strong": ({"kinds": FIRST_TRY, "strength": (0.5, 1.0)}, 1),
    "several": ({"kinds": FIRST_TRY, "per_image": (2, 3)}, 1),
    "every-kind": ({"kinds": tuple(KINDS)}, 1),
    **{family: ({"kinds": tuple(k.name for k in KINDS.values() if k.family == family)}, 1) for family in FAMILIES},
}


@dataclass
class Measuring:
    """Run a classifier on its training, validation and test sets, and store the data that the tables need.

    ``data`` is the folder of the data set in its official layout.
    ``weights`` is a .safetensors, .th or .pth file with the state of the network; without it the published weights are
    downloaded (ImageNet classifiers only). The measurements are written to ``out/measurements/CLASSIFIER``.

    Images are corrupted on the fly. By default the out-of-domain sets are those next to the data; for ImageNet pass
    ``{"objectnet": ObjectNet(root, "ood")}``. ``perturbed`` adds the perturbed images of the shift-fit study.
    ``all_layers`` measures every layer, only at the classifier's k, on this many images per test set; otherwise all
    ``ks`` up to the size of the bank are measured. The last distance is that to the nearest centre.
    ``limit`` uses only the first images of every set, for a trial run; ``complete`` requires all images of ImageNet.
    """

    classifier: str
    data: str | Path
    weights: str | Path | None = None
    out: str | Path = "results"
    out_of_domain: Mapping[str, Dataset] | None = None
    perturbed: bool = False
    all_layers: int | None = None
    ks: Sequence[int] = KS
    device: str | torch.device | None = None
    limit: int | None = None
    complete: bool = True

    def __post_init__(self) -> None:
        self.about = find_classifier(self.classifier)
        self.device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        name = self.classifier if self.all_layers is None else f"{self.classifier}-all-layers"
        self.target, self.partial = (Path(self.out) / kind / name for kind in ("measurements", "measuring"))
        self.sets: dict[str, MeasuredSet] = {}

    def run(self) -> Path:
        """Measure every set and return the folder with the measurements."""
        self.network = load_network(self.about, self.weights).to(self.device)
        disable_tf32()
        # The additional networks were trained on all training images, so they have no validation set.
        own = self.about.in_paper
        self._fill_bank(
            self._open("train+val" if not own else "train" if self.about.bank_fraction == 1 else "train-1%")
        )
        if own:
            self._measure(VAL, self._open(VAL), labelled=True)
        test = self._open("test")
        count = self.limit if self.all_layers is None else self.all_layers
        self._measure(CLEAN, _first(test, count), labelled=True)
        shifted = shifted_sets(test, device=self.device)
        for each in track(shifted, self.classifier, total=len(CORRUPTIONS) * len(SEVERITIES)):
            self._measure(f"{each.corruption}-{each.severity}", _first(each, count))
        if self.all_layers is None:
            for name, dataset in (self.out_of_domain or open_out_of_domain(self.data)).items():
                self._measure(f"{OOD}{name}", _first(dataset, self.limit))
        if self.perturbed:
            for name, (options, seeds) in PERTURBATIONS.items():
                for number in range(seeds):
                    changed = Perturbed(self._open(VAL) if own else test, number, device=self.device, **options)
                    self._measure(f"{PERTURBED}{name}-{number}", changed)
        Measurements(self.classifier, self.layers, (*self.measured_ks, None), self.sets).save(self.target)
        shutil.rmtree(self.partial)
        return self.target

    def _open(self, split: str) -> Dataset:
        options = {"complete": self.complete} if self.about.dataset == "imagenet" else {}
        return _first(open_dataset(self.about.dataset, self.data, split, **options), self.limit)

    def _fill_bank(self, train: Dataset) -> None:
        _, features = self._read(train)
        self.layers = tuple(features)
        ks = self.ks if self.all_layers is None else (self.about.k,)
        self.measured_ks = [k for k in ks if k <= len(train)]
        self.banks = Banks(features, min(self.about.k, len(train)))

    def _measure(self, name: str, dataset: Dataset, *, labelled: bool = False) -> None:
        path = self.partial / f"{name}.npz"
        if not path.exists():
            logits, features = self._read(dataset)
            distances = self.banks.distances(features, self.measured_ks).astype(np.float16)
            with atomic_write(path) as temporary, temporary.open("wb") as file:
                np.savez(file, logits=logits, distances=distances)
        with np.load(path) as stored:
            labels = np.asarray(dataset.labels) if labelled else None
            self.sets[name] = MeasuredSet(stored["logits"], stored["distances"], labels)

    def _read(self, dataset: Dataset) -> tuple[Any, dict[str, Tensor]]:
        if self.all_layers is not None:
            return read_every_layer(self.network, image_batches(dataset, self._prepare, self.device))
        outputs = read_dataset(self.network, dataset, [*self.about.layers, LOGITS], self._prepare)
        features = {layer: torch.as_tensor(values, device=self.device) for layer, values in outputs.features.items()}
        return outputs.logits, features

    def _prepare(self, pixels: Tensor) -> Tensor:
        images, size = self.about.normalise(pixels), self.about.image_size
        if self.about.dataset == "imagenet" and size != CORRUPTED_SIZE:
            images = functional.interpolate(images, size=(size, size), mode="bicubic", antialias=True)
        return images


def measure(classifier: str, data: str | Path, **options: Any) -> Path:
    """Measure a classifier with the options of `Measuring`; return the folder with the measurements."""
    return Measuring(classifier, data, **options).run()


def find_weights(about: Classifier, folder: Path) -> Path | None:
    """Return the file in a folder with a classifier's weights; None for ImageNet, whose weights are downloaded."""
    pattern = f"{about.name}.safetensors" if about.in_paper else f"{about.name.removeprefix('c10-')}-*.th"
    file = next(folder.glob(pattern), None)
    if file is None and about.dataset != "imagenet":
        raise FileNotFoundError(f"{folder} has no weights of {about.name}: expected a file {pattern}.")
    return file


def _first(dataset: Dataset, count: int | None) -> Dataset:
    return dataset if count is None or len(dataset) <= count else dataset.subset(range(count))


@torch.inference_mode()
def read_every_layer(network: nn.Module, batches: Iterator[Tensor]) -> tuple[Any, dict[str, Tensor]]:
    """Return the logits, and the pooled output of each call of each module without children, in order."""
    called: dict[str, Tensor] = {}

    def reader(name: str) -> Any:
        def read(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            key, call = name, 2
            while key in called:  # a ReLU that a block calls twice counts as two layers
                key, call = f"{name}:{call}", call + 1
            # Pool immediately, because later modules may change the output in place.
            called[key] = output.mean((2, 3)) if output.ndim == 4 else output.clone()

        return read

    leaves = [(n, m) for n, m in network.named_modules() if not list(m.children()) and not isinstance(m, nn.Dropout)]
    hooks = [module.register_forward_hook(reader(name)) for name, module in leaves]
    logits, parts = [], []
    for images in batches:
        called.clear()
        logits.append(network(images))
        parts.append(dict(called))
    for hook in hooks:
        hook.remove()
    return torch.cat(logits).cpu().numpy(), {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
