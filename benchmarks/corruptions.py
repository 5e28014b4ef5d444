"""Time the 18 x 5 corruptions, compared with an image-by-image generator in the same run.

    python benchmarks/corruptions.py                         # CPU, 2 threads, with the comparison
    python benchmarks/corruptions.py --device cuda           # all 900,000 images of CIFAR-10-C

Writes results/corruptions_speed_<device>.md. Images are read from `--data` (a folder with `cifar-10-batches-py`);
without it, they are smooth random images.
"""

from __future__ import annotations

import argparse
import os
import pickle
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

from densecal.shift import CORRUPTIONS, SEVERITIES, corrupt

RESULTS = Path(__file__).parent / "results"
ORIGINAL_MS = 1.9
"""Milliseconds per image of the published generator on one core, averaged over the 18 x 5."""


def make_images(count: int, data: Path | None) -> torch.Tensor:
    if data is not None:
        content = pickle.loads((data / "cifar-10-batches-py" / "test_batch").read_bytes(), encoding="bytes")
        return torch.from_numpy(content[b"data"].reshape(-1, 3, 32, 32)[:count].copy())
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 6, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").clamp(0, 1)
    grain = torch.randn(count, 3, 32, 32, generator=generator) * 0.03
    return ((smooth + grain).clamp(0, 1) * 255).to(torch.uint8)


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def time_ours(images: torch.Tensor, name: str, repeats: int) -> list[float]:
    """Return the seconds for each severity: the best of several repeats, with lookup tables cached."""
    seconds = []
    for severity in SEVERITIES:
        corrupt(images[:64], name, severity)
        times = []
        for _ in range(repeats):
            start = now(images.device)
            corrupt(images, name, severity)
            times.append(now(images.device) - start)
        seconds.append(min(times))
    return seconds


def time_everything(images: torch.Tensor) -> float:
    """Return the seconds for all 90 conditions, one after the other, each copied to the host."""
    start = now(images.device)
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            corrupt(images, name, severity, seed=1).cpu()
    return now(images.device) - start


def time_reference(images: np.ndarray, name: str) -> list[float]:
    """Return the seconds per image for each severity, image by image on one core."""
    import cv2

    from reference_corruptions import REFERENCES

    cv2.setNumThreads(1)
    rng = np.random.default_rng(0)
    ice = [rng.integers(0, 256, (128, 128, 3), dtype=np.uint8)] if name == "frost" else []
    seconds = []
    for severity in SEVERITIES:
        constants = list(CORRUPTIONS[name].constants(severity, 32))
        if name == "elastic_transform":
            constants = [32 * value for value in constants]
        start = time.perf_counter()
        for image in images:
            np.clip(REFERENCES[name](image, rng, *constants, *ice), 0, 255).astype(np.uint8)
        seconds.append((time.perf_counter() - start) / len(images))
    return seconds


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return f"one {torch.cuda.get_device_name()}"
    return f"{torch.get_num_threads()} threads of a {platform.machine()} CPU ({_cpu_name()})"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--count", type=int, help="images per condition; by default 10,000 on a GPU, 2,000 on a CPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--reference", type=int, default=40, help="images for the comparison (CPU); 0 skips it")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    images = make_images(options.count or (10_000 if on_gpu else 2_000), options.data).to(device)
    compare = options.reference if not on_gpu else 0
    few = images[:compare].cpu().numpy().transpose(0, 2, 3, 1)

    load = os.getloadavg()[0]
    count = len(images)
    head = f"| corruption | seconds for 5 x {count:,} images | ms per image |"
    lines = [head + (" image by image, ms | times faster |" if compare else "")]
    lines.append("|---|" + "---:|" * (4 if compare else 2))
    total, reference_total = 0.0, 0.0
    for name in CORRUPTIONS:
        ours = sum(time_ours(images, name, options.repeats))
        each = ours / (5 * count) * 1000
        total += ours
        row = f"| {name} | {ours:.3f} | {each:.4f} |"
        if compare:
            theirs = float(np.mean(time_reference(few, name))) * 1000
            reference_total += theirs
            row += f" {theirs:.3f} | {theirs / each:.0f} |"
        print(row, file=sys.stderr)
        lines.append(row)
    mean = total / (90 * count) * 1000
    row = f"| **all 18** | **{total:.2f}** | **{mean:.4f}** |"
    if compare:
        row += f" **{reference_total / 18:.3f}** | **{reference_total / 18 / mean:.0f}** |"
    lines.append(row)
    whole = time_everything(images)
    text = [
        f"## Speed of the corruptions ({device.type})",
        "",
        f"32x32 colour images on {hardware(device)}; torch {torch.__version__}. Averaged over all 18 x 5 conditions an "
        f"image takes {mean:.4f} ms, {ORIGINAL_MS / mean:.0f} times less than the published generator's "
        f"{ORIGINAL_MS} ms on one core. All {90 * count:,} images, made one condition after the other and copied to "
        f"the host, took {whole:.1f} s. Load average of the machine at the start: {load:.1f}.",
        "",
        *lines,
        "",
    ]
    if compare:
        text.insert(
            4, "For comparison, in the same run: NumPy, SciPy, OpenCV, scikit-image and Pillow, one image at a time.\n"
        )
    out = options.out or RESULTS / f"corruptions_speed_{device.type}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(text))
    print("\n".join(text))


if __name__ == "__main__":
    main()
