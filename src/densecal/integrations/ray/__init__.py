"""Ray: extraction, banks, predictions, evaluation and monitoring of data sets that are too large for one machine.

Requires Ray: ``pip install "densecal[ray]"``. Batching, scheduling, retries and spilling are those of Ray Data.
"""

import lazy_loader as _lazy

from densecal.errors import require

require("ray", "ray", __name__)

# A task imports only what it needs: torch takes seconds and hundreds of megabytes in every worker.
__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
