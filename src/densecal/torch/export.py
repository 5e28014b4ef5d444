"""export_onnx: export a classifier and its calibration as one ONNX graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from densecal import __version__
from densecal.calibrators.base import Calibrator
from densecal.errors import require
from densecal.io.atomic_files import atomic_write, creation_time
from densecal.torch.batches import Batch, BatchFn, BatchT, iterate_tensors, split_batch
from densecal.torch.fingerprint import weights_hash
from densecal.torch.model import CalibratedModel
from densecal.torch.wrappers import unwrapped

TOLERANCE = 1e-4
AGREEING_SHARE = 0.99
"""Fraction of the example that must agree: a step of an isotonic map can amplify a rounding error."""
MAX_BATCH_SIZE = 1 << 16


def export_onnx(
    model: CalibratedModel,
    example: BatchT,
    path: str | Path,
    *,
    batch_fn: BatchFn[BatchT] | None = None,
    check: bool = True,
    check_classifier: bool = True,
) -> None:
    """Export a calibrated model, including its classifier, to one ONNX file.

    The graph takes the classifier's inputs, for any batch size and any text length that the classifier supports, and
    returns ``probabilities`` of shape (n_samples, n_classes). All other axes have the lengths of the example: the
    height and width of images are fixed, and onnxruntime rejects images of other sizes, even for a classifier that was
    calibrated on several. Resize the images, export one file per size, or use ``torch.export.export`` with
    ``dynamic_shapes``.

    The graph's metadata name the method, the measured layers, the classifier's class, the SHA-256 hash of its weights,
    the version of densecal and the date. Requires the extra ``densecal[onnx]``.

    Parameters
    ----------
    model : CalibratedModel
        A model with an accuracy-preserving method; other methods raise an error.
    example : Tensor, tuple or mapping
        A batch as the loader yields it; labels are ignored. Images have the size that will be served.
    path : str or Path
        The file to write.
    batch_fn : callable, optional
        As in :func:`~densecal.torch.extract`.
    check : bool, default True
        Run the file in onnxruntime on the example and compare the predicted classes and probabilities (to 1e-4).
    check_classifier : bool, default True
        Raise an error if the weights have changed since the calibration, as in ``CalibratedModel.save``.

    Examples
    --------
    >>> import densecal, tempfile
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> model = CalibratedModel(nn.Identity(), scaling, layouts={})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(model, torch.randn(3, 2), folder + "/model.onnx")
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        require(package, "onnx", "export_onnx")
    if isinstance(example, (str, Path)):
        raise TypeError(f"The example comes before the path: export_onnx(model, example, {str(example)!r}).")
    _check_method(model.calibrator)
    if check_classifier:
        model.record.raise_if_changed(model.classifier)
    # Export a copy on the CPU, where the search uses plain float32, which every runtime supports.
    served = deepcopy(model).cpu().float().eval()
    batch = split_batch(example, model.classifier, batch_fn).to(torch.device("cpu"))
    batch = batch.map(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)
    program = _convert(served, batch)
    program.model.metadata_props.update(_metadata(model))
    with atomic_write(path) as temporary:
        program.save(str(temporary))
        if check:
            _compare(temporary, served, batch)


def _check_method(calibrator: Calibrator) -> None:
    if not calibrator.accuracy_preserving:
        raise ValueError(
            f"{calibrator.full_name} ({calibrator.short_name!r}) cannot be exported to ONNX: it may change the "
            "predicted class. Only accuracy-preserving methods can be exported: ts, ets, irm, spl, pts and dia, alone "
            "or after dac."
        )


def _metadata(model: CalibratedModel) -> dict[str, str]:
    """Return what the graph is, as ONNX stores it: strings by name."""
    return {
        "densecal.version": __version__,
        "densecal.created": creation_time().isoformat(timespec="seconds"),
        "densecal.method": model.calibrator.method_name,
        "densecal.layers": json.dumps(model.layers),
        "densecal.classifier": type(unwrapped(model.classifier)[0]).__name__,
        "densecal.classifier_sha256": weights_hash(model.classifier),
    }


def _convert(model: CalibratedModel, batch: Batch) -> Any:
    """Return the ONNX program, for texts of any length if the classifier supports it."""
    if any(map(_is_text, batch.tensors)):
        with suppress(Exception):  # On any failure, fall back to the length of the example.
            return _convert_program(model, batch, free_lengths=True)
    return _convert_program(model, batch, free_lengths=False)


def _convert_program(model: CalibratedModel, batch: Batch, *, free_lengths: bool) -> Any:
    converted = torch.onnx.export(
        _exported(model, batch, free_lengths=free_lengths),
        dynamo=True,
        dynamic_shapes=_axis_names(batch, free_lengths=free_lengths),
        input_names=_input_names(batch),
        output_names=["probabilities"],
        verbose=False,
        external_data=False,
    )
    if converted is None:
        raise RuntimeError("torch.onnx.export returned no program. It must support dynamo=True (torch 2.6 or newer).")
    return converted


