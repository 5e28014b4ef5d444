"""Functions for both NumPy arrays and torch tensors: the Python array API, and what it lacks."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

BLOCK_BYTES = 1 << 22
"""A block of rows of this size fits in the cache of a CPU core."""
CACHED_BYTES, TORCH_BLOCK_BYTES = 1 << 20, 1 << 28
"""Sizes of blocks of logits: on the CPU temporary arrays stay in the cache; on a GPU kernel launches dominate."""
SMALLEST_PROBABILITY = 1e-12

Array: TypeAlias = Any
"""A NumPy array or a torch tensor in internal code, where mypy cannot check the array API."""


class ArrayOrTensor(Protocol):
    """A NumPy array or a torch tensor as public functions return it: the operations that both support."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __array__(self) -> npt.NDArray[Any]: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __abs__(self) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...
    def argmax(self, *args: Any, **kwargs: Any) -> Any: ...
    def max(self, *args: Any, **kwargs: Any) -> Any: ...
    def min(self, *args: Any, **kwargs: Any) -> Any: ...
    def mean(self, *args: Any, **kwargs: Any) -> Any: ...
    def std(self, *args: Any, **kwargs: Any) -> Any: ...
    def sum(self, *args: Any, **kwargs: Any) -> Any: ...
    def round(self, *args: Any, **kwargs: Any) -> Any: ...
    def tolist(self) -> Any: ...


ArrayLike: TypeAlias = npt.ArrayLike | ArrayOrTensor
"""An array argument of a public function: anything that NumPy accepts, or a torch tensor."""


def is_torch(array: object) -> bool:
    """Return whether the object is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(*arrays: Array) -> Any:
    """Return the array-API namespace (NumPy's or torch's) that the arrays share."""
    if not any(map(is_torch, arrays)):
        import array_api_compat.numpy as numpy_namespace

        return numpy_namespace
    import array_api_compat.torch as torch_namespace

    return torch_namespace


def as_array(values: object, name: str = "values") -> Array:
    """Return a tensor detached, and anything else as a NumPy array of a native dtype, which torch and files support.

    A masked array raises unless nothing is masked: its mask would be lost.
    """
    if is_torch(values):
        return values.detach()  # type: ignore[attr-defined]
    if np.ma.is_masked(values):
        raise TypeError(
            f"{name} must be a plain array, got a NumPy masked array with masked values. Remove them, or replace them "
            "with array.filled(value)."
        )
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name} must be an array of numbers: {error}") from None
    is_longdouble = array.dtype.kind == "f" and array.dtype.itemsize > 8  # its size depends on the platform
    return array.astype(np.float64 if is_longdouble else array.dtype.newbyteorder("="), copy=False)


def to_numpy(array: Array) -> Any:
    """Return a tensor as a NumPy array on the CPU, and a NumPy array unchanged."""
    return array.detach().cpu().numpy() if is_torch(array) else np.asarray(array)


def asarray_like(values: Array, template: Array) -> Array:
    """Return the values as an array of the template's library, dtype and device."""
    if is_torch(template):
        return sys.modules["torch"].as_tensor(values, dtype=template.dtype, device=template.device)
    return np.asarray(to_numpy(values), dtype=template.dtype)


def to_device_of(array: Array, other: Array | None) -> Array:
    """Move an array to the library and device of another array; its dtype does not change."""
    if other is None:
        return array
    return sys.modules["torch"].as_tensor(array, device=other.device) if is_torch(other) else to_numpy(array)


