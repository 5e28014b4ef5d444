"""Time the calibrated forward compared with the plain forward.

    python benchmarks/torch_model.py --device cuda            # the whole table, 3 min on one H200
    python benchmarks/torch_model.py --device cuda --gpu-busy # kernel times, which do not depend on the host's load
    python benchmarks/torch_model.py --device cpu             # ratios of CPU time, 2 min on one core
    python benchmarks/torch_model.py --estimate 2000          # the cost of estimate_accuracy

Weights and centres are random, so no data is needed. Plain and calibrated forwards alternate, and each time is the
minimum of many, because other load only increases it. Kernel times require a profiler, which slows all later launches,
so they need a separate run. On a GPU each of the three Triton kernels is also left out, to show what it is worth.
"""

from __future__ import annotations

import argparse
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bench import timed
from densecal import DAC, FeatureBank, Outputs
from densecal.torch.features import kernel
from densecal.torch.features.capture import LayerCapture
from densecal.torch.features.layout import Layout
from densecal.torch.model import CalibratedModel
from reproduction.networks import cifar_stem_resnet18, resnet152

LAYERS = {layer: Layout("first") for layer in ("maxpool", "layer1", "layer2", "layer3", "layer4")}
SEARCH, TEMPER, POOL = "search kernel", "temperature kernel", "pool kernel"
LEFT_OUT: tuple[tuple[str, ...], ...] = ((), (SEARCH,), (TEMPER,), (POOL,), (SEARCH, TEMPER, POOL))
FEWEST_VALUES = kernel.FEWEST_VALUES


class Case(NamedTuple):
    name: str
    build: Callable[[], nn.Module]
    size: int
    batch: int
    at_most: float
    at_most_compiled: float | None = None


def small() -> nn.Module:
    return cifar_stem_resnet18(num_classes=10)


GPU_CASES = [
    Case("ResNet18 (3x3 stem), 32 px", small, 32, 512, 1.04),
    Case("ResNet18 (3x3 stem), 32 px", small, 32, 32, 1.25, 1.15),
    Case("ResNet152, 224 px", lambda: resnet152(num_classes=1000), 224, 64, 1.015),
]
CPU_CASES = [
    Case("ResNet18 (3x3 stem), 32 px", small, 32, 1, 1.06),
    Case("ResNet18 (3x3 stem), 32 px", small, 32, 32, 1.03),
]


