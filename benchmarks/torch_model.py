"""Time the calibrated forward compared with the plain forward, and the neighbour search.

    python benchmarks/torch_model.py --device cuda            # the whole table, 3 min on one H200
    python benchmarks/torch_model.py --device cuda --gpu-busy # kernel times, which do not depend on the host's load
    python benchmarks/torch_model.py --device cpu --small     # a quick check on any machine

Weights are random, and the bank contains the network's features of random images, so no data is needed. Plain and
calibrated forwards alternate, and each time is the minimum of many, because other load only increases it. Kernel times
require a profiler, which slows all later launches, so they need a separate run.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal import FeatureBank, make_calibrator
from densecal.density.torch_search import NeighborSearch
from densecal.torch.features.capture import LayerCapture
from densecal.torch.features.layout import Layout
from densecal.torch.model import CalibratedModel
from reproduction.networks import cifar_stem_resnet18, resnet152

KINDS = {"float32": "float32", "float16": "float16", "compiled": "float32, head compiled"}
LAYERS = ("maxpool", "layer1", "layer2", "layer3", "layer4")


@dataclass
class Case:
    name: str
    build: Callable[[], nn.Module]
    size: int
    batch: int
    bank: int
    k: int
    target: float | None


CASES = [
    Case("ResNet18 (3x3 stem), 32 px", lambda: cifar_stem_resnet18(num_classes=10), 32, 512, 45_000, 50, 1.5),
    Case("ResNet18 (3x3 stem), 32 px", lambda: cifar_stem_resnet18(num_classes=10), 32, 512, 4_500, 50, 1.1),
    Case("ResNet18 (3x3 stem), 32 px", lambda: cifar_stem_resnet18(num_classes=10), 32, 32, 4_500, 50, None),
    Case("ResNet152, 224 px", lambda: resnet152(num_classes=1000), 224, 64, 12_811, 10, 1.05),
]
SMALL_CASES = [Case("ResNet18 (3x3 stem), 32 px", lambda: cifar_stem_resnet18(num_classes=10), 32, 32, 1_000, 50, 1.5)]


def features_of(model: nn.Module, case: Case, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    capture = LayerCapture(model, {layer: Layout("first") for layer in LAYERS})
    parts: list[dict[str, Tensor]] = []
    done = 0
    while done < case.bank:
        count = min(case.batch, case.bank - done)
        # Images with different brightness and contrast give features as spread out as those of real images.
        images = torch.randn(count, 3, case.size, case.size, device=device)
        images = images * torch.rand(count, 1, 1, 1, device=device) + torch.randn(count, 3, 1, 1, device=device)
        with torch.inference_mode(), torch.autocast(device.type, dtype=dtype), capture.reading() as read:
            logits = model(images)
        parts.append({**read, "logits": logits.float()})
        done += count
    capture.remove()
    return {layer: torch.cat([part[layer] for part in parts]) for layer in parts[0]}


def calibrated(model: nn.Module, features: dict[str, Tensor], case: Case) -> CalibratedModel:
    some = {layer: part[:200] for layer, part in features.items()}
    chain = make_calibrator("dac+ets", bank=FeatureBank(features, k=case.k))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chain.fit(some["logits"], some["logits"].argmax(dim=1), features=some)
    # Give every layer a weight, regardless of the fit to a random network.
    dac, ensemble = chain.stages
    dac.weights_, dac.bias_ = np.full(len(features), 0.2), 0.5
    ensemble.temperature_, ensemble.mixture_, ensemble.is_identity_ = 1.3, np.array([0.7, 0.2, 0.1]), False
    layouts = {layer: Layout("first") for layer in LAYERS}
    return CalibratedModel(model, chain, layouts).to(features["logits"].device)


def milliseconds(calls: list[Callable[[], Any]], device: torch.device, repeats: int) -> list[float]:
    """Return the best time of each call; the calls alternate."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(3):
            call()
    for _ in range(repeats):
        for own, call in zip(times, calls, strict=True):
            own.append(_one_time(call, device))
    return [min(own) for own in times]


def gpu_busy(call: Callable[[], Any], runs: int = 5) -> float:
    """Return the time of the kernels of one call, in milliseconds."""
    for _ in range(3):
        call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(runs):
            call()
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(event.device_time for event in kernels) / runs / 1000


def _one_time(call: Callable[[], Any], device: torch.device) -> float:
    if device.type != "cuda":
        start = time.perf_counter()
        call()
        return 1000 * (time.perf_counter() - start)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def back_to_back(calls: list[Callable[[], Any]], device: torch.device, runs: int) -> list[float]:
    """Return the time per call in a sequence of calls, as in a server under load; the sequences alternate."""

    def many(call: Callable[[], Any]) -> None:
        for _ in range(runs):
            call()

    times = milliseconds([lambda call=call: many(call) for call in calls], device, 9)
    return [time / runs for time in times]


