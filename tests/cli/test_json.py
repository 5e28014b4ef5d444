"""What the commands print for programs is what the schema in the docs says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

SCHEMA = Path(__file__).resolve().parents[2] / "docs/pages/assets/densecal.schema.json"
COMMANDS = ("fit", "apply", "evaluate", "report", "monitor", "inspect", "extract", "shift_show", "demo")


@pytest.fixture(scope="module")
def check():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))

    def validate(command, found):
        jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{command}"}).validate(found)
        return found

    return validate


def test_the_schema_knows_every_command():
    assert set(COMMANDS) <= json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"].keys()


def test_every_command_prints_what_the_schema_says(densecal, check, drifting_files):
    train, val, test = (drifting_files / f"{name}.safetensors" for name in ("train", "val", "test-0"))
    shifted = [option for number in (1, 2) for option in ("--shifted", drifting_files / f"test-{number}.safetensors")]
    for number, options in enumerate((("--method", "dac+ts", *shifted), ("--method", "dac+ets", "--k", 3))):
        cal = f"{number}.densecal"
        check("fit", densecal("fit", "--train", train, "--val", val, *options, "-o", cal, "--json").json)
        check("inspect", densecal("inspect", cal, "--json").json)
        check("apply", densecal("apply", cal, "--data", test, "-o", "out.csv", "--json").json)
    data = ("--data", test, "--natural", drifting_files / "test-3.safetensors", "--val", val, "--resamples", 20)
    for command, options in (
        ("evaluate", ("--ood", drifting_files / "ood.safetensors")),
        ("report", ("-o", "report.html")),
    ):
        found = check(command, densecal(command, "0.densecal", *data, *options, "--json").json)
        assert len(found["estimates"]) == 2
        assert 0 < found["estimates"][0]["accuracy"] < 1
    check("evaluate", densecal("evaluate", "1.densecal", *data[:2], "--resamples", 0, "--json").json)
    check("monitor", densecal("monitor", "0.densecal", "--data", test, "--json").json)
    for file in (val, drifting_files / "ood.safetensors"):
        check("inspect", densecal("inspect", file, "--json").json)


def test_extract_and_shift_show_print_what_the_schema_says(densecal, check, tmp_path):
    pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(tmp_path / "photos" / name / "0.png")
    model = ("torchvision:squeezenet1_0", "--random-weights", "--layers", "logits")
    answer = densecal("extract", *model, "--data", "folder:photos", "-o", "out.safetensors", "--json")
    assert answer.code == 0, answer.err
    check("extract", answer.json)
    answer = densecal("shift", "show", "photos/a/0.png", "-o", "grid.png", "--json")
    assert answer.code == 0, answer.err
    check("shift_show", answer.json)
