"""Classifier and calibration as one ONNX graph: the search is a matrix product and TopK."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from densecal.io import storage
from densecal.torch.features.batches import Batch, split_batch
from densecal.torch.model import CalibratedModel

TOLERANCE = 1e-4
MOSTLY = 0.99
LARGEST_BATCH = 1 << 16


def export_onnx(model: CalibratedModel, example: Any, path: str | Path, *, check: bool = True) -> None:
    """Write a calibrated model, the classifier included, to one ONNX file that onnxruntime runs.

    The graph takes the classifier's inputs, with a batch of any size and texts of any length that the classifier itself
    takes, and gives ``probabilities``. It needs the extra ``densecal[onnx]``.

    Parameters
    ----------
    model : CalibratedModel
        With an accuracy-preserving method; others are refused.
    example : Tensor, tuple or dict
        A batch as the loader gives it; labels in it are ignored.
    path : str or Path
        The file to write.
    check : bool, default True
        Run the file in onnxruntime on the example and compare: the probabilities must agree to 1e-4, and the classes.

    Examples
    --------
    >>> import densecal, tempfile
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> model = CalibratedModel(nn.Identity(), scaling, layouts={})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(model, torch.randn(3, 2), folder + "/model.onnx")
    """
    _require_onnx()
    if not model.calibrator.accuracy_preserving:
        raise ValueError(
            f"{model.calibrator.full_name} ({model.calibrator.short_name!r}) cannot be exported to ONNX: it may "
            "change the predicted class, and only accuracy-preserving methods are exported: ts, ets, irm, spl, pts, "
            "dia, and each of them after dac."
        )
    batch = split_batch(example, model.classifier)
    # A copy on the CPU: there the search is plain float32, which every runtime has.
    served = deepcopy(model).cpu().float().eval()
    batch = batch.to(torch.device("cpu"))
    batch = replace(
        batch,
        inputs=tuple(_in_full(value) for value in batch.inputs),
        named={name: _in_full(value) for name, value in batch.named.items()},
    )
    with storage.whole_file(path) as temporary:
        onnx_program = _converted(served, batch)
        onnx_program.save(str(temporary))
        if check:
            _compare(temporary, served, batch.inputs, batch.named)


def _converted(model: CalibratedModel, batch: Batch) -> Any:
    """Return the ONNX program, for texts of any length if the classifier takes them, or else of the example's."""
    if any(map(_is_text, (*batch.inputs, *batch.named.values()))):
        # Whatever stands against a free length, in the classifier or in the converter, a fixed one may do.
        with suppress(Exception):
            return _convert(model, batch, free_lengths=True)
    return _convert(model, batch, free_lengths=False)


def _convert(model: CalibratedModel, batch: Batch, *, free_lengths: bool) -> Any:
    names = ["input"] if len(batch.inputs) == 1 else [f"input_{number}" for number in range(len(batch.inputs))]
    converted = torch.onnx.export(
        _exported(model, batch, free_lengths=free_lengths),
        dynamo=True,
        input_names=[*names, *batch.named],
        output_names=["probabilities"],
        verbose=False,
        external_data=False,
    )
    if converted is None:
        raise RuntimeError("torch.onnx.export gave no program; it must support dynamo=True (torch 2.6 or newer).")
    return converted


def _is_text(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2 and not value.is_floating_point()


def _in_full(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def _exported(model: CalibratedModel, batch: Batch, *, free_lengths: bool) -> Any:
    free = torch.export.Dim("batch", min=1, max=LARGEST_BATCH)
    values, samples = (*batch.inputs, *batch.named.values()), batch.samples
    batched = [isinstance(value, Tensor) and value.ndim > 0 and value.shape[0] == samples for value in values]
    if samples == 1:
        # A batch of one would be taken for a constant.
        values = tuple(
            torch.cat([value, value]) if free else value for value, free in zip(values, batched, strict=True)
        )
    length = {1: torch.export.Dim.AUTO} if free_lengths else {}
    pairs = zip(values, batched, strict=True)
    shapes = tuple({0: free, **(length if _is_text(value) else {})} if is_free else None for value, is_free in pairs)
    wrapped = _Positional(model, tuple(batch.named))
    with torch.no_grad():
        program = torch.export.export(wrapped, values, dynamic_shapes=(shapes,), strict=False)
    if free_lengths:
        _refuse_fixed_lengths(program)
    return program.run_decompositions({torch.ops.aten.searchsorted.Tensor: _search_by_halving})


def _refuse_fixed_lengths(program: Any) -> None:
    """Refuse a program for one length only: its file would take others all the same, and read their first tokens."""
    taken = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        # A symbol that has come out as a number is a number in writing only.
        if node.name in taken and _is_text(node.meta["val"]) and str(node.meta["val"].shape[1]).isdigit():
            raise ValueError(f"The classifier fixes the length of {node.name!r}.")


class _Positional(nn.Module):
    """A model whose named inputs come last, by position: an ONNX graph knows no keywords."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: Any) -> Tensor:
        first = len(values) - len(self.names)
        probabilities: Tensor = self.model(*values[:first], **dict(zip(self.names, values[first:], strict=True)))
        return probabilities


def _search_by_halving(
    sorted_sequence: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Find insertion positions in a sorted list by comparisons alone, for runtimes without a search operator."""
    count = sorted_sequence.shape[0]
    position = torch.zeros_like(values, dtype=torch.int64)
    step = 1 << (count.bit_length() - 1)
    while step:
        candidate = position + step
        there = sorted_sequence[(candidate - 1).clamp_max(count - 1)]
        is_left = there <= values if right or side == "right" else there < values
        position = torch.where(is_left & (candidate <= count), candidate, position)
        step //= 2
    return position.int() if out_int32 else position


def _compare(path: Path, model: CalibratedModel, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    values = [value.numpy() for value in (*inputs, *named.values()) if isinstance(value, Tensor)]
    names = [entry.name for entry in session.get_inputs()]
    got = torch.from_numpy(session.run(None, dict(zip(names, values, strict=True)))[0])
    with torch.inference_mode():
        expected = model(*inputs, **named)
    gap = (got - expected).abs()
    changed = float((got.argmax(dim=1) != expected.argmax(dim=1)).float().mean())
    if changed > 1 - MOSTLY:
        raise RuntimeError(
            f"The ONNX file predicts another class than the model for {changed:.1%} of the example. The classifier may "
            "use an operation that ONNX computes differently; check=False writes the file nevertheless."
        )
    # A step of an isotonic map can turn the last digit of a logit into more than that, for a sample here and there.
    if not float((gap <= TOLERANCE).float().mean()) > MOSTLY:
        raise RuntimeError(
            f"The ONNX file's probabilities differ from the model's by up to {float(gap.max()):.2g}, more than "
            f"{TOLERANCE:g}. The classifier may use an operation that ONNX computes differently; check=False writes "
            "the file nevertheless."
        )


def _require_onnx() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError as error:
            raise ImportError(f"export_onnx needs the package {package}: pip install 'densecal[onnx]'.") from error
