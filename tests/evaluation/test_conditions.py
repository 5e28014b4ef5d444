from __future__ import annotations

import numpy as np
import pytest

from densecal import DAC, Chain, FeatureBank, Outputs, TemperatureScaling
from densecal.evaluation import Condition, bank_of, density_stage, measure_distances, read_conditions


@pytest.fixture
def outputs():
    return Outputs([[2.0, 1.0], [0.0, 3.0]], labels=[0, 1])


def test_facts_in_a_file_give_name_and_severity(tmp_path):
    metadata = {"condition": "fog", "severity": "3"}
    Outputs([[2.0, 1.0]], labels=[0], metadata=metadata).save(tmp_path / "anything.safetensors")
    (condition,) = read_conditions([tmp_path / "anything.safetensors"])
    assert (condition.name, condition.severity) == ("fog", 3)


@pytest.mark.parametrize(
    ("file", "name", "severity"),
    [("fog-3", "fog", 3), ("fog_5", "fog", 5), ("clean", "clean", 0), ("sales-2024", "sales-2024", 0)],
)
def test_without_facts_the_file_name_gives_them(tmp_path, outputs, file, name, severity):
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
    with pytest.raises(ValueError, match=r"both called 'clean'.*first="):
        read_conditions([tmp_path / "a", tmp_path / "b"])


def test_a_test_set_without_labels_is_refused_unless_it_is_out_of_domain(tmp_path):
    Outputs([[2.0, 1.0]]).save(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=r"x\.safetensors holds no labels"):
        read_conditions([tmp_path / "x.safetensors"])
    (condition,) = read_conditions([tmp_path / "x.safetensors"], out_of_domain=True)
    assert condition.out_of_domain


def test_an_empty_folder_says_what_was_expected(tmp_path):
    with pytest.raises(ValueError, match=r"holds no outputs.*\.safetensors"):
        read_conditions([tmp_path])


def test_a_severity_that_is_no_number_is_refused():
    outputs = Outputs([[2.0, 1.0]], labels=[0], metadata={"condition": "fog", "severity": "heavy"})
    with pytest.raises(ValueError, match="severity of 'fog' must be a whole number, got 'heavy'"):
        Condition.from_outputs(outputs)


def test_distances_are_measured_once_and_kept(drifting):
    bank = FeatureBank(drifting["train"].features, k=5)
    condition = Condition("clean", drifting["test-0"])
    (measured,) = measure_distances([condition], bank)
    np.testing.assert_array_equal(measured.distances, bank.distances(drifting["test-0"].features))
    assert measure_distances([measured], bank)[0] is measured


def test_the_density_stage_of_a_chain_is_its_dac(drifting):
    bank = FeatureBank(drifting["train"].features, k=5)
    chain = Chain(DAC(bank), TemperatureScaling())
    assert density_stage(chain) is chain.stages[0]
    assert bank_of(chain) is bank
    assert density_stage(TemperatureScaling()) is None


def test_a_method_with_temperatures_of_its_own_measures_no_distance():
    from densecal import DAC, Chain, ParameterizedTemperatureScaling
    from densecal.evaluation import bank_of, density_stage

    alone = ParameterizedTemperatureScaling()
    dac = DAC()
    assert density_stage(alone) is None
    assert bank_of(alone) is None
    assert density_stage(Chain(dac, alone)) is dac
