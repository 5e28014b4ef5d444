"""Every public name has a docstring, with an example where it can show more than its name."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from pathlib import Path

import pytest

PACKAGES = tuple(f"densecal{name}" for name in ("", ".metrics", ".evaluation", ".shift", ".torch", ".plots"))
NEEDS_TORCH = ("densecal.shift", "densecal.torch")
SOURCE = Path(__file__).resolve().parents[1] / "src" / "densecal"


def public_names() -> list[tuple[str, str]]:
    return [(package, name) for package in PACKAGES for name in importlib.import_module(package).__all__]


def find(package: str, name: str) -> object:
    if package in NEEDS_TORCH:
        pytest.importorskip("torch")
    return getattr(importlib.import_module(package), name)


@pytest.mark.parametrize(("package", "name"), public_names(), ids=lambda part: part.removeprefix("densecal."))
def test_a_public_class_or_function_has_a_runnable_example(package, name):
    found = find(package, name)
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        pytest.skip("a module or a constant, which the next test covers")
    assert found.__doc__, f"{package}.{name} has no docstring"
    assert ">>>" in found.__doc__ or has_nothing_to_run(found), f"{package}.{name} has no example"


def has_nothing_to_run(found: object) -> bool:
    """Whether an object is an error, a result that functions return, or a reader of files that are not here."""
    from densecal.shift import DATASETS

    return inspect.isclass(found) and (
        dataclasses.is_dataclass(found) or issubclass(found, (Exception, tuple)) or found in DATASETS.values()
    )


def constants() -> list[str]:
    return sorted({name for _, name in public_names() if name.isupper() and not name.startswith(("DAC", "CIFAR"))})


@pytest.mark.parametrize("name", constants())
def test_a_public_constant_is_documented_below_its_assignment(name):
    for path in SOURCE.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for place, node in enumerate(body[:-1]):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                after = body[place + 1]
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    return
    pytest.fail(f"no assignment of {name} is followed by a docstring")
