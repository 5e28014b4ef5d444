"""Time the extraction of layers on the CPU: extract() compared with the plain forward on the same batches.

    python benchmarks/extraction_cpu.py

Both alternate on the same images. The result is the median ratio of processor times, which other load affects less than
wall time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from densecal.torch import extract
from reproduction.networks import cifar_stem_resnet18, resnet18

CASES: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "ResNet18, 3x3 stem, 32 px": (lambda: cifar_stem_resnet18(num_classes=10), 32, 64),
    "ResNet18, 224 px": (lambda: resnet18(num_classes=1000), 224, 16),
}


def plain(model: nn.Module, batches: list[Tensor]) -> None:
    with torch.inference_mode():
        for batch in batches:
            model(batch)


def used(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=12)
    args = parser.parse_args()
    lines = [
        "## Extraction on the CPU",
        "",
        f"`extract` with six layers compared with the plain forward, processor time, torch {torch.__version__} on "
        f"{torch.get_num_threads()} threads; medians of {args.rounds} alternating rounds. Written "
        "by `python benchmarks/extraction_cpu.py`.",
        "",
        "| network | batches | plain forward | extract | ratio (lowest to highest) | at most |",
        "|---|---|---|---|---|---|",
    ]
    for name, (build, size, count) in CASES.items():
        torch.manual_seed(0)
        model = build().eval()
        batches = [torch.randn(count, 3, size, size) for _ in range(args.batches)]
        plain(model, batches[:2])
        rounds = []
        for _ in range(args.rounds):
            before = used(lambda m=model, b=batches: plain(m, b))
            reading = used(lambda m=model, b=batches: extract(m, b, progress=False))
            after = used(lambda m=model, b=batches: plain(m, b))
            rounds.append((reading / ((before + after) / 2), (before + after) / 2, reading))
        ratios = sorted(ratio for ratio, _, _ in rounds)
        alone, read = (statistics.median(part[i] for part in rounds) for i in (1, 2))
        lines.append(
            f"| {name} | {args.batches} x {count} | {alone:.2f} s | {read:.2f} s | "
            f"**{statistics.median(ratios):.3f}x** ({ratios[0]:.3f} to {ratios[-1]:.3f}) | 1.05x |"
        )
    print("\n".join(lines))
    (Path(__file__).parent / "results" / "extraction_cpu.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
