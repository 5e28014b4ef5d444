"""Train one of the paper's CIFAR classifiers from your own copy of the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from densecal.io.storage import whole_file
from densecal.shift import CIFAR10, CIFAR100
from reproduction.classifiers import find_classifier
from reproduction.recipes import CIFAR10_SCHEDULE, CIFAR100_SCHEDULE, Recipe

if TYPE_CHECKING:
    import torch


def recipe_of(classifier: str) -> Recipe:
    """Return the paper's recipe for one of its CIFAR classifiers.

    Examples
    --------
    >>> recipe_of("c100-resnet18").schedule[1]
    (60, 0.002)
    """
    dataset = find_classifier(classifier).dataset
    if dataset == "imagenet":
        raise ValueError(f"{classifier} is not trained but published: {find_classifier(classifier).weights}.")
    return Recipe(schedule=CIFAR10_SCHEDULE if dataset == "cifar10" else CIFAR100_SCHEDULE)


def train(
    classifier: str,
    data: str | Path,
    *,
    out: str | Path = "results",
    recipe: Recipe | None = None,
    epochs: int | None = None,
    device: str | torch.device | None = None,
    report: Callable[[int, float], None] | None = None,
) -> Path:
    """Train a CIFAR classifier by the paper's recipe on 45,000 images; return the file with its weights.

    Parameters
    ----------
    classifier : str
        Such as ``"c10-resnet18"``.
    data : path
        Where CIFAR lies, in its official layout.
    out : path
        The weights go to ``out/weights/CLASSIFIER.safetensors``, metadata about the training beside them as JSON.
    recipe : Recipe, optional
        Another recipe than the paper's.
    epochs : int, optional
        Shrink (or stretch) the recipe's schedule to so many epochs.
    device : str or torch.device, optional
        Where to train; a GPU if there is one.
    report : callable, optional
        Told (epoch, loss) after every epoch.
    """
    import torch
    from safetensors.torch import save_file

    from reproduction.training import Trainer

    about = find_classifier(classifier)
    recipe = recipe_of(classifier) if recipe is None else recipe
    recipe = recipe if epochs is None else recipe.shortened(epochs)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    reader = CIFAR10 if about.dataset == "cifar10" else CIFAR100
    sets = {split: reader(data, split) for split in ("train", "val", "test")}
    tensors = {
        split: (torch.from_numpy(each.images).to(where), torch.from_numpy(each.labels).to(where))
        for split, each in sets.items()
    }
    torch.manual_seed(recipe.seed)
    if len(sets["train"]) < recipe.batch:
        recipe = replace(recipe, batch=len(sets["train"]))
    mean, std = about.pixels
    trainer = Trainer(about.build(), *tensors["train"], recipe, mean=mean, std=std)
    trainer.capture()
    while trainer.epoch < recipe.epochs:
        loss = trainer.train_epoch()
        if report is not None:
            report(trainer.epoch, loss)
    path = Path(out) / "weights" / f"{classifier}.safetensors"
    with whole_file(path) as temporary:
        save_file(trainer.weights(), temporary)
    accuracies = {f"{split}_accuracy": trainer.accuracy(*tensors[split]) for split in ("val", "test")}
    metadata = {"classifier": classifier, **accuracies, **trainer.metadata()}
    with whole_file(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(metadata, indent=1))
    return path
