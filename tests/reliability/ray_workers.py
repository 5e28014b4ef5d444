"""Workers of Ray that are killed while they extract."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import ray.data
import torch
from torch import nn
from torch.utils.data import TensorDataset

from densecal import Outputs
from densecal.integrations import ray as on_ray
from densecal.torch import extract_shards
from tests.reliability.harness import Tally

ROWS, SHARD, BATCH = 960, 64, 32


class Traced(nn.Module):
    """Takes a moment, and leaves the number of its process in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.body = folder, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, inputs):
        self.folder.mkdir(exist_ok=True)
        (self.folder / str(os.getpid())).touch()
        time.sleep(0.03)
        return self.body(inputs)


def kill_one(pids: Path, seconds: float) -> None:
    """Kill a worker that long after the first batch."""
    while not pids.exists() or not list(pids.iterdir()):
        time.sleep(0.005)
    time.sleep(seconds)
    victims = sorted(int(path.name) for path in pids.iterdir())
    os.kill(victims[-1], signal.SIGKILL)


def kills_of_ray_workers(count, seed=0):
    """Kill a worker at a random moment: Ray replaces it, and every sample is written once, as by one process."""
    torch.manual_seed(0)
    rng, tally = np.random.default_rng(seed), Tally()
    data = TensorDataset(torch.randn(ROWS, 3), torch.arange(ROWS) % 3)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(), on_ray.cluster(workers=2):
        warnings.simplefilter("ignore")
        ray.data.DataContext.get_current().enable_progress_bars = False
        model = Traced(Path(name) / "pids")
        source = Path(name) / "source"
        rows = [
            {"id": i, "inputs": row.numpy(), "labels": int(k)}
            for i, (row, k) in enumerate(zip(*data.tensors, strict=True))
        ]
        ray.data.from_items(rows, override_num_blocks=8).write_parquet(str(source))
        extract_shards(Path(name) / "one", model, data, shard_size=SHARD, batch_size=BATCH, progress=False)
        expected = Outputs.open(Path(name) / "one").load()
        for trial in range(count):
            tally.tried += 1
            for path in model.folder.iterdir():
                path.unlink()
            killer = threading.Thread(target=kill_one, args=(model.folder, rng.uniform(0, 0.6)), daemon=True)
            killer.start()
            target = Path(name) / f"ray-{trial}"
            if trial % 2:
                read = ray.data.read_parquet(str(source)).repartition(target_num_rows_per_block=ROWS // 8)
                found = on_ray.extract(read, model, keep=["id"], batch_size=BATCH, workers=2)
                on_ray.write_shards(found, target, id_column="id", shard_size=SHARD)
            else:
                on_ray.extract_shards(target, model, data, shard_size=SHARD, batch_size=BATCH, workers=2)
            killer.join(timeout=5)
            got = Outputs.open(target).load()
            if not same_samples(got, expected, in_order=trial % 2 == 0):
                tally.spoil(f"trial {trial}: {len(got)} samples of {len(expected)}, or others")
    return tally


def same_samples(got: Outputs, expected: Outputs, *, in_order: bool) -> bool:
    """Return whether both hold the same samples, each once: bit for bit in the same order, else to rounding."""
    if got.logits.shape != expected.logits.shape:
        return False
    if in_order:
        return np.array_equal(got.logits, expected.logits) and np.array_equal(got.labels, expected.labels)
    one, other = (np.column_stack([part.labels, part.logits]) for part in (got, expected))
    matches = np.abs(one[:, None] - other[None]).max(axis=2) < 1e-5
    return bool(np.all(matches.sum(axis=0) == 1) and np.all(matches.sum(axis=1) == 1))
