"""Time the extraction of layers on the CPU: extract() compared with the plain forward on the same batches.

    python benchmarks/extraction_cpu.py

Both alternate on the same images. The result is the median ratio of processor times, which other load affects less than
wall time.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from bench import timed, write_section
from densecal.torch import extract
from reproduction.networks import cifar_stem_resnet18, resnet18
from reproduction.page.markdown import markdown

CASES: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "ResNet18, 3x3 stem, 32 px": (lambda: cifar_stem_resnet18(num_classes=10), 32, 64),
    "ResNet18, 224 px": (lambda: resnet18(num_classes=1000), 224, 16),
}


def plain(model: nn.Module, batches: list[Tensor]) -> None:
    with torch.inference_mode():
        for batch in batches:
            model(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=12)
    args = parser.parse_args()
    rows = []
    for name, (build, size, count) in CASES.items():
        torch.manual_seed(0)
        model = build().eval()
        batches = [torch.randn(count, 3, size, size) for _ in range(args.batches)]
        plain(model, batches[:2])
        rounds = []
        for _ in range(args.rounds):
            before, reading, after = (
                timed(lambda read=read, m=model, b=batches: read(m, b)).cpu
                for read in (plain, partial(extract, progress=False), plain)
            )
            rounds.append((reading / ((before + after) / 2), (before + after) / 2, reading))
        ratios = sorted(ratio for ratio, _, _ in rounds)
        alone, read = (statistics.median(part[i] for part in rounds) for i in (1, 2))
        ratio = f"**{statistics.median(ratios):.3f}x** ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        rows.append([name, f"{args.batches} x {count}", f"{alone:.2f} s", f"{read:.2f} s", ratio, "1.05x"])
    write_section(
        "extraction_cpu",
        "## Extraction on the CPU",
        f"`extract` with six layers compared with the plain forward, processor time, torch {torch.__version__} on "
        f"{torch.get_num_threads()} threads; medians of {args.rounds} alternating rounds. Written "
        "by `python benchmarks/extraction_cpu.py`.",
        markdown(["network", "batches", "plain forward", "extract", "ratio (lowest to highest)", "at most"], rows),
    )


if __name__ == "__main__":
    main()