def row_blocks(rows: int, bytes_per_row: int, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices that split the rows into blocks of about ``block_bytes``."""
    step = max(1, block_bytes // max(1, bytes_per_row))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def logit_blocks(logits: Array) -> Iterator[slice]:
    """Yield slices that split the logits into blocks with small temporary arrays."""
    block_bytes = TORCH_BLOCK_BYTES if is_torch(logits) else CACHED_BYTES
    return row_blocks(logits.shape[0], logits.shape[1] * 8, block_bytes)


def by_row_blocks(apply: Callable[[Array], Array], logits: Array) -> Array:
    """Apply a row-wise map block by block, to limit the size of temporary arrays."""
    return join_blocks(lambda rows: apply(logits[rows]), list(logit_blocks(logits)) or [slice(0, 0)])


def join_blocks(apply: Callable[[slice], Array], blocks: Sequence[slice]) -> Array:
    """Return the results for blocks of rows as one array."""
    first = apply(blocks[0])
    if len(blocks) == 1:
        return first
    if is_torch(first):
        return namespace(first).concat([first, *(apply(rows) for rows in blocks[1:])], axis=0)
    joined = np.empty((blocks[-1].stop, *first.shape[1:]), first.dtype)
    joined[blocks[0]] = first
    for rows in blocks[1:]:
        joined[rows] = apply(rows)
    return joined


def take_classes(values: Array, classes: Array) -> Array:
    """Return the value of each row in the column of its class, of shape (n_samples,)."""
    xp = namespace(values)
    return xp.take_along_axis(values, xp.astype(classes[:, None], xp.int64, copy=False), axis=1)[:, 0]


def data_hash(sets: Iterable[tuple[Any, Any]]) -> str:
    """Return the SHA-256 of the logits, as float32, and the labels of data sets, in order."""
    digest = hashlib.sha256()
    for logits, labels in sets:
        for rows in row_blocks(len(logits), 4 * len(logits[0])):
            digest.update(to_numpy(logits[rows]).astype("<f4").tobytes())
        digest.update(to_numpy(labels).astype("<i8").tobytes())
    return digest.hexdigest()


def random_rows(n_rows: int, size: int, seed: int) -> npt.NDArray[np.int64] | None:
    """Return the indices of a random sample, ascending, or None if it is not smaller than the whole."""
    if size < 1:
        raise ValueError(f"The size of a sample must be at least 1, got {size}.")
    if n_rows <= size:
        return None
    return np.sort(np.random.default_rng(seed).choice(n_rows, size, replace=False, shuffle=False))


def softmax(logits: Array, temperature: Array | float | None = None) -> Array:
    """Return the softmax of each row, divided by a temperature after the row's maximum is subtracted.

    The other order would round logits with a large common constant.
    """
    if is_torch(logits):
        if temperature is None:
            return logits.softmax(-1)
        return ((logits - logits.amax(-1, keepdim=True)) / temperature).softmax(-1)
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    if temperature is not None:
        shifted /= temperature
    np.exp(shifted, out=shifted)
    shifted /= np.sum(shifted, axis=-1, keepdims=True)
    return shifted


def normalise(array: Array) -> Array:
    """Divide each row by its Euclidean norm, in float32. An all-zero row remains zero."""
    xp = namespace(array)
    # Scaling by the largest entry first prevents overflow and underflow, of the squares and of float64 in float32.
    largest = xp.max(xp.abs(array), axis=1, keepdims=True) if array.shape[0] else array[:, :1]
    array = xp.astype(array / xp.where(largest > 0, largest, xp.ones_like(largest)), xp.float32)
    norm = xp.sqrt(xp.sum(array * array, axis=1, keepdims=True))
    return array / xp.where(norm > 0, norm, xp.ones_like(norm))


def keep_top_class(probabilities: Array, logits: Array) -> Array:
    """Return probabilities whose largest is that of the top class of the logits; two are exchanged if need be.

    A strictly increasing map preserves the order of exact numbers, but rounding can make two logits, or two
    probabilities, equal. ``argmax`` would then return the first of them, so the exchanged one is also raised by one
    rounding unit. A NumPy array is changed in place.
    """
    if is_torch(probabilities):
        torch = sys.modules["torch"]
        step = torch.finfo(probabilities.dtype).eps
        top = logits.argmax(1, keepdim=True)
        where = probabilities.argmax(1, keepdim=True)
        # Traced code cannot branch on values, and on a GPU reading them costs more than the exchange.
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
        if probabilities.device.type == "cpu" and not is_traced and torch.equal(top, where):
            return probabilities
        largest, of_top = probabilities.gather(1, where), probabilities.gather(1, top)
        # Not largest * (1 + step): ONNX exporters drop a factor this close to one.
        raised = largest.where(where == top, largest.add(largest, alpha=step).clamp_max(1.0))
        return probabilities.scatter(1, where, of_top).scatter(1, top, raised)
    top, where = np.argmax(logits, axis=1), np.argmax(probabilities, axis=1)
    rows = np.flatnonzero(where != top)
    if rows.size:  # Otherwise the array may be read-only.
        top, where = top[rows], where[rows]
        largest = probabilities[rows, where]
        probabilities[rows, where] = probabilities[rows, top]
        probabilities[rows, top] = np.minimum(largest * (1 + np.finfo(probabilities.dtype).eps), 1)
    return probabilities


def probability_floor(probabilities: Any) -> float:
    """Return the value that replaces predicted probabilities of zero: half the smallest positive one.

    If all 100 trees of a forest agree, it predicts 0, which means less than 1 in 100, not 1 in 10^12.
    """
    positive = probabilities[probabilities > 0]
    return max(float(positive.min()) / 2, SMALLEST_PROBABILITY) if positive.size else SMALLEST_PROBABILITY


def to_logits(values: Any, floor: float | None) -> Any:
    """Return probabilities as logits with the floor, and scores (no floor) unchanged."""
    return values if floor is None else np.log(np.maximum(values, floor))
