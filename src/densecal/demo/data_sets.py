"""The demo's data: outputs of a CIFAR-10 classifier, inside the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from densecal.evaluation import Condition, read_conditions
from densecal.outputs import Outputs

DATA = Path(__file__).parent / "data"
DEFAULT_K = 10
NOT_TESTS = ("train", "val", "perturbed")


@dataclass(frozen=True)
class Demo:
    """The demo's data: what the classifier was trained on, a validation set, and test sets that move away.

    Attributes
    ----------
    train, validation : Outputs
        Training features for the bank, and what the calibrators are fitted on.
    conditions : list of Condition
        The clean test set, the same images at severities 1 to 5, and data of other classes.
    k : int
        Which neighbour's distance counts in a bank of this size.
    perturbed : Outputs or None
        Perturbed validation images, for fitting DAC for shift.

    Examples
    --------
    >>> open_demo().validation.n_classes
    10
    """

    train: Outputs
    validation: Outputs
    conditions: list[Condition]
    k: int
    perturbed: Outputs | None = None


def load_demo(name: str, folder: str | Path = DATA) -> Outputs:
    """Read one of the demo's sets.

    Parameters
    ----------
    name : str
        ``"train"`` (the bank), ``"val"``, ``"perturbed"`` (validation images), ``"clean"`` or ``"shifted-1"`` to
        ``"shifted-5"``.

    Examples
    --------
    >>> load_demo("val").layers[-1]
    'logits'
    """
    path = Path(folder) / f"{name}.safetensors"
    if not path.exists():
        known = sorted(file.stem for file in Path(folder).glob("*.safetensors"))
        raise ValueError(f"The demo has no set {name!r}; it has {', '.join(known) or 'none'}.")
    return Outputs.load(path)


def open_demo(folder: str | Path = DATA) -> Demo:
    """Read all of the demo's sets.

    Examples
    --------
    >>> sorted({condition.severity for condition in open_demo().conditions})
    [0, 1, 2, 3, 4, 5]
    """
    folder = Path(folder)
    train, validation = load_demo("train", folder), load_demo("val", folder)
    files = [path for path in sorted(folder.glob("*.safetensors")) if path.stem not in NOT_TESTS]
    outside = [path for path in files if path.stem.startswith("ood")]
    conditions = read_conditions([path for path in files if path not in outside])
    if outside:
        conditions += read_conditions(outside, out_of_domain=True)
    perturbed = load_demo("perturbed", folder) if (folder / "perturbed.safetensors").exists() else None
    return Demo(train, validation, conditions, int(train.metadata.get("k", DEFAULT_K)), perturbed)
