"""The stages of the GPU run that train: ``bench`` and ``train``."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from reproduction.classifiers import find_classifier
from reproduction.extraction import expected_calibration_error
from reproduction.recipes import Recipe
from reproduction.run_networks import TRAINED, networks, weights_path
from reproduction.run_sets import Data, say
from reproduction.training import Trainer


def make_recipe(arguments: argparse.Namespace) -> Recipe:
    """Give the paper's CIFAR-10 recipe with the command line's changes."""
    recipe = Recipe(weight_decay=arguments.weight_decay, seed=arguments.seed, clip=arguments.clip)
    epochs = 2 if arguments.smoke else arguments.epochs
    return recipe if epochs == recipe.epochs else recipe.shortened(epochs)


def make_trainer(name: str, images: Tensor, labels: Tensor, arguments: argparse.Namespace) -> Trainer:
    """Build a network from the seed and a trainer for it, captured."""
    classifier = find_classifier(name)
    torch.manual_seed(arguments.seed)
    mean, std = classifier.pixels
    wanted = name in arguments.compile.split(",")
    start = time.perf_counter()
    trainer = Trainer(classifier.build(), images, labels, make_recipe(arguments), mean=mean, std=std, compile=wanted)
    trainer.capture()
    say(f"{name}: ready after {time.perf_counter() - start:.1f} s{' (compiled)' if wanted else ''}")
    return trainer


def run_bench(arguments: argparse.Namespace) -> None:
    """Time a training step of every network on random images, alone and then all at once."""
    count = 256 if arguments.smoke else 5120
    images = torch.randint(256, (count, 32, 32, 3), dtype=torch.uint8, device=arguments.device)
    labels = torch.randint(10, (count,), device=arguments.device)
    trainers = {name: make_trainer(name, images, labels, arguments) for name in networks(arguments, TRAINED)}
    epochs = 1 if arguments.smoke else 5
    for name, trainer in trainers.items():
        trainer.train_epoch()
        start = time.perf_counter()
        for _ in range(epochs):
            trainer.train_epoch()
        step = (time.perf_counter() - start) / (epochs * trainer.steps)
        losses = " ".join(f"{loss:.3f}" for loss in trainer.history.losses)
        say(f"{name}: {1000 * step:.2f} ms a step, {200 * 351 * step:.0f} s for 200 epochs, losses {losses}")
    start = time.perf_counter()
    together([lambda t=trainer: [t.train_epoch() for _ in range(epochs)] for trainer in trainers.values()])
    say(f"together: {epochs} epochs of {trainer.steps} steps each took {time.perf_counter() - start:.2f} s")


def together(jobs: list[Callable[[], object]]) -> None:
    """Run jobs in threads, each on its trainer's own stream; the first error is raised when all have ended."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def run_train(arguments: argparse.Namespace) -> None:
    """Train the networks; stop at the time limit with a checkpoint, and go on from it when called again."""
    deadline = time.perf_counter() + arguments.time_limit
    data = Data(arguments)
    names = [name for name in networks(arguments, TRAINED) if not weights_path(name, arguments).exists()]
    if arguments.together:
        # Captures come before the threads: a capture must be alone on the device.
        trainers = [make_trainer(name, data.train_images, data.train_labels, arguments) for name in names]
        together(
            [
                lambda n=name, t=trainer: train_one(n, t, data, arguments, deadline)
                for name, trainer in zip(names, trainers, strict=True)
            ]
        )
        return
    for name in names:
        if time.perf_counter() < deadline:
            trainer = make_trainer(name, data.train_images, data.train_labels, arguments)
            train_one(name, trainer, data, arguments, deadline)


def train_one(name: str, trainer: Trainer, data: Data, arguments: argparse.Namespace, deadline: float) -> None:
    """Train one network to its end or to the deadline."""
    checkpoint = arguments.work / f"{name}{arguments.tag}.checkpoint"
    if checkpoint.exists():
        trainer.resume(load_file(checkpoint))
        say(f"{name}: goes on from epoch {trainer.epoch}")
    total = trainer.recipe.epochs
    while trainer.epoch < total:
        loss = trainer.train_epoch()
        if trainer.epoch in (1, 2, 5) or trainer.epoch % 20 == 0 or trainer.epoch == total:
            accuracy = trainer.accuracy(data.val_images, data.val_labels)
            seconds = trainer.history.seconds
            say(f"{name}: epoch {trainer.epoch:3d} loss {loss:.4f} val accuracy {accuracy:.4f} after {seconds:.1f} s")
        if time.perf_counter() > deadline and trainer.epoch < total:
            save_file(trainer.checkpoint(), checkpoint)
            say(f"{name}: out of time after epoch {trainer.epoch}; checkpoint written")
            return
    metadata = {
        "network": name,
        "val_accuracy": trainer.accuracy(data.val_images, data.val_labels),
        "test_accuracy": trainer.accuracy(data.test_images, data.test_labels),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        **trainer.metadata(),
    }
    with torch.inference_mode():
        trainer.network.eval()
        parts = [trainer.network(trainer._normalise(pixels)).float() for pixels in data.test_images.split(1000)]
    metadata["test_ece"] = expected_calibration_error(torch.cat(parts), data.test_labels)[1]
    say(f"{name}: uncalibrated test ECE {metadata['test_ece']:.4f}")
    save_file(trainer.weights(), weights_path(name, arguments))
    for folder in (arguments.work, arguments.out):
        (folder / f"{name}{arguments.tag}.json").write_text(json.dumps(metadata, indent=1))
    say(f"{name}: test accuracy {metadata['test_accuracy']:.4f}, {metadata['seconds']} s of training")
