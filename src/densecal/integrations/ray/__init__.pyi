from .cluster import cluster, map_tasks
from .extraction import extract, extract_shards
from .models import evaluate, fit_bank, monitor, predict
from .shards import read_shards, write_shards

__all__ = [
    "cluster",
    "evaluate",
    "extract",
    "extract_shards",
    "fit_bank",
    "map_tasks",
    "monitor",
    "predict",
    "read_shards",
    "write_shards",
]