def fitted(model: nn.Module, size: int, device: torch.device) -> DAC:
    """Return the default calibrator of a model, a shift fit with centres, in which every layer has a weight."""
    capture = LayerCapture(model, LAYERS)
    with torch.inference_mode(), capture.reading() as read:
        logits = model(torch.randn(1, 3, size, size, device=device))
    capture.remove()
    widths = {layer: part.shape[1] for layer, part in {**read, "logits": logits}.items()}
    rng = np.random.default_rng(0)
    train = {layer: rng.normal(size=(5000, width)).astype(np.float32) for layer, width in widths.items()}
    some = {layer: part[:300] for layer, part in train.items()}
    scores, labels = 3 * some["logits"], some["logits"].argmax(axis=1)
    shifted = {
        f"domain {n}": Outputs(scores, np.where(np.arange(300) < n, np.roll(labels, 1), labels), some)
        for n in (60, 120, 180, 240, 300)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dac = DAC(FeatureBank(train)).fit(scores, labels, features=some, shifted=shifted)
    dac.weights_ = np.full(len(widths), 0.2)
    return dac


def without(served: CalibratedModel, left_out: tuple[str, ...]) -> CalibratedModel:
    """Replace kernels by the torch operations."""
    head: Any = served.head
    kernel.FEWEST_VALUES = sys.maxsize if POOL in left_out else FEWEST_VALUES
    if left_out:
        head.search.has_kernels &= SEARCH not in left_out
        head._has_kernel = lambda logits: TEMPER not in left_out
    return served


def milliseconds(calls: list[Callable[[], Any]], clock: Callable[[Callable[[], Any]], float], n: int) -> list[float]:
    """Return the best time of each call; the calls alternate."""
    for call in calls:
        for _ in range(3):
            call()
    rounds = [[clock(call) for call in calls] for _ in range(n)]
    return [min(times) for times in zip(*rounds, strict=True)]


def cpu_time(call: Callable[[], Any]) -> float:
    """Return the CPU time of a call over all threads."""
    return 1000 * timed(call).cpu


def synchronised(call: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def stream(call: Callable[[], Any], n_runs: int = 20) -> float:
    """Return the time per call in a sequence of calls, as in a server under load."""

    def many() -> None:
        for _ in range(n_runs):
            call()

    return synchronised(many) / n_runs


def gpu_busy(call: Callable[[], Any], n_runs: int = 5) -> float:
    """Return the time of the kernels of one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(n_runs):
            call()
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(event.device_time for event in kernels) / n_runs / 1000


def ratios(plain: Callable[[], Any], served: Callable[[], Any], device: torch.device, args: Any) -> str:
    """Return the columns of a row: plain, calibrated and their ratio for each way to measure."""
    if device.type != "cuda":
        ways = [(cpu_time, args.repeats)]
    elif args.gpu_busy:
        ways = [(gpu_busy, 1)]
    else:
        ways = [(synchronised, args.repeats), (stream, 9)]
    pairs = [milliseconds([plain, served], *way) for way in ways]
    return " | ".join(f"{a:.2f} | {b:.2f} | **{b / a:.3f}x**" for a, b in pairs)


def bench(case: Case, device: torch.device, args: Any) -> None:
    torch.manual_seed(0)
    model = case.build().eval().to(device)
    dac = fitted(model, case.size, device)
    images = torch.randn(case.batch, 3, case.size, case.size, device=device)
    on_gpu = device.type == "cuda"

    def forward(module: nn.Module) -> Tensor:
        with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            return module(images)  # type: ignore[no-any-return]

    for compiled in (False, True) if on_gpu else (False,):
        for left_out in LEFT_OUT if on_gpu and not args.bars else LEFT_OUT[:1]:
            # The hooks of a calibrated model do nothing in a plain forward, so both can share the classifier.
            served = without(CalibratedModel(model, dac, LAYERS).to(device), left_out)
            if compiled:
                torch.compiler.reset()
                served.head.compile(mode="reduce-overhead")
            columns = ratios(lambda: forward(model), lambda served=served: forward(served), device, args)
            target = None if left_out else case.at_most_compiled if compiled else case.at_most
            head = ("compiled" if compiled else "eager") + "".join(f", no {kernel}" for kernel in left_out)
            print(f"| {case.name} | {case.batch} | {head} | {columns} | {target or ''} |", flush=True)
            served.capture.remove()


def bench_estimate(case: Case, n_samples: int, device: torch.device, args: Any) -> None:
    """Compare `estimate_accuracy` of a loader with the plain forward passes of the same batches."""
    torch.manual_seed(0)
    model = case.build().eval().to(device)
    served = CalibratedModel(model, fitted(model, case.size, device), LAYERS).to(device)
    loader = list(torch.randn(n_samples, 3, case.size, case.size, device=device).split(case.batch))
    on_gpu = device.type == "cuda"

    def run(work: Callable[[], Any]) -> None:
        with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            work()

    def forward() -> None:
        run(lambda: torch.cat([model(batch) for batch in loader]).cpu())

    columns = ratios(forward, lambda: run(lambda: served.estimate_accuracy(loader)), device, args)
    print(f"| {case.name}, estimate of {n_samples:,} images | {case.batch} | eager | {columns} | 1.05 |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--gpu-busy", action="store_true", help="measure kernel times with a profiler instead")
    parser.add_argument("--bars", action="store_true", help="only the rows with all kernels")
    parser.add_argument("--threads", type=int, default=1, help="threads on a CPU; waiting ones count as CPU time")
    parser.add_argument("--estimate", type=int, metavar="N", help="time estimate_accuracy of N images instead")
    args = parser.parse_args()
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    if not on_gpu:
        torch.set_num_threads(args.threads)
    name = torch.cuda.get_device_name(device) if on_gpu else platform.processor() or platform.machine()
    precision = "autocast bfloat16" if on_gpu else f"float32, threads: {torch.get_num_threads()}"
    print(f"{name}, torch {torch.__version__}, {precision}; times in ms\n")
    ways = ["CPU time"] if not on_gpu else ["GPU busy"] if args.gpu_busy else ["one by one", "stream"]
    header = ["network", "batch", "head", *(f"{way}: plain | calibrated | ratio" for way in ways), "at most"]
    print(f"| {' | '.join(header)} |")
    print("|---" * (4 + 3 * len(ways)) + "|")
    for case in GPU_CASES if on_gpu else CPU_CASES:
        if args.estimate is None:
            bench(case, device, args)
        elif case.batch > 1:
            bench_estimate(case, args.estimate, device, args)


if __name__ == "__main__":
    main()
