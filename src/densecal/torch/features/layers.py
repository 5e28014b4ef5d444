"""Layer selection: layers from the whole depth of any network, chosen from a trace."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import groupby
from typing import Literal

import torch
from torch import nn

from densecal.errors import warn_user
from densecal.torch.batches import BatchFn, BatchT
from densecal.torch.features.layout import Layout
from densecal.torch.features.paper_layers import PAPER_LAYERS
from densecal.torch.features.trace import Call, Trace, trace
from densecal.torch.wrappers import check_no_replicas

LOGITS = "logits"
"""The layer name of the classifier's output."""
FEWEST_STAGES = 3
MOST_BLOCKS = 24

LayerChoice = Literal["auto", "paper", "all", "logits"] | Sequence[str] | Mapping[str, Layout | None]


def select_layers(
    model: nn.Module,
    example: BatchT,
    layers: LayerChoice = "auto",
    *,
    batch_fn: BatchFn[BatchT] | None = None,
) -> tuple[str, ...]:
    """Choose the layers whose features DAC measures.

    Parameters
    ----------
    model : nn.Module
        The classifier.
    example : Tensor, tuple or mapping
        A batch as the loader yields it; a few of its samples are run.
    layers : {"auto", "paper", "all", "logits"}, sequence of str, or mapping of str to Layout or None
        ``"auto"`` selects the output before the first block, the end of every stage (or of every block, in a network
        whose resolution never changes), the penultimate features and the logits. In a plain stack it selects every
        layer that reduces the resolution, or every hidden layer. ``"paper"`` selects the published layers of the
        paper's classifiers, ``"all"`` every layer, ``"logits"`` only the logits. A mapping of names also says where
        a layer has its channels, as in ``{"block": Layout("last"), "logits": None}``; None finds it from the modules.
    batch_fn : callable, optional
        As in :func:`~densecal.torch.extract`.

    Returns
    -------
    tuple of str
        Names of modules in the order in which they run; ``"logits"`` is the classifier's output.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> select_layers(model, torch.zeros(2, 4))
    ('1', '3', 'logits')
    """
    return select_from(trace(model, example, batch_fn), model, layers)


def select_from(traced: Trace, model: nn.Module, layers: LayerChoice) -> tuple[str, ...]:
    """Choose layers from a trace."""
    if layers == LOGITS or tuple(layers) == (LOGITS,):
        return (LOGITS,)
    check_no_replicas(model)
    if not isinstance(layers, str):
        return _check_names(tuple(layers), traced, model)
    if layers == "auto":
        return (*_automatic(traced), LOGITS)
    if layers == "all":
        last = {call.tensor_id: call for call in traced.usable}  # One name per tensor: that of the outermost module.
        return (*(call.name for call in traced.usable if last[call.tensor_id] is call), LOGITS)
    if layers == "paper":
        return _check_names((*_published(model), LOGITS), traced, model)
    raise ValueError(
        f"layers must be 'auto', 'paper', 'all', 'logits' or a list of names, got {layers!r}. Pass a single layer as a "
        f"list: [{layers!r}]."
    )


def layouts_of(traced: Trace, layers: Sequence[str], choice: LayerChoice) -> dict[str, Layout]:
    """Return the layout of each named layer except the logits: the chosen one, or else that of the trace."""
    found, calls = dict[str, Layout](), {call.name: call for call in traced.calls}
    for name in layers:
        if name == LOGITS:
            continue
        layout = choice.get(name) if isinstance(choice, Mapping) else None
        if not isinstance(layout, Layout | None):
            raise TypeError(f"layers must map names to a Layout or None, got {layout!r} for {name!r}.")
        call = calls[name]
        if layout is None and call.is_guess:
            other = "last" if call.layout == Layout("first") else "first"
            warn_user(
                f"The layer {name!r} returned an output of shape {call.shape}, and no module determines its channel "
                f"axis. It is assumed to be {call.layout}. If that is wrong, pass "
                f"layers={{{name!r}: Layout({other!r}), ...}}."
            )
        found[name] = call.with_mask(layout or call.layout)  # type: ignore[arg-type]
    return found


def _automatic(traced: Trace) -> list[str]:
    usable = traced.usable
    blocks = _blocks(usable)
    if len(blocks) >= 2:
        first = min(block.start for block in blocks)
        before = [call for call in usable if call.finish < first]
        chosen = [*before[-1:], *_stage_ends(blocks)]
    else:
        chosen = _plain_stack(usable, traced.head)
    penultimate = _penultimate(traced)
    if penultimate is not None and penultimate.pooled is not None:
        # The average of the last stage often equals the penultimate features.
        chosen += [] if any(call.gives(penultimate.pooled) for call in chosen) else [penultimate]
    chosen.sort(key=lambda call: call.finish)
    return [_best_name(call, usable, chosen) for call in chosen]


def _blocks(usable: list[Call]) -> list[Call]:
    """Return the blocks: the outermost modules of a class that occurs more than once."""

    def is_unit(call: Call) -> bool:
        # A Sequential may be a stage, a stem or any small group. One weight matrix is a layer, not a block.
        is_group = call.is_leaf or isinstance(call.module, nn.Sequential)
        return not is_group and sum(parameter.ndim > 1 for parameter in call.module.parameters()) > 1

    units = [call for call in usable if is_unit(call)]
    times = Counter(type(call.module) for call in units)
    repeated = [call for call in units if times[type(call.module)] > 1]
    return [call for call in repeated if not any(other.contains(call) for other in repeated)]


