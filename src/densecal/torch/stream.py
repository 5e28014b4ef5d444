"""extract_to: resumable extraction to a file, for data sets larger than memory."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import torch
from torch import nn

from densecal.io.output_files import check_writable
from densecal.outputs import Outputs
from densecal.torch.extraction import Extraction, check_loader
from densecal.torch.features.batches import BatchFn, BatchT
from densecal.torch.features.layers import LayerChoice
from densecal.torch.resume import PartialOutputs


def extract_to(
    path: str | Path,
    model: nn.Module,
    loader: Iterable[BatchT],
    layers: LayerChoice = "auto",
    *,
    batch_fn: BatchFn[BatchT] | None = None,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    feature_dtype: torch.dtype = torch.float32,
    progress: bool = True,
) -> Outputs:
    """Extract to a file, batch by batch, and return the memory-mapped outputs.

    Until the file is complete, the batches are in a folder ``PATH.partial``. To resume after an interruption, repeat
    the call. It checks that the loader yields the finished batches again, so the loader must not shuffle. Different
    inputs, labels, layers, precision or weights raise an error.

    Parameters
    ----------
    path : str or Path
        The .safetensors file to write; ``Outputs.load`` reads it.
    model, loader, layers, batch_fn, device, autocast, feature_dtype, progress :
        As in :func:`~densecal.torch.extract`.

    Examples
    --------
    >>> import tempfile
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     extract_to(folder + "/train.safetensors", model, [torch.randn(5, 4), torch.randn(2, 4)])
    Outputs(7 samples, 3 classes, no labels, features {1: 8, logits: 3})
    """
    check_loader(loader)
    path = check_writable(path)
    if path.suffix.lower() == ".npz":
        raise ValueError(f"extract_to writes a .safetensors file, got {path.name!r}.")
    folder = path.with_name(path.name + ".partial")
    if path.exists() and not folder.exists():
        raise FileExistsError(f"{path} already exists. Remove it or choose another path.")
    run = Extraction(model, layers, batch_fn=batch_fn, device=device, autocast=autocast, feature_dtype=feature_dtype)
    settings = {"autocast": str(autocast), "feature_dtype": str(feature_dtype)}
    partial = PartialOutputs(folder, model, settings)
    with closing(partial):
        if path.exists():
            if not partial.wrote(Outputs.load(path)):
                raise FileExistsError(f"{path} already exists. Remove it or choose another path.")
        else:
            _complete(partial, run, loader, path, progress=progress)
        outputs = Outputs.load(path)
        partial.remove()
    return outputs


def _complete(
    partial: PartialOutputs, run: Extraction, loader: Iterable[BatchT], path: Path, *, progress: bool
) -> None:
    """Extract the batches that the folder lacks, and join all of them into the file."""
    partial.resume()
    try:
        checked = partial.checked(map(run.split, loader))
        with closing(run.pieces(checked, skip=partial.n_batches, progress=progress)) as pieces:
            for piece in pieces:
                partial.append(piece, list(run.layers))
    finally:
        partial.record()
    partial.finish(path, list(run.layers))