def bench_model(case: Case, device: torch.device, dtype: torch.dtype, args: Any) -> list[str]:
    torch.manual_seed(0)
    model = case.build().eval().to(device)
    features = features_of(model, case, device, dtype)
    images = torch.randn(case.batch, 3, case.size, case.size, device=device)
    rows = []
    for kind in KINDS:
        # The hooks of a calibrated model do nothing in a plain forward, so both can share the classifier.
        wrapped = calibrated(model, features, case)
        if kind == "float16":
            wrapped.head.half()
        if kind == "compiled":
            if device.type != "cuda":
                continue
            wrapped.head.compile(mode="reduce-overhead")

        def forward(module: nn.Module) -> Tensor:
            with torch.inference_mode(), torch.autocast(device.type, dtype=dtype):
                return module(images)  # type: ignore[no-any-return]

        calls = [lambda: forward(model), lambda served=wrapped: forward(served)]
        if args.gpu_busy:
            pairs = [[gpu_busy(call) for call in calls]]
        else:
            pairs = [milliseconds(calls, device, args.repeats), back_to_back(calls, device, args.runs)]
        columns = " | ".join(f"{a:.2f} | {b:.2f} | **{b / a:.3f}x**" for a, b in pairs)
        target = f"{case.target}x" if case.target else ""
        rows.append(f"| {case.name} | {case.batch} | {case.bank:,} ({KINDS[kind]}) | {columns} | {target} |")
        wrapped.capture.remove()
    if args.gpu_busy:
        return rows
    bulk = [bench_bulk(case, features)] if device.type == "cuda" and case is CASES[0] else []
    return rows + bench_search(case, features, device, args) + bulk


def bench_search(case: Case, features: dict[str, Tensor], device: torch.device, args: Any) -> list[str]:
    """Return a line that compares variants of the search; times are of one search, including launches."""
    banks = [torch.nn.functional.normalize(part) for part in features.values()]
    queries = [part[: case.batch] + 0.01 * torch.randn_like(part[: case.batch]) for part in features.values()]
    search, without = NeighborSearch(banks, [case.k]), NeighborSearch(banks, [case.k])
    without.has_kernels = False
    forms = {
        "the search": lambda: search(queries),
        "without its kernels": lambda: without(queries),
        "plain float32 products and topk": lambda: _naive(queries, banks, case.k),
    }
    with torch.inference_mode():
        times = milliseconds(list(forms.values()), device, args.repeats)
    text = ", ".join(f"{name} {value:.3f}" for name, value in zip(forms, times, strict=True))
    return [f"- {text} ms. {accuracy(banks, queries, case.k)}"]


def bench_bulk(case: Case, features: dict[str, Tensor]) -> str:
    """Return a line on 100,000 queries at once, as in the extraction of a data set."""
    banks = [torch.nn.functional.normalize(part) for part in features.values()]
    drawn = torch.randint(case.bank, (100_000,), device=banks[0].device)
    queries = [part[drawn] + 0.01 * torch.randn_like(part[drawn]) for part in features.values()]
    search = NeighborSearch(banks, [case.k])
    chunks = list(zip(*(part.split(4096) for part in queries), strict=True))
    forms = [lambda: search(queries), lambda: [_naive(list(chunk), banks, case.k) for chunk in chunks]]
    with torch.inference_mode():
        found, naive = milliseconds(forms, banks[0].device, 5)
    return f"- 100,000 queries: the search {found:.0f}, plain float32 products and topk in chunks {naive:.0f} ms."


def _naive(queries: list[Tensor], banks: list[Tensor], k: int) -> Tensor:
    columns = []
    for query, bank in zip(queries, banks, strict=True):
        cosine = torch.nn.functional.normalize(query) @ bank.T
        columns.append((2 - 2 * cosine.topk(k).values[:, -1]).clamp_min(0).sqrt())
    return torch.stack(columns, dim=1)


def accuracy(banks: list[Tensor], queries: list[Tensor], k: int) -> str:
    """Return the largest error relative to float64, on these features, on clusters and around one direction."""
    cases = {"network": list(zip(queries, banks, strict=True))}
    for name, centres in {"10 tight clusters": 10, "one direction": 1}.items():
        directions = torch.nn.functional.normalize(torch.randn(centres, 512, device=banks[0].device))
        drawn = directions[torch.randint(centres, (20_000,), device=directions.device)]
        bank = torch.nn.functional.normalize(drawn + 2e-4 * torch.randn_like(drawn))
        cases[name] = [(drawn[:64] + 2e-4 * torch.randn_like(drawn[:64]), bank)]
    texts = []
    for name, pairs in cases.items():
        for kind in ("float32", "float16"):
            worst = max(_error(query[:64], bank, k, kind == "float16") for query, bank in pairs)
            texts.append(f"{name}, {kind} bank {worst:.1e}")
    return "Largest error: " + "; ".join(texts) + "."


def _error(query: Tensor, bank: Tensor, k: int, half: bool) -> float:
    unit, exact_bank = (torch.nn.functional.normalize(part.double()) for part in (query, bank))
    exact = torch.cdist(unit, exact_bank, compute_mode="donot_use_mm_for_euclid_dist").kthvalue(k, dim=1).values
    search = NeighborSearch([bank.half() if half else bank], [k])
    return float((search([unit.float()])[:, 0, 0] - exact).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="one small case, for a machine without a GPU")
    parser.add_argument("--gpu-busy", action="store_true", help="measure kernel times with a profiler instead")
    args = parser.parse_args()
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    print(f"{name}, torch {torch.__version__}, autocast {args.dtype}; times in ms\n")
    ways = ["GPU busy"] if args.gpu_busy else ["one by one", "stream"]
    header = ["network", "batch", "bank", *(f"{way}: plain | calibrated | ratio" for way in ways), "at most"]
    print(f"| {' | '.join(header)} |")
    print("|---" * (4 + 3 * len(ways)) + "|")
    notes = []
    for case in SMALL_CASES if args.small else CASES:
        start = time.perf_counter()
        lines = bench_model(case, device, getattr(torch, args.dtype), args)
        print("\n".join(line for line in lines if line.startswith("|")), flush=True)
        notes.append(f"\n{case.name}, bank {case.bank:,}: took {time.perf_counter() - start:.0f} s")
        notes += [line for line in lines if not line.startswith("|")]
    print("\n".join(notes))


if __name__ == "__main__":
    main()
