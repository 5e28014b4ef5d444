from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

from densecal import Outputs, evaluation
from densecal.evaluation import Condition, read_conditions


@pytest.fixture
def outputs():
    return Outputs([[2.0, 1.0], [0.0, 3.0]], labels=[0, 1])


def test_metadata_in_a_file_give_name_and_severity(tmp_path):
    metadata = {"condition": "fog", "severity": "3"}
    Outputs([[2.0, 1.0]], labels=[0], metadata=metadata).save(tmp_path / "anything.safetensors")
    (condition,) = read_conditions([tmp_path / "anything.safetensors"])
    assert (condition.name, condition.severity) == ("fog", 3)


def test_a_severity_that_is_given_is_kept_as_it_is(outputs):
    assert Condition.from_outputs(outputs, severity=2.5).severity == 2.5


@pytest.mark.parametrize(
    ("file", "name", "severity"),
    [("fog-3", "fog", 3), ("fog_5", "fog", 5), ("clean", "clean", 0), ("sales-2024", "sales-2024", 0)],
)
def test_without_metadata_the_file_name_gives_them(tmp_path, outputs, file, name, severity):
    np.savez(tmp_path / f"{file}.npz", logits=outputs.logits, labels=outputs.labels)
    (condition,) = read_conditions([tmp_path / f"{file}.npz"])
    assert (condition.name, condition.severity) == (name, severity)


def test_a_name_given_by_the_user_comes_before_the_files(tmp_path, outputs):
    outputs.save(tmp_path / "x.safetensors")
    (condition,) = read_conditions([f"storm-severity-4={tmp_path}/x.safetensors"])
    assert (condition.name, condition.severity) == ("storm", 4)


def test_a_folder_of_several_files_is_several_conditions_in_the_order_of_their_severity(tmp_path, outputs):
    for name in ("fog-3", "fog-1", "clean"):
        outputs.save(tmp_path / f"{name}.safetensors")
    assert [str(c) for c in read_conditions([tmp_path])] == ["clean", "fog, severity 1", "fog, severity 3"]


def test_a_folder_of_arrays_is_one_condition(tmp_path, outputs):
    np.save(tmp_path / "logits.npy", outputs.logits)
    np.save(tmp_path / "labels.npy", outputs.labels)
    assert len(read_conditions([tmp_path])) == 1


def test_two_sets_of_one_name_are_refused_with_the_way_out(tmp_path, outputs):
    for folder in ("a", "b"):
        outputs.save(tmp_path / folder / "clean.safetensors")
    with pytest.raises(ValueError, match=r"both named 'clean'.*first="):
        read_conditions([tmp_path / "a", tmp_path / "b"])


def test_a_test_set_without_labels_is_refused_unless_it_is_out_of_domain(tmp_path):
    Outputs([[2.0, 1.0]]).save(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=r"x\.safetensors has no labels"):
        read_conditions([tmp_path / "x.safetensors"])
    (condition,) = read_conditions([tmp_path / "x.safetensors"], out_of_domain=True)
    assert condition.out_of_domain


def test_an_empty_folder_says_what_was_expected(tmp_path):
    with pytest.raises(ValueError, match=r"holds no outputs.*\.safetensors"):
        read_conditions([tmp_path])


def test_a_severity_that_is_no_number_is_refused():
    outputs = Outputs([[2.0, 1.0]], labels=[0], metadata={"condition": "fog", "severity": "heavy"})
    with pytest.raises(ValueError, match="severity of 'fog' must be an integer, got 'heavy'"):
        Condition.from_outputs(outputs)


def test_a_condition_is_out_of_domain_by_its_metadata_or_by_argument(outputs):
    unlabelled = Outputs([[2.0, 1.0]], metadata={"role": "ood", "severity": "2"})
    assert str(Condition.from_outputs(unlabelled, name="other")) == "other, out of domain"
    assert Condition.from_outputs(outputs, out_of_domain=True).out_of_domain
    with pytest.raises(ValueError, match="'clean' has no labels"):
        Condition.from_outputs(Outputs([[2.0, 1.0]]))


def test_the_modules_of_evaluation_do_not_import_each_other_in_circles():
    imports = {}
    for file in Path(evaluation.__file__).parent.glob("*.py"):
        nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        names = [
            f"{node.module}.__init__".split(".")[2] for node in nodes if node.module.startswith(evaluation.__name__)
        ]
        imports[file.stem] = names
    TopologicalSorter(imports).prepare()
