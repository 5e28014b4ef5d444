"""Time the 18 x 5 corruptions on two CPU threads, compared with an image-by-image generator in the same run.

python benchmarks/corruptions.py
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import cv2
import numpy as np
import torch

from bench import fastest, timed, write_section
from densecal.shift import CORRUPTIONS, SEVERITIES, corrupt
from reference_corruptions import REFERENCES
from reproduction.page.markdown import markdown

IMAGES, REFERENCE_IMAGES, REPEATS, THREADS = 2_000, 40, 3, 2


def make_images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(IMAGES, 3, 6, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").clamp(0, 1)
    grain = torch.randn(IMAGES, 3, 32, 32, generator=generator) * 0.03
    return ((smooth + grain).clamp(0, 1) * 255).to(torch.uint8)


def time_ours(images: torch.Tensor, name: str) -> float:
    """Return the seconds for all severities: the best of several repeats of each, with lookup tables cached."""
    total = 0.0
    for severity in SEVERITIES:
        corrupt(images[:64], name, severity)
        total += fastest(lambda severity=severity: corrupt(images, name, severity), REPEATS).seconds
    return total


def corrupt_in_every_way(images: torch.Tensor) -> None:
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            corrupt(images, name, severity, seed=1)


def time_reference(images: np.ndarray, name: str) -> float:
    """Return the mean seconds per image over the severities, image by image on one core."""
    cv2.setNumThreads(1)
    rng = np.random.default_rng(0)
    ice = [rng.integers(0, 256, (128, 128, 3), dtype=np.uint8)] if name == "frost" else []
    seconds = []
    for severity in SEVERITIES:
        constants = list(CORRUPTIONS[name].constants(severity, 32))
        if name == "elastic_transform":
            constants = [32 * value for value in constants]

        def corrupt_one_by_one(constants: list[float] = constants) -> None:
            for image in images:
                np.clip(REFERENCES[name](image, rng, *constants, *ice), 0, 255).astype(np.uint8)

        seconds.append(timed(corrupt_one_by_one).seconds / len(images))
    return float(np.mean(seconds))


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    torch.set_num_threads(THREADS)
    images = make_images()
    few = images[:REFERENCE_IMAGES].numpy().transpose(0, 2, 3, 1)
    load = os.getloadavg()[0]
    rows = []
    total, reference_total = 0.0, 0.0
    for name in CORRUPTIONS:
        ours, theirs = time_ours(images, name), 1000 * time_reference(few, name)
        each = 1000 * ours / (5 * IMAGES)
        total, reference_total = total + ours, reference_total + theirs
        rows.append([name, f"{ours:.3f}", f"{each:.4f}", f"{theirs:.3f}", f"{theirs / each:.0f}"])
    mean, reference = 1000 * total / (90 * IMAGES), reference_total / 18
    values = ["all 18", f"{total:.2f}", f"{mean:.4f}", f"{reference:.3f}", f"{reference / mean:.0f}"]
    rows.append([f"**{value}**" for value in values])
    every = timed(lambda: corrupt_in_every_way(images)).seconds
    write_section(
        "corruptions_speed_cpu",
        "## Speed of the corruptions (cpu)",
        f"32x32 colour images on {THREADS} threads of an {platform.machine()} CPU ({cpu_name()}); torch "
        f"{torch.__version__}. Averaged over all 18 x 5 conditions, an image takes {mean:.4f} ms. "
        f"Generating all {90 * IMAGES:,} images, one condition after the other, took {every:.1f} s. "
        f"Load average of the machine at the start: {load:.1f}. Written by `python benchmarks/corruptions.py`.",
        "For comparison, in the same run: NumPy, SciPy, OpenCV, scikit-image and Pillow, one image at a time.",
        markdown(
            ["corruption", f"seconds for 5 x {IMAGES:,} images", "ms per image", "image by image, ms", "times faster"],
            rows,
        ),
    )


if __name__ == "__main__":
    main()
