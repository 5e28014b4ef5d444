"""From a PyTorch classifier to a calibrated model: choose layers, extract features, calibrate, serve, export.

Needs PyTorch: ``pip install "densecal[torch]"``.
"""

from importlib.util import find_spec

import lazy_loader as lazy

_attached, _names, __all__ = lazy.attach_stub(__name__, __file__)


def __dir__() -> list[str]:
    # help() reads every name that is listed, and without PyTorch none can be read.
    return _names() if find_spec("torch") else []


def __getattr__(name: str) -> object:
    try:
        return _attached(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f'densecal.torch.{name} needs PyTorch: pip install "densecal[torch]".') from error
