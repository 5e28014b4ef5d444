"""Measure a classifier on your own copy of the data: logits and neighbour distances of every set, ready to reproduce.

Each finished set is kept at once, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.density.bank import FeatureBank
from densecal.io.storage import whole_file
from densecal.outputs import Outputs
from densecal.progress import track
from densecal.shift import CORRUPTIONS, SEVERITIES, Dataset, open_dataset, shifted_sets
from reproduction.classifiers import Classifier, find_classifier
from reproduction.measurements import CLEAN, OOD, VAL, MeasuredSet, Measurements

if TYPE_CHECKING:
    import torch
    from torch import nn

KS = (1, 10, 50, 100, 200)
CORRUPTED_SIZE = 224
"""The size at which ImageNet's images are corrupted; networks with a larger input see them enlarged."""


def measure(
    classifier: str,
    data: str | Path,
    *,
    weights: str | Path | None = None,
    out: str | Path = "results",
    published: str | Path | None = None,
    out_of_domain: Mapping[str, Dataset] | None = None,
    ks: Sequence[int] = KS,
    device: str | torch.device | None = None,
    batch: int = 500,
    seed: int = 0,
    limit: int | None = None,
    complete: bool = True,
) -> Path:
    """Run a classifier over its training, validation and all test sets, and keep what the tables need.

    Parameters
    ----------
    classifier : str
        One of `reproduction.CLASSIFIERS`, such as ``"c100-vgg16"``.
    data : path
        Where the data set lies, in its official layout.
    weights : path, optional
        The network's state: .safetensors, or a file that ``torch.load`` reads without executing anything. Without it
        the published weights are fetched, for the ImageNet classifiers.
    out : path
        The measurements go to ``out/measurements/CLASSIFIER``.
    published : path, optional
        Folder with the published corrupted files; without it the corruptions are made on the fly.
    out_of_domain : mapping of str to Dataset, optional
        Sets of other classes. ImageNet's own is ObjectNet: ``{"objectnet": ObjectNet(root, "ood")}``.
    ks : sequence of int
        The neighbours to measure; those beyond the bank's size are left out.
    device : str or torch.device, optional
        Where to run; a GPU if there is one.
    batch, seed
        Images a batch, and the seed of the corruptions.
    limit : int, optional
        Take only the first so many images of every set, to try things out.
    complete : bool
        For ImageNet: whether to insist on all of the images.

    Returns
    -------
    Path
        The folder with the measurements.
    """
    import torch

    about = find_classifier(classifier)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    network = load_network(about, weights).to(where)
    options = {} if about.dataset != "imagenet" else {"complete": complete}
    run = _Run(about, network, where, batch, limit, Path(out))
    train = open_dataset(about.dataset, data, "train" if about.bank_fraction == 1 else "train-1%", **options)
    run.fill_bank(train, ks)
    val, test = (open_dataset(about.dataset, data, split, **options) for split in ("val", "test"))
    run.measure(VAL, val, labelled=True)
    run.measure(CLEAN, test, labelled=True)
    shifted = shifted_sets(test, seed, device=where, published=published)
    for each in track(shifted, classifier, total=len(CORRUPTIONS) * len(SEVERITIES)):
        run.measure(f"{each.corruption}-{each.severity}", each, labelled=False)
    for name, dataset in (out_of_domain or {}).items():
        run.measure(f"{OOD}{name}", dataset, labelled=False)
    return run.finish()


def load_network(about: Classifier, weights: str | Path | None) -> nn.Module:
    """Build a classifier and fill it with weights from a file, or with the published ones."""
    import torch

    if weights is None:
        return about.build(pretrained=True).eval()
    path = Path(weights)
    if path.suffix == ".th":
        from reproduction.cifar_resnet import load_cifar_resnet

        return load_cifar_resnet(path)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        state: Any = load_file(path)
    else:
        state = torch.load(path, map_location="cpu", weights_only=True)
        state = state.get("state_dict", state)
    network = about.build()
    network.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
    return network.eval()


class _Run:
    """One classifier being measured: what is finished lies in a folder beside the measurements."""

    def __init__(
        self, about: Classifier, network: nn.Module, device: torch.device, batch: int, limit: int | None, out: Path
    ) -> None:
        from densecal.torch.extraction import Extraction

        self.about = about
        # One extraction for all sets: the network's layers are found once, not 93 times.
        self.extraction = Extraction(network, [*about.layers, "logits"], device=device)
        self.batch, self.limit = batch, limit
        self.target = out / "measurements" / about.name
        self.partial = out / "measuring" / about.name
        self.sets: dict[str, MeasuredSet] = {}

    def fill_bank(self, train: Dataset, ks: Sequence[int]) -> None:
        """Extract the training features and make the bank."""
        features = self.extract(train).features
        count = len(next(iter(features.values())))
        self.ks = tuple(k for k in ks if k <= count)
        self.bank = FeatureBank(features, k=min(self.about.k, count))

    def measure(self, name: str, dataset: Dataset, *, labelled: bool) -> None:
        """Measure one set, unless that was done before."""
        path = self.partial / f"{name}.npz"
        if not path.exists():
            said = self.extract(dataset)
            distances = self.bank.distances(said.features, k=list(self.ks))
            with whole_file(path) as temporary, temporary.open("wb") as file:
                np.savez(
                    file, logits=said.logits, distances=distances.astype(np.float16), labels=np.asarray(said.labels)
                )
        with np.load(path) as stored:
            labels = stored["labels"] if labelled else None
            self.sets[name] = MeasuredSet(stored["logits"], stored["distances"], labels)

    def extract(self, dataset: Dataset) -> Outputs:
        """Read logits and features of a set's first images."""
        from densecal.torch.extraction import as_outputs

        pieces = list(self.extraction.pieces(self._batches(dataset), progress=False))
        said: Outputs = as_outputs(pieces, self.extraction.layers)
        return said

    def _batches(self, dataset: Dataset) -> Iterator[Any]:
        from torch.nn.functional import interpolate
        from torch.utils.data import DataLoader, Subset

        mean, std = self.about.pixels
        images: Any = dataset.as_torch(mean=mean, std=std)
        if self.limit is not None:
            images = Subset(images, range(min(self.limit, len(images))))
        size = self.about.image_size
        for batch, labels in DataLoader(images, batch_size=self.batch):
            if self.about.dataset == "imagenet" and size != CORRUPTED_SIZE:
                batch = interpolate(batch, size=(size, size), mode="bicubic", antialias=True)
            yield batch, labels

    def finish(self) -> Path:
        """Write the measurements and remove what was kept on the way."""
        layers = (*self.about.layers, "logits")
        Measurements(self.about.name, layers, self.ks, self.sets).save(self.target)
        shutil.rmtree(self.partial)
        return self.target
