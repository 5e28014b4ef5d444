"""Train and measure the CIFAR-10 networks on one GPU machine, in stages that can each be run (and resumed) alone.

    export PYTHONPATH=src
    python -m reproduction.run_on_gpu.py unpack                     # pieces made by device_data.py -> --work
    python -m reproduction.run_on_gpu.py bench                      # milliseconds a training step, on random images
    python -m reproduction.run_on_gpu.py train --networks c10-resnet18,c10-vgg16,c10-densenet121 --together
    python -m reproduction.run_on_gpu.py corrupt                    # the 90 corrupted test sets and the perturbed sets
    python -m reproduction.run_on_gpu.py extract --networks all     # logits and neighbour distances of every set
    python -m reproduction.run_on_gpu.py all-layers                 # ResNet18: distances at every layer
    python -m reproduction.run_on_gpu.py demo                       # ResNet18: features of a small subset
    python -m reproduction.run_on_gpu.py pack --networks c10-resnet18 --part 0    # results -> --out, under 64 MB a part

``--smoke`` does the same on a few images, for a rehearsal on a CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from reproduction import packing
from reproduction.device_data import unpack
from reproduction.run_measuring import KS, run_all_layers, run_corrupt, run_demo, run_extract
from reproduction.run_networks import weights_path
from reproduction.run_sets import say, stage
from reproduction.run_training import run_bench, run_train


def run_unpack(arguments: argparse.Namespace) -> None:
    """Decode the pieces that have arrived so far."""
    say("in work: " + " ".join(unpack(arguments.pieces, arguments.work)))


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
