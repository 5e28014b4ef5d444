"""The README's examples run as they are written."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from densecal.cli import main

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [match["text"] for match in BLOCK.finditer(text) if match["language"] == language]


def commands(program: str) -> list[str]:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if line.split()[0] == program]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with the files that the README's commands read."""
    from densecal.demo import DATA

    folder = tmp_path_factory.mktemp("readme")
    for name, source in (
        ("train", "train"),
        ("val", "val"),
        ("shifted", "perturbed"),
        ("test", "shifted-3"),
        ("day-1", "clean"),
        ("day-2", "clean"),
    ):
        shutil.copy(DATA / f"{source}.safetensors", folder / f"{name}.safetensors")
    return folder


def given_names(code: str) -> dict[str, object]:
    """The names that an example does not define: a trained classifier, loaders and images."""
    if "classifier" not in code:
        return {}
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    images, labels = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8), torch.arange(64) % 4
    scaled = images / 255
    body = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    parts = torch.utils.data.random_split(torch.utils.data.TensorDataset(scaled, labels), [24, 24, 16])
    loaders = (torch.utils.data.DataLoader(part, batch_size=8) for part in parts)
    named = dict(zip(("train_loader", "val_loader", "new_loader"), loaders, strict=True))
    classifier = torch.nn.Sequential(*body, torch.nn.Linear(8, 4)).eval()
    return {"classifier": classifier, "images": scaled[:4], **named}


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.strip().splitlines()[0][:40])
@pytest.mark.filterwarnings("ignore::densecal.CalibrationWarning")
def test_a_python_example_runs_as_written(code, desk, monkeypatch):
    monkeypatch.chdir(desk)
    exec(compile(code, "README.md", "exec"), given_names(code))


@pytest.mark.parametrize(
    "block", [b for b in blocks("console") if "$ densecal" in b], ids=lambda block: block.split()[2]
)
def test_the_commands_of_a_block_run_one_after_the_other(block, desk, monkeypatch, capsys):
    monkeypatch.chdir(desk)
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["$", "densecal"]:
            assert main(words[2:]) == 0, f"{line}: {capsys.readouterr().err}"


@pytest.mark.parametrize("line", [line for line in commands("python") if line.startswith("python -m ")])
def test_a_module_that_the_readme_runs_exists(line):
    module = line.split()[2].replace(".", "/")
    assert any((ROOT / folder / module / "__main__.py").exists() for folder in (".", "src")), line


@pytest.mark.parametrize("line", commands("make"))
def test_a_make_target_that_the_readme_names_exists(line):
    target = line.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


def test_the_readme_has_examples_of_both_kinds():
    assert blocks("python")
    assert commands("densecal")
