"""Shifted data for ``densecal fit``: their files, domains and kinds of shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from densecal.cli.inputs import check_given_once, expand
from densecal.io.files import name_file_in_errors, split_name

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.io.output_files import FileLayout
    from densecal.outputs import Outputs


def expand_shifted(sources: Sequence[str]) -> dict[Path, str]:
    """Return the files of PATH or NAME=PATH, and the names of their domains, by default those of the files."""
    named = [split_name(source) for source in sources]
    given = [(path, name) for name, source in named for path in expand("--shifted", [source])]
    check_given_once("--shifted", [path for path, _ in given])
    stems = Counter(path.stem for path, _ in given)
    return {path: name or _own_name(path, is_unique=stems[path.stem] == 1) for path, name in given}


def _own_name(path: Path, *, is_unique: bool) -> str:
    # The folder is removed, because the part of a name before a slash is the kind of shift.
    return path.stem if is_unique else path.as_posix().replace("/", ":")


def read_shifted(path: Path, calibrator: Calibrator, validation: Outputs, layout: FileLayout, why: str) -> Outputs:
    """Return the labelled outputs of a file, with their distances; ``why`` says what the labels are for."""
    from densecal.io.output_files import require_labels
    from densecal.outputs import OutputShards

    shards = OutputShards([path], layout)
    require_labels(path, shards.has_labels, why)
    if shards.n_classes != validation.n_classes:
        raise ValueError(f"{path} has {shards.n_classes} classes, but the validation set has {validation.n_classes}.")
    with name_file_in_errors(path):
        return calibrator.measure(shards.load())


def group_by_domain(shifted: Mapping[Path, Outputs], names: Mapping[Path, str]) -> dict[str, Outputs]:
    """Group shifted data by domain: outputs of `densecal extract --perturb` by perturbation, others by name."""
    import numpy as np

    from densecal.outputs import Outputs
    from densecal.shift import plan_perturbations

    domains: dict[str, list[Outputs]] = {}
    for path, outputs in shifted.items():
        seed = outputs.metadata.get("seed")
        if outputs.metadata.get("condition") != "perturbed" or seed is None:
            domains.setdefault(names[path], []).append(outputs)
            continue
        perturbations = plan_perturbations(np.arange(len(outputs)), int(seed)).domains()
        for name, part in outputs.split(perturbations).items():
            domains.setdefault(name, []).append(part)
    return {name: Outputs.concatenate(parts) for name, parts in domains.items()}


def warn_of_one_kind(calibrator: Calibrator) -> None:
    """Warn if the accuracy was learned from one kind of shift: the error on other kinds is then unknown."""
    from densecal.calibrators.dac.unlabelled import accuracy_model, can_estimate
    from densecal.errors import warn_user

    if can_estimate(calibrator) and accuracy_model(calibrator).n_kinds == 1:
        warn_user(
            "The shifted data are of one kind of shift, so the intervals of estimated accuracies are wide: the error "
            "on other kinds cannot be measured. Pass several kinds: --shifted noise=FILE --shifted blur=FILE."
        )
