"""Parts of a batch side by side: one thread a part, instead of all threads on each small operation.

torch's own threads meet after every operation, which costs more than the operation when the arrays are small, and a
great deal when other programs want the same cores. Here each thread works through a part of the batch alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}

if hasattr(os, "register_at_fork"):
    # A forked process has the pool's object but not its threads.
    os.register_at_fork(after_in_child=_pools.clear)


def run_parts(work: Callable[[slice], None], parts: Sequence[slice], device: torch.device) -> None:
    """Call `work` with every part: one after the other on a GPU, side by side on as many cores as torch may use."""
    threads = min(torch.get_num_threads(), len(parts))
    if device.type != "cpu" or threads < 2:
        for part in parts:
            work(part)
        return
    inference = torch.is_inference_mode_enabled()

    def alone(part: slice) -> None:
        # This mode belongs to a thread; tensors made in it may only be changed in it.
        with torch.inference_mode(inference):
            work(part)

    for done in [_pool(torch.get_num_threads()).submit(alone, part) for part in parts]:
        done.result()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            ready = threading.Barrier(threads + 1)

            def start() -> None:
                torch.set_num_threads(1)
                ready.wait()

            pool = ThreadPoolExecutor(threads, thread_name_prefix="densecal")
            for _ in range(threads):
                pool.submit(start)
            ready.wait()
            # A thread's own number of threads stays; the one that later threads start with is put back.
            torch.set_num_threads(threads)
            _pools[threads] = pool
        return _pools[threads]
