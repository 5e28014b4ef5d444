"""Calibrators that commands read: one, or several that are compared on the same test sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densecal.cli.inputs import UsageError
from densecal.errors import ArtefactError
from densecal.io.files import split_name

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.io.output_files import FileLayout

ONE_AT_A_TIME = "The test sets can be read for one of them only. Evaluate them one at a time"

SCALES = {False: "fractions", True: "percentages", None: "scores of unknown scale"}


def read_calibrator(path: Path, layout: FileLayout) -> tuple[Calibrator, FileLayout, dict[str, Any]]:
    """Return a calibrator, the layout with the classes of its fit, and the metadata of its file."""
    from densecal.calibrators.state import from_artefact
    from densecal.io import artefacts
    from densecal.io.files import name_file_in_errors, open_file
    from densecal.io.output_files import SUFFIXES, sniff_format

    if path.suffix.lower() in SUFFIXES and path.is_file():
        with open_file(path) as file:
            is_data = sniff_format(file) != ".safetensors"
        if is_data:
            raise UsageError(
                f"{path} is not a calibrator, a file that `densecal fit` writes. Pass a calibrator first, and data "
                "with --data."
            )
    artefact = artefacts.read(path)
    with name_file_in_errors(path):
        layout = layout.for_calibrator(artefact.metadata)
    return from_artefact(path, artefact), layout, artefact.metadata


def read_calibrators(sources: Sequence[str], layout: FileLayout) -> tuple[dict[str, Calibrator], list[str], FileLayout]:
    """Return calibrators by name, the warnings of their fits, and the layout with the classes of all of them."""
    fitted: dict[str, Calibrator] = {}
    messages: list[str] = []
    layouts: dict[Path, FileLayout] = {}
    for source in sources:
        name, path = split_name(source)
        with _explain_further_files(is_first=not fitted):
            calibrator, layouts[path], metadata = read_calibrator(path, layout)
        if name is None:
            name = calibrator.method_name if calibrator.method_name not in fitted else path.stem
        if name in fitted:
            raise UsageError(f"Two calibrators have the name {name!r}. Name them: first=PATH second=PATH.")
        fitted[name] = calibrator
        messages += metadata.get("warnings", [])
    return fitted, messages, _common_layout(layouts)


@contextmanager
def _explain_further_files(*, is_first: bool) -> Iterator[None]:
    """Explain how to pass several files of data, if a file after the first calibrator is not a calibrator."""
    try:
        yield
    except (ArtefactError, UsageError) as error:
        if is_first:
            raise
        advice = "It was read as a calibrator. For several files of data, repeat --data, or quote the pattern."
        raise type(error)(f"{error} {advice}") from error


def _common_layout(layouts: dict[Path, FileLayout]) -> FileLayout:
    """Return the layout of the first calibrator; raise if another one reads scores differently."""
    first, *others = layouts
    layout = layouts[first]
    for path in others:
        classes, own = layout.classes, layouts[path].classes
        if classes != own:
            advice = "" if classes and own else ", or name the classes in the order of the scores: --classes"
            raise UsageError(
                f"{first} and {path} have different classes: {_class_difference(classes, own)}. "
                f"{ONE_AT_A_TIME}{advice}."
            )
        if layout.probabilities and layout.percentages is not layouts[path].percentages:
            scales = " and ".join(SCALES[one.percentages] for one in (layout, layouts[path]))
            raise UsageError(f"{first} and {path} were fitted on {scales}. {ONE_AT_A_TIME}.")
        floor, own_floor = layout.probability_floor, layouts[path].probability_floor
        # The floor stands for a probability of zero. Logits have none.
        if layout.probabilities and floor != own_floor:
            values = " and ".join("none" if one is None else f"{one:g}" for one in (floor, own_floor))
            raise UsageError(
                f"{first} and {path} have different probability floors, the values that stand for a probability of "
                f"zero: {values}. {ONE_AT_A_TIME}."
            )
    return layout


def _class_difference(one: Sequence[str], other: Sequence[str]) -> str:
    """Return the first difference between the class names of two calibrators."""
    if not one or not other:
        return f"the {'first' if other else 'second'} has no class names, the other has {(one or other)[0]!r}, ..."
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} classes"
    place = next(place for place, (name, own) in enumerate(zip(one, other, strict=True)) if name != own)
    return f"class {place} is {one[place]!r} in the first and {other[place]!r} in the second"
