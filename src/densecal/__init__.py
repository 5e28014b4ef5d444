"""densecal: density-aware calibration. Confidence that stays honest when the data moves.

``__init__.pyi`` lists the public API. A module is imported when one of its names is first used, so ``import densecal``
is fast and does not import torch.
"""

import lazy_loader as _lazy

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
# A star import must not hide the libraries of these names.
__all__ = [name for name in __all__ if name not in ("sklearn", "torch")]
