"""The demo's data: outputs of a CIFAR-10 classifier, bundled with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from densecal.density.defaults import choose_k
from densecal.evaluation import Condition, read_conditions
from densecal.outputs import Outputs

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Demo:
    """The demo's data: training set (bank), validation set, perturbed validation images (shift fit), and test sets.

    The conditions are the clean test set, the same images at severities 1 to 5, and images of other classes. ``k`` is
    the default for a bank of this size.
    """

    train: Outputs
    validation: Outputs
    perturbed: Mapping[str, Outputs] | None
    conditions: list[Condition]
    k: int


def load_demo(name: str, folder: str | Path = DATA) -> Outputs:
    """Read one of the demo's sets from the package, or from a folder with the same file names.

    The sets are ``train`` (the bank), ``val``, ``perturbed`` (validation images), ``clean``, ``shifted-1`` to
    ``shifted-5`` and ``ood-fashion``.
    """
    path = Path(folder) / f"{name}.safetensors"
    if not path.exists():
        known = sorted(file.stem for file in Path(folder).glob("*.safetensors"))
        raise ValueError(f"The demo has no set {name!r}; the available sets are {', '.join(known) or 'none'}.")
    return Outputs.load(path)


def load_domains(folder: str | Path = DATA) -> dict[str, Outputs]:
    """Read the perturbed validation images as named domains, one per kind and strength of the perturbation.

    Examples
    --------
    >>> domains = load_domains()
    >>> len(domains), len(domains["rotate/strong"])
    (45, 32)
    """
    outputs, start = load_demo("perturbed", folder), 0
    domains = {}
    for name, count in json.loads(outputs.metadata.get("domains", f'{{"perturbed": {len(outputs)}}}')).items():
        domains[name] = outputs[start : start + count]
        start += count
    return domains


def open_demo(folder: str | Path = DATA) -> Demo:
    """Read all of the demo's sets."""
    train, validation = load_demo("train", folder), load_demo("val", folder)
    perturbed = load_domains(folder) if (Path(folder) / "perturbed.safetensors").exists() else None
    tests = [path for name in ("clean", "shifted-*") for path in sorted(Path(folder).glob(f"{name}.safetensors"))]
    outside = sorted(Path(folder).glob("ood-*.safetensors"))
    conditions = read_conditions(tests) + (read_conditions(outside, out_of_domain=True) if outside else [])
    return Demo(train, validation, perturbed, conditions, choose_k(len(train), train.n_classes))
