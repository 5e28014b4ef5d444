"""What the benchmarks share: clocks, the peak of the memory, and the sections in results/."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"


class Timed(NamedTuple):
    """The seconds of a call, its CPU seconds, and its result."""

    seconds: float
    cpu: float
    result: Any


def timed(call: Callable[[], Any]) -> Timed:
    start, cpu = time.perf_counter(), time.process_time()
    result = call()
    return Timed(time.perf_counter() - start, time.process_time() - cpu, result)


def fastest(call: Callable[[], Any], repeats: int = 3, by: str = "seconds") -> Timed:
    """Return the shortest of several calls, which is least affected by other load."""
    return min((timed(call) for _ in range(repeats)), key=attrgetter(by))


def peak_memory(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the peak of the resident memory during a call, in MiB above that before it, and the result."""
    Path("/proc/self/clear_refs").write_text("5")  # The peak becomes the current memory.
    before = _peak()
    result = call()
    return _peak() - before, result


def _peak() -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def write_section(name: str, *parts: str, save: bool = True) -> None:
    """Print a section and, unless it is a trial, write it to results/NAME.md."""
    text = "\n\n".join(part.rstrip() for part in parts) + "\n"
    print(text)
    if save:
        (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
