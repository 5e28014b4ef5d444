"""Train the paper's CIFAR classifiers; an interrupted training continues from its checkpoint."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from densecal.io.atomic_files import atomic_write
from densecal.metrics import expected_calibration_error
from densecal.shift import open_dataset
from reproduction.classifiers import find_classifier
from reproduction.training.recipes import recipe_of
from reproduction.training.trainer import Trainer

SPLITS = ("train", "val", "test")


def log(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


@dataclass
class Training:
    """Train one classifier on 45,000 images, by default with the paper's recipe.

    ``data`` is the folder of CIFAR in its official layout. The weights are written to
    ``out/weights/CLASSIFIER.safetensors``, metadata to ``out/training/CLASSIFIER.json``.
    ``epochs`` rescales the schedule. The default device is a GPU if available.
    """

    classifier: str
    data: str | Path
    out: str | Path = "results"
    epochs: int | None = None
    device: str | torch.device | None = None

    def __post_init__(self) -> None:
        about = find_classifier(self.classifier)
        recipe = recipe_of(self.classifier)
        recipe = recipe if self.epochs is None else recipe.shortened(self.epochs)
        where = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        sets = {split: open_dataset(about.dataset, self.data, split) for split in SPLITS}
        self.tensors = {
            split: tuple(torch.from_numpy(array).to(where) for array in each.batch(range(len(each))))
            for split, each in sets.items()
        }
        images, labels = self.tensors["train"]
        torch.manual_seed(recipe.seed)
        recipe = replace(recipe, batch=min(recipe.batch, len(images)))
        self.trainer = Trainer(about.build(), images, labels, recipe, pixels=about.pixels)
        self.trainer.capture()
        self.path = Path(self.out) / "weights" / f"{self.classifier}.safetensors"
        self.checkpoint = self.path.with_suffix(".checkpoint")

    def run(self, deadline: float = float("inf"), report: Callable[[int, float], None] | None = None) -> bool:
        """Train to the end, or to a time of `time.perf_counter`; return whether the training is complete."""
        trainer = self.trainer
        if self.checkpoint.exists():
            trainer.resume(load_file(self.checkpoint))
        while trainer.epoch < trainer.recipe.epochs:
            if time.perf_counter() > deadline:
                with atomic_write(self.checkpoint) as temporary:
                    save_file(trainer.checkpoint(), temporary)
                log(f"{self.classifier}: time limit reached after epoch {trainer.epoch}; checkpoint written")
                return False
            loss = trainer.train_epoch()
            if report is not None:
                report(trainer.epoch, loss)
        self._save()
        return True

    def _save(self) -> None:
        with atomic_write(self.path) as temporary:
            save_file(self.trainer.weights(), temporary)
        logits, labels = self.trainer.logits(self.tensors["test"][0]), self.tensors["test"][1]
        metadata = {
            "classifier": self.classifier,
            **{f"{split}_accuracy": self.trainer.accuracy(*self.tensors[split]) for split in ("val", "test")},
            "test_ece": expected_calibration_error(logits.softmax(1).cpu(), labels.cpu()),
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            **self.trainer.metadata(),
        }
        with atomic_write(Path(self.out) / "training" / f"{self.classifier}.json") as temporary:
            temporary.write_text(json.dumps(metadata, indent=1))
        self.checkpoint.unlink(missing_ok=True)


def train(
    classifier: str,
    data: str | Path,
    *,
    out: str | Path = "results",
    epochs: int | None = None,
    device: str | torch.device | None = None,
) -> Path:
    """Train a classifier to the end and return the file with its weights."""
    training = Training(classifier, data, out, epochs=epochs, device=device)
    training.run()
    return training.path


def train_together(trainings: Sequence[Training], deadline: float) -> None:
    """Run trainings in threads, each on the stream of its trainer; raise the first error when all have finished."""
    errors: list[BaseException] = []

    def guarded(training: Training) -> None:
        def report(epoch: int, loss: float) -> None:
            if epoch % 20 == 0:
                log(f"{training.classifier}: epoch {epoch:3d} loss {loss:.4f}")

        try:
            training.run(deadline, report)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(training,)) for training in trainings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def time_steps(classifiers: Sequence[str], device: str) -> None:
    """Print the time of a training step on random images, in milliseconds, and of its preparation."""
    for name in classifiers:
        about = find_classifier(name)
        images = torch.randint(256, (5120, 32, 32, 3), dtype=torch.uint8, device=device)
        labels = torch.randint(about.n_classes, (5120,), device=device)
        start = time.perf_counter()
        trainer = Trainer(about.build(), images, labels, recipe_of(name), pixels=about.pixels)
        trainer.capture()
        trainer.train_epoch()
        prepared = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(5):
            trainer.train_epoch()
        step = (time.perf_counter() - start) / (5 * trainer.steps)
        total = 200 * 351 * step
        log(f"{name}: {1000 * step:.2f} ms per step, {total:.0f} s for 200 epochs, {prepared:.0f} s to start")
