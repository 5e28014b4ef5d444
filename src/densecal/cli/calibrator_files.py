"""Calibrators that commands read: one, or several that are compared on the same test sets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from densecal.calibrators.base import Calibrator
from densecal.calibrators.state import from_artefact
from densecal.cli.inputs import UsageError, add_advice
from densecal.errors import ArtefactError
from densecal.io import artefacts
from densecal.io.atomic_files import name_file_in_errors, split_name
from densecal.io.output_files import FileLayout
from densecal.io.tables import TABLE_SUFFIXES

FILES_ADVICE = "It was read as a calibrator. For several files of data, repeat --data, or quote the pattern."
SCALES = {False: "fractions", True: "percentages", None: "scores of unknown scale"}


def read_calibrator(path: Path, layout: FileLayout) -> tuple[Calibrator, FileLayout, dict[str, Any]]:
    """Return a calibrator, the layout with the classes of its fit, and the metadata of its file."""
    try:
        artefact = artefacts.read(path)
    except ArtefactError as error:
        if path.suffix.lower() not in (".npz", *TABLE_SUFFIXES):
            raise
        raise UsageError(
            f"{path} is not a calibrator, a file that `densecal fit` writes. Pass a calibrator first, and data with "
            f"--data. ({error})"
        ) from error
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
        with add_advice(FILES_ADVICE, applies=bool(fitted)):
            calibrator, layouts[path], metadata = read_calibrator(path, layout)
        if name is None:
            name = calibrator.method_name if calibrator.method_name not in fitted else path.stem
        if name in fitted:
            raise UsageError(f"Two calibrators have the name {name!r}. Name them: first=PATH second=PATH.")
        fitted[name] = calibrator
        messages += metadata.get("warnings", [])
    (first, common), *others = layouts.items()
    for path, own in others:
        if difference := _difference(common, own):
            advice = "The test sets can be read for one of them only. Evaluate them one at a time."
            raise UsageError(f"{first} and {path} {difference}. {advice}")
    return fitted, messages, common


def _difference(one: FileLayout, other: FileLayout) -> str | None:
    """Return how two calibrators read the same scores differently, or None if they do not."""
    if one.classes != other.classes:
        names = zip_longest(map(repr, one.classes), map(repr, other.classes), fillvalue="not named")
        place, (first, second) = next((place, pair) for place, pair in enumerate(names) if pair[0] != pair[1])
        return (
            f"have different classes: class {place} is {first} in the first and {second} in the second. If one has no "
            "class names, name the classes in the order of the scores: --classes"
        )
    if one.probabilities and one.percentages is not other.percentages:
        return f"were fitted on {SCALES[one.percentages]} and {SCALES[other.percentages]}"
    # The floor stands for a probability of zero. Logits have none.
    if one.probabilities and one.probability_floor != other.probability_floor:
        return (
            "have different probability floors, the values that stand for a probability of zero: "
            f"{one.probability_floor} and {other.probability_floor}"
        )
    return None
