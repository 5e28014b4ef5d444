"""Train and measure the CIFAR-10 networks on one GPU machine, in stages that can each be run (and resumed) alone.

    export PYTHONPATH=src
    python experiments/run_on_gpu.py unpack                     # pieces made by device_data.py -> --work
    python experiments/run_on_gpu.py bench                      # milliseconds a training step, on random images
    python experiments/run_on_gpu.py train --networks c10-resnet18,c10-vgg16,c10-densenet121 --together
    python experiments/run_on_gpu.py corrupt                    # the 90 corrupted test sets and the perturbed sets
    python experiments/run_on_gpu.py extract --networks all     # logits and neighbour distances of every set
    python experiments/run_on_gpu.py all-layers                 # ResNet18: distances at every layer
    python experiments/run_on_gpu.py demo                       # ResNet18: features of a small subset
    python experiments/run_on_gpu.py pack --networks c10-resnet18 --part 0    # results -> --out, under 64 MB a part

``--smoke`` does the same on a few images, for a rehearsal on a CPU.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import packing
import torch
from device_data import unpack
from extraction import LayerReader, expected_calibration_error, measure
from run_sets import Data, say, stage
from safetensors.torch import load_file, save_file
from torch import Tensor

from densecal.paper.classifiers import find_classifier
from densecal.paper.recipes import Recipe
from densecal.paper.training import Trainer

TRAINED = ("c10-resnet18", "c10-vgg16", "c10-densenet121")
PRETRAINED = ("c10-resnet20", "c10-resnet32", "c10-resnet44", "c10-resnet56")
KS = (1, 10, 50, 100, 200)


def run_unpack(arguments: argparse.Namespace) -> None:
    """Decode the pieces that have arrived so far."""
    say("in work: " + " ".join(unpack(arguments.pieces, arguments.work)))


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
    facts = {
        "network": name,
        "val_accuracy": trainer.accuracy(data.val_images, data.val_labels),
        "test_accuracy": trainer.accuracy(data.test_images, data.test_labels),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        **trainer.facts(),
    }
    with torch.inference_mode():
        trainer.network.eval()
        parts = [trainer.network(trainer._normalise(pixels)).float() for pixels in data.test_images.split(1000)]
    facts["test_ece"] = expected_calibration_error(torch.cat(parts), data.test_labels)[1]
    say(f"{name}: uncalibrated test ECE {facts['test_ece']:.4f}")
    save_file(trainer.weights(), weights_path(name, arguments))
    for folder in (arguments.work, arguments.out):
        (folder / f"{name}{arguments.tag}.json").write_text(json.dumps(facts, indent=1))
    say(f"{name}: test accuracy {facts['test_accuracy']:.4f}, {facts['seconds']} s of training")


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


def load_network(name: str, arguments: argparse.Namespace) -> torch.nn.Module:
    """Load a network trained here or by others."""
    if name in PRETRAINED:
        from densecal.paper.cifar_resnet import load_cifar_resnet

        depth = name.removeprefix("c10-resnet")
        return load_cifar_resnet(next(arguments.work.glob(f"resnet{depth}-*.th")))
    network = find_classifier(name).build()
    network.load_state_dict(load_file(weights_path(name, arguments)))
    return network


def weights_path(name: str, arguments: argparse.Namespace) -> Path:
    """Where a trained network's weights lie."""
    return arguments.work / f"{name}{arguments.tag}.safetensors"


def networks(arguments: argparse.Namespace, default: tuple[str, ...]) -> tuple[str, ...]:
    """Give the networks the command line names."""
    if arguments.networks == "all":
        return default
    return tuple(arguments.networks.split(","))


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


def run_pack(arguments: argparse.Namespace) -> None:
    """Copy one part of the results into --out."""
    ks = tuple(int(k) for k in arguments.ks.split(","))
    folders = [arguments.work / "results" / f"{name}{arguments.tag}" for name in arguments.networks.split(",")]
    for line in packing.pack(folders, arguments.out, ks, arguments.part):
        say(line)


def run_pack_weights(arguments: argparse.Namespace) -> None:
    """Copy a network's weights into --out, float16, in pieces."""
    for name in arguments.networks.split(","):
        for line in packing.pack_weights(weights_path(name, arguments), arguments.out):
            say(line)


STAGES: dict[str, Callable[[argparse.Namespace], None]] = {
    "unpack": run_unpack,
    "bench": run_bench,
    "train": run_train,
    "corrupt": run_corrupt,
    "extract": run_extract,
    "all-layers": run_all_layers,
    "demo": run_demo,
    "pack": run_pack,
    "pack-weights": run_pack_weights,
}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=STAGES, help="what to do, in this order")
    parser.add_argument("--pieces", type=Path, default=Path(".device-data"))
    parser.add_argument("--work", type=Path, default=Path("/tmp/densecal-run"), help="data and results, kept")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--networks", default="all", help="names, separated by commas")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="a rehearsal on a few images")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--clip", type=float, help="largest gradient norm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tag", default="", help="added to the names of weights and results")
    parser.add_argument("--compile", default="", help="networks to fuse with torch.compile, separated by commas")
    parser.add_argument("--cudnn-tries", type=int, default=4, help="kernels cuDNN times a layer; 0: its own guess")
    parser.add_argument("--together", action="store_true", help="train the networks at the same time")
    parser.add_argument("--time-limit", type=float, default=540.0, help="seconds after which training stops")
    parser.add_argument("--kinds", default="all", help="sets to corrupt: test, val-perturbed, test-perturbed")
    parser.add_argument("--all-layers-images", type=int, default=2500)
    parser.add_argument("--demo-bank", type=int, default=3000)
    parser.add_argument("--demo-val", type=int, default=1500)
    parser.add_argument("--demo-test", type=int, default=500)
    parser.add_argument("--demo-conditions", default="fog-3,gaussian_noise-3,gaussian_noise-5,contrast-5")
    parser.add_argument("--ks", default=",".join(str(k) for k in KS), help="which distances to pack")
    parser.add_argument("--part", type=int, default=0, help="which part of the results to pack")
    return parser.parse_args()


def main() -> None:
    """Do the stages that the command line names."""
    arguments = parse()
    for folder in (arguments.work, arguments.out):
        folder.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.benchmark = arguments.cudnn_tries > 0
    if arguments.cudnn_tries:
        torch.backends.cudnn.benchmark_limit = arguments.cudnn_tries
    for name in arguments.stages:
        with stage(name):
            STAGES[name](arguments)


if __name__ == "__main__":
    main()
