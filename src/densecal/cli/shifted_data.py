"""Shifted data for ``densecal fit``: their files, domains and kinds of shift."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.unlabelled_batch import accuracy_model, can_estimate
from densecal.cli.inputs import WHY_DIFFERENT, WHY_LABELS, check_different, check_given_once, expand
from densecal.display import track
from densecal.errors import warn_user
from densecal.io.atomic_files import name_file_in_errors, split_name
from densecal.io.output_files import FileLayout, require_labels
from densecal.outputs import Outputs, OutputShards


def expand_shifted(sources: Sequence[str]) -> dict[Path, str]:
    """Return the files of PATH or NAME=PATH, and the names of their domains, by default those of the files."""
    named = [split_name(source) for source in sources]
    given = [(path, name) for name, source in named for path in expand("--shifted", [source])]
    check_given_once("--shifted", [path for path, _ in given])
    stems = Counter(path.stem for path, _ in given)
    # Slashes are removed, because the part of a name before a slash is the kind of shift.
    unique = {path: path.stem if stems[path.stem] == 1 else path.as_posix().replace("/", ":") for path, _ in given}
    return {path: name or unique[path] for path, name in given}


def read_domains(
    names: Mapping[Path, str], calibrator: Calibrator, validation: Outputs, val_name: str, layout: FileLayout
) -> dict[str, Outputs]:
    """Return the shifted data of each domain, with distances: those of a perturbation, or of files with one name.

    Raise if two files, or a file and the validation data, hold the same data.
    """
    from densecal.shift import plan_perturbations

    read = {val_name: validation}
    domains: dict[str, list[Outputs]] = defaultdict(list)
    for path in track(list(names), "measuring shifted data"):
        shards = OutputShards([path], layout)
        require_labels(path, shards.has_labels, WHY_LABELS)
        if shards.n_classes != validation.n_classes:
            raise ValueError(
                f"{path} has {shards.n_classes} classes, but the validation set has {validation.n_classes}."
            )
        with name_file_in_errors(path):
            outputs = calibrator.measure(shards.load())
        read[f"--shifted {path}"] = outputs
        seed = outputs.metadata.get("seed")
        parts = {names[path]: outputs}
        if outputs.metadata.get("condition") == "perturbed" and seed is not None:
            parts = outputs.split(plan_perturbations(np.arange(len(outputs)), int(seed)).domains())
        for name, part in parts.items():
            domains[name].append(part)
    check_different(read, WHY_DIFFERENT)
    return {name: Outputs.concatenate(parts) for name, parts in domains.items()}


def warn_of_one_kind(calibrator: Calibrator) -> None:
    """Warn if the accuracy was learned from one kind of shift: the error on other kinds is then unknown."""
    if can_estimate(calibrator) and accuracy_model(calibrator).n_kinds == 1:
        warn_user(
            "The shifted data are of one kind of shift, so the intervals of estimated accuracies are wide: the error "
            "on other kinds cannot be measured. Pass several kinds: --shifted noise=FILE --shifted blur=FILE."
        )
