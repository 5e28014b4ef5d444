"""The overhead of Ray: an extraction by two workers with one thread each, and by one process with one or two threads.

All write the same files. ``--seconds`` is the amount of work for two idle cores. Wall time includes the start of the
workers but not of Ray itself. CPU time is the sum over all processes. On a busy machine, compare it with that of one
thread: two threads of one process wait for each other by spinning, which costs CPU time if one of them has no core.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from bench import timed, write_section
from reproduction.page.markdown import markdown

SIZE, BATCH, SHARD = 96, 16, 64


def images(n_images: int):
    import torch
    from torch.utils.data import Dataset

    class Images(Dataset):
        def __len__(self):
            return n_images

        def __getitem__(self, index):
            return torch.rand(3, SIZE, SIZE, generator=torch.Generator().manual_seed(index)), index % 10

    return Images()


def classifier():
    import torch
    from torchvision.models import resnet18

    torch.manual_seed(0)
    return resnet18(num_classes=10).eval()


class CpuTime(threading.Thread):
    """Tracks the CPU time of this process and of all its descendants, including those that end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.used: dict[int, float] = {}
        self.first = self.sample()
        self.start()

    def run(self) -> None:
        while True:
            time.sleep(0.2)
            self.sample()

    def sample(self) -> float:
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                    parents[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:13]))
        own, found = {os.getpid()}, 0
        while len(own) > found:
            found = len(own)
            own |= {pid for pid, (parent, _) in parents.items() if parent in own}
        self.used |= {pid: parents[pid][1] / os.sysconf("SC_CLK_TCK") for pid in own}
        return sum(self.used.values())

    def seconds(self) -> float:
        return self.sample() - self.first


def measure(workers: int, n_images: int, folder: str) -> None:
    """Extract by one process (0 workers) or by workers of Ray, and print the seconds and the CPU seconds."""
    from densecal.torch import extract_shards

    options = {"shard_size": SHARD, "batch_size": BATCH}
    model, data = classifier(), images(n_images)
    if not workers:
        cpu = CpuTime()
        run = timed(lambda: extract_shards(folder, model, data, progress=False, **options))
        print(run.seconds, cpu.seconds())
        return
    from densecal.integrations import ray as on_ray

    with on_ray.cluster(workers=workers):
        cpu = CpuTime()
        run = timed(lambda: on_ray.extract_shards(folder, model, data, workers=workers, **options))
        print(run.seconds, cpu.seconds())


def run(workers: int, n_images: int, threads: int = 1) -> tuple[float, float]:
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": str(threads)}
    if workers:
        del environment["OMP_NUM_THREADS"]  # Ray gives each worker as many threads as CPUs.
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--worker", str(workers), str(n_images), folder]
        answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    seconds, cpu = map(float, answer.stdout.split()[-2:])
    return seconds, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="work of two idle cores")
    parser.add_argument("--write", action="store_true", help="write the result to benchmarks/results")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        measure(int(options.worker[0]), int(options.worker[1]), options.worker[2])
        return
    trial = 4 * SHARD
    n_images = SHARD * max(4, round(2 * options.seconds * trial / run(0, trial)[1] / SHARD))
    load = os.getloadavg()[0]
    (_, single_cpu), (alone, alone_cpu), (shared, shared_cpu) = (
        run(0, n_images),
        run(0, n_images, 2),
        run(2, n_images),
    )
    rows = [
        ["one process, one thread", "-", f"{single_cpu:.1f}"],
        ["one process, two threads", f"{alone:.1f}", f"{alone_cpu:.1f}"],
        ["two Ray workers", f"{shared:.1f}", f"{shared_cpu:.1f}"],
        ["overhead over two threads", f"{shared / alone - 1:+.1%}", f"{shared_cpu / alone_cpu - 1:+.1%}"],
        ["overhead over one thread", "-", f"{shared_cpu / single_cpu - 1:+.1%}"],
    ]
    write_section(
        "ray_overhead",
        "## Overhead of Ray",
        f"`python benchmarks/ray_overhead.py --seconds {options.seconds:g}`: extraction of {n_images:,} images of "
        f"{SIZE} x {SIZE} with a ResNet-18 to shards, {os.cpu_count()} cores, load {load:.1f} before the run. CPU "
        "seconds are summed over all processes.",
        markdown(["", "wall s", "CPU s"], rows),
        save=options.write,
    )


if __name__ == "__main__":
    main()
