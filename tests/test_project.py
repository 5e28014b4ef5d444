"""What the files around the code promise: one version, stubs that match, layers, a light import."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import densecal

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "densecal"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
STUBS = sorted(SOURCE.rglob("__init__.pyi"))
NEEDS_TORCH = (
    "densecal.torch",
    "densecal.cli.extraction",
    "densecal.integrations",
    "densecal.density.torch_search",
    "densecal.density.triton_kernels",
    "densecal.shift.batches",
    "densecal.shift.corruptions",
    "densecal.shift.perturbations",
    "densecal.shift.datasets.torch_images",
)
"""Modules and packages that import torch at the top; every other module works without it."""

HEAVY = ("torch", "ray", "faiss", "pandas", "matplotlib", "scipy", "timm", "transformers", "lightning")
HIDE = """
import sys
class Absent:
    def find_spec(name, path, target=None):
        if name.partition(".")[0] in {}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Absent)
"""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def run(code: str, absent: tuple[str, ...] = ()) -> None:
    """Run the code in a process of its own, in which some packages cannot be imported."""
    command = [sys.executable, "-c", HIDE.format(absent) + code]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_file_that_names_the_version_names_the_same():
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/densecal/__init__.py"
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == densecal.__version__
    released = re.findall(r"^## \[(\d.*?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert released[0] == (densecal.__version__, re.search(r"^date-released: (.+)$", citation, re.M)[1])


def test_every_address_of_the_project_is_in_one_repository():
    urls = PROJECT["project"]["urls"]
    assert set(urls) == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert [url for url in urls.values() if not url.startswith(urls["Source"])] == []
    for path in ("CITATION.cff", "SECURITY.md", "CHANGELOG.md"):
        assert urls["Source"] in (ROOT / path).read_text(encoding="utf-8")


def test_the_oldest_torch_that_ci_tests_is_the_oldest_that_is_allowed():
    constraints = (ROOT / ".github" / "oldest-torch.txt").read_text(encoding="utf-8")
    tested = dict(re.findall(r"^(\w+)==([\d.]+)\.\*$", constraints, re.M))
    allowed = dict(line.split(">=") for line in PROJECT["project"]["optional-dependencies"]["torch"])
    assert tested == {name: allowed[name] for name in ("torch", "torchvision")}


@pytest.mark.parametrize("target", ["demo", "lint", "docs", "test"])
def test_the_ci_script_and_the_workflow_run_the_same_target(target):
    for path in (".ci/run", ".github/workflows/ci.yml"):
        assert re.search(rf"\bmake {target}$", (ROOT / path).read_text(encoding="utf-8").replace("  #", "\n"), re.M)


def test_the_contributing_page_lists_the_layers_that_are_checked():
    page = (ROOT / "docs" / "pages" / "contributing.md").read_text(encoding="utf-8")
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    assert re.search(r"^```text\n(.*?)^```$", page, re.M | re.S)[1].splitlines() == layers


@pytest.mark.parametrize("stub", STUBS, ids=module_name)
def test_a_stub_names_exactly_what_its_module_offers(stub):
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    imported = [name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]
    names = {name.asname or name.name for name in imported} - {"annotations"}
    module = importlib.import_module(module_name(stub))
    if any(module.__name__.startswith(package) for package in (*NEEDS_TORCH, "densecal.shift")):
        pytest.importorskip("torch")
    listed = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assert all(names == set(each) for each in [module.__all__, *listed])
    assert names <= set(dir(module))
    for name in names:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("module", ["densecal", "densecal.cli"])
def test_the_import_is_light(module):
    run(f"import sys, {module}; assert not {set(HEAVY)} & set(sys.modules)")


def test_a_file_of_arrays_is_read_without_pandas(tmp_path):
    path = tmp_path / "outputs.npz"
    np.savez(path, logits=np.eye(3), labels=np.arange(3))
    run(
        "import sys; from densecal.outputs import Outputs\n"
        f"assert len(Outputs.load({str(path)!r})) == 3 and 'pandas' not in sys.modules"
    )


def test_without_matplotlib_a_figure_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from densecal.plots import reliability_diagram\n"
        "try: reliability_diagram([0.9, 0.6], [True, False])\n"
        "except ImportError as error: assert 'pip install \"densecal[plots]\"' in str(error)\n"
        "else: raise AssertionError\n"
    )
    run(code)


def test_without_ray_its_integration_says_what_to_install():
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "try: import densecal.integrations.ray\n"
        "except ImportError as error: assert 'pip install \"densecal[ray]\"' in str(error)\n"
        "else: raise AssertionError\n"
    )
    run(code)


def test_only_the_modules_that_say_so_need_torch_or_faiss():
    names = sorted(module_name(path) for path in SOURCE.rglob("*.py") if path.stem != "__main__")
    light = [name for name in names if not f"{name}.".startswith(tuple(f"{heavy}." for heavy in NEEDS_TORCH))]
    code = f"import importlib; [importlib.import_module(name) for name in {light}]"
    run(code, absent=("torch", "torchvision", "faiss", "timm", "onnx"))


def test_a_tutorial_that_runs_where_it_lies_hides_no_package():
    """Python looks for imports beside the script first."""
    scripts = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
    assert scripts
    assert [script.name for script in scripts if importlib.util.find_spec(script.stem) is not None] == []