def _axis_names(batch: Batch, *, free_lengths: bool) -> tuple[dict[int, str], ...]:
    """Return names of the free axes of each input. An axis that is named once has its name in all inputs."""
    names: list[dict[int, str]] = [{} for _ in batch.tensors]
    names[0][0] = "batch"
    if free_lengths:
        names[[_is_text(tensor) for tensor in batch.tensors].index(True)][1] = "length"
    return tuple(names)


def _input_names(batch: Batch) -> list[str]:
    """Return the keys of keyword arguments and mappings, and ``input`` or ``input_NUMBER`` for other arguments."""
    items = {f"input_{number}" if len(batch.args) > 1 else "input": value for number, value in enumerate(batch.args)}
    names: list[str] = []
    for name, value in {**items, **batch.kwargs}.items():
        nested = value if isinstance(value, Mapping) else {name: value}
        for key, part in nested.items():
            count = len(list(iterate_tensors(part)))
            names += [key] if count == 1 else [f"{key}_{number}" for number in range(count)]
    return names


def _is_text(tensor: Tensor) -> bool:
    return tensor.ndim == 2 and not tensor.is_floating_point()


def _exported(model: CalibratedModel, batch: Batch, *, free_lengths: bool) -> Any:
    free = torch.export.Dim("batch", min=1, max=MAX_BATCH_SIZE)
    n_samples = batch.n_samples
    length = {1: torch.export.Dim.AUTO} if free_lengths else {}
    values, shapes = [], []
    for tensor in batch.tensors:
        is_batched = tensor.ndim > 0 and tensor.shape[0] == n_samples
        # torch.export treats a batch size of one as a constant.
        values.append(torch.cat([tensor, tensor]) if is_batched and n_samples == 1 else tensor)
        shapes.append({0: free, **(length if _is_text(tensor) else {})} if is_batched else None)
    with torch.no_grad():
        wrapped = _Positional(model, batch)
        program = torch.export.export(wrapped, tuple(values), dynamic_shapes=(tuple(shapes),), strict=False)
    if free_lengths:
        _check_free_lengths(program)
    return program.run_decompositions({torch.ops.aten.searchsorted.Tensor: _search_by_halving})


def _check_free_lengths(program: Any) -> None:
    """Raise if the program has a fixed length: its file would accept other lengths and read only their first tokens."""
    taken = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        # A specialised symbol prints as a number.
        if node.name in taken and _is_text(node.meta["val"]) and str(node.meta["val"].shape[1]).isdigit():
            raise ValueError(f"The classifier fixes the length of {node.name!r}.")


class _Positional(nn.Module):
    """A model that takes all its tensors by position, as an ONNX graph does."""

    def __init__(self, model: CalibratedModel, batch: Batch) -> None:
        super().__init__()
        self.model, self.batch = model, batch

    def forward(self, *values: Tensor) -> Tensor:
        remaining = iter(values)
        batch = self.batch.map(lambda _: next(remaining))
        return self.model.predict_proba(*batch.args, **batch.kwargs)


def _search_by_halving(
    sorted_sequence: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
) -> Tensor:
    """Return insertion positions by binary search, for runtimes without a searchsorted operator."""
    (count,) = sorted_sequence.shape
    position = torch.zeros_like(values, dtype=torch.int64)
    step = 1 << (count.bit_length() - 1)
    while step:
        candidate = position + step
        there = sorted_sequence[(candidate - 1).clamp_max(count - 1)]
        is_left = there <= values if right or side == "right" else there < values
        position = torch.where(is_left & (candidate <= count), candidate, position)
        step //= 2
    return position.int() if out_int32 else position


def _compare(path: Path, model: CalibratedModel, batch: Batch) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    given = dict(zip(names, (tensor.numpy() for tensor in batch.tensors), strict=True))
    got = torch.from_numpy(session.run(None, given)[0])
    with torch.inference_mode():
        expected = model.predict_proba(*batch.args, **batch.kwargs)
    gap = (got - expected).abs()
    changed = float((got.argmax(dim=1) != expected.argmax(dim=1)).float().mean())
    hint = "The classifier may use an operation that ONNX computes differently. Pass check=False to skip this check."
    if changed > 1 - AGREEING_SHARE:
        raise RuntimeError(f"The ONNX file predicts a different class for {changed:.1%} of the example. {hint}")
    if not float((gap <= TOLERANCE).float().mean()) > AGREEING_SHARE:
        raise RuntimeError(
            f"The ONNX file's probabilities differ from the model's by up to {float(gap.max()):.2g}, more than "
            f"{TOLERANCE:g}. {hint}"
        )
