"""Ray: extraction, banks, predictions, evaluation and monitoring of data sets that one machine is too small for.

Requires Ray: ``pip install "densecal[ray]"``. Batching, scheduling, retries and spilling are those of Ray Data.
"""

from densecal.errors import require

require("ray", "ray", __name__)

from densecal.integrations.ray.cluster import cluster  # noqa: E402
from densecal.integrations.ray.extraction import extract, extract_shards  # noqa: E402
from densecal.integrations.ray.models import evaluate, fit_bank, monitor, predict  # noqa: E402
from densecal.integrations.ray.shards import read_shards, write_shards  # noqa: E402
from densecal.integrations.ray.tasks import map_tasks  # noqa: E402

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