def _stage_ends(blocks: list[Call]) -> list[Call]:
    """Return the last block of each shape, else of each resolution, else evenly spaced blocks."""
    for stage in (lambda block: block.shape, _area):
        ends = [list(run)[-1] for _, run in groupby(blocks, key=stage)]
        if FEWEST_STAGES <= len(ends) <= MOST_BLOCKS:
            return ends
    if len(blocks) <= MOST_BLOCKS:
        return blocks
    step = (len(blocks) - 1) / (MOST_BLOCKS - 1)
    return [blocks[round(number * step)] for number in range(MOST_BLOCKS)]


def _plain_stack(usable: list[Call], head: Call | None) -> list[Call]:
    """Return the layers that reduce the resolution, or else the hidden layers: the inputs of the weight layers."""
    leaves = [call for call in usable if call.is_leaf]
    spatial = [call for call in leaves if call.shape is not None and len(call.shape) >= 4]
    lower: list[Call] = []
    area = _area(spatial[0]) if spatial else 0
    for call in spatial:
        # The area must be at least halved: a convolution without padding only loses its border.
        if _area(call) <= area / 2:
            lower.append(call)
            area = _area(call)
    if len(lower) >= 2:
        return lower
    hidden: list[Call] = []
    weight_layers = [call for call in [*leaves, *([head] if head else [])] if _has_weights(call.module)]
    for call in weight_layers[1:]:
        before = [other for other in leaves if weight_layers[0].finish <= other.finish < call.start]
        if before and before[-1] not in hidden:
            hidden.append(before[-1])
    return hidden


def _penultimate(traced: Trace) -> Call | None:
    """Return the module whose pooled output is the input of the last layer, else the last module before it."""
    head = traced.head
    before = [call for call in traced.usable if head is None or call.finish < head.start]
    if head is not None and head.input_pooled is not None:
        for call in reversed(before):
            if call.gives(head.input_pooled):
                return call
    return before[-1] if before else None


def _best_name(call: Call, usable: list[Call], chosen: list[Call]) -> str:
    """Return the outermost module with the same output (layer1 for layer1.1) that contains no other chosen module."""
    others = [other for other in chosen if other is not call]
    nested = [other for other in usable if other is call or other.contains(call) or call.contains(other)]
    same = [other for other in nested if other.tensor_id == call.tensor_id]
    narrow = [one for one in same if not any(one.contains(other) for other in others)]
    return max(narrow or [call], key=lambda one: one.finish).name


def _area(call: Call) -> int:
    shape, is_first = call.shape or (), call.layout is not None and call.layout.channels == "first"
    return math.prod(shape[2:] if is_first else shape[1:-1])


def _has_weights(module: nn.Module) -> bool:
    """Return whether a module has parameters and is not a normalisation."""
    weight = getattr(module, "weight", None)
    is_norm = isinstance(weight, torch.Tensor) and weight.ndim <= 1
    return next(module.parameters(), None) is not None and not is_norm


def _published(model: nn.Module) -> tuple[str, ...]:
    """Return the layers of the paper's classifier that has modules of these names, and no more of their kind."""
    modules = dict(model.named_modules())
    beside: list[str] = []
    for layers in PAPER_LAYERS.values():
        if modules.keys() >= set(layers):
            beside = _unlisted(layers, modules)
            if not beside:
                return layers
    deeper = f" (it also has {', '.join(beside[:3])})" if beside else ""
    raise ValueError(
        f"layers='paper' supports the classifiers of the paper, but {type(model).__name__} is not recognised as one of "
        f"them{deeper}: {', '.join(PAPER_LAYERS)}. Use layers='auto', or pass a list of names."
    )


def _unlisted(layers: tuple[str, ...], modules: Mapping[str, nn.Module]) -> list[str]:
    """Return the unlisted modules that continue a series of listed ones: ``layer5`` after ``layer1`` ... ``layer4``."""

    def series(name: str) -> tuple[str, type] | None:
        stem = name.rstrip("0123456789")
        return (stem, type(modules[name])) if stem != name else None

    times = Counter(series(name) for name in layers)
    # A single name is no series: the norm5 of DenseNet has a norm0, and the act2 of Xception an act3.
    listed = {one for one, count in times.items() if one is not None and count > 1}
    return [name for name in modules if name not in layers and series(name) in listed]


def _check_names(names: tuple[str, ...], traced: Trace, model: nn.Module) -> tuple[str, ...]:
    if not names:
        raise ValueError("layers is an empty list. Name at least one layer, or use layers='logits'.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ValueError(f"layers contains {repeated} more than once.")
    modules = dict(model.named_modules(remove_duplicate=False))
    calls = {call.name: call for call in traced.calls}
    for name in names:
        if name == LOGITS:
            continue
        if not name or name not in modules:
            close = get_close_matches(name, [*modules, LOGITS], n=5, cutoff=0.5)
            hint = f"Close matches: {', '.join(close)}." if close else f"Its layers: {', '.join(list(modules)[1:20])}."
            raise ValueError(f"The model has no layer {name!r}. {hint}")
        if name not in calls:
            raise ValueError(
                f"The layer {name!r} did not run on the example, so it has no features. Choose modules that the "
                "forward pass calls; select_layers(model, example, 'all') lists them."
            )
        if traced.counts[name] > 1:
            raise ValueError(
                f"The layer {name!r} ran {traced.counts[name]} times in one forward pass, so its features are "
                "ambiguous. Choose one of the modules around it instead."
            )
        if calls[name].layout is None:
            raise ValueError(
                f"The layer {name!r} returned an output of shape {calls[name].shape}, which cannot be pooled: it has "
                f"no batch axis of {traced.samples} samples. Choose another layer."
            )
    return tuple(sorted(names, key=lambda name: calls[name].finish if name != LOGITS else math.inf))
