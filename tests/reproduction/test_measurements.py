from __future__ import annotations

import numpy as np
import pytest

from densecal.errors import ArtefactError
from reproduction.measuring.measurements import MeasuredSet, Measurements, pack, unpack


def test_packed_numbers_come_back_within_half_a_step():
    rng = np.random.default_rng(0)
    values = rng.normal(0, 5, (50, 4))
    back = unpack(pack(values, 2.0**-7), values.shape, 2.0**-7)
    assert np.abs(back - values).max() <= 2.0**-8 + 1e-6


def test_distances_to_later_neighbours_are_stored_as_differences_and_come_back():
    rng = np.random.default_rng(0)
    values = np.sort(rng.uniform(0, 2, (40, 3, 5)), axis=2)
    back = unpack(pack(values, 2.0**-11), values.shape, 2.0**-11)
    assert np.abs(back - values).max() <= 2.0**-12 + 1e-6


def test_what_is_packed_is_smaller_than_float16():
    rng = np.random.default_rng(0)
    far = rng.gamma(4, 0.05, (2000, 6, 1)) * np.linspace(0.8, 1.0, 5)
    assert pack(far, 2.0**-11).nbytes < 0.6 * far.astype(np.float16).nbytes


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6])
def test_numbers_that_do_not_fit_are_refused(bad):
    with pytest.raises(ValueError, match="finite and below"):
        pack(np.array([[bad]]), 2.0**-7)


def test_measurements_survive_the_disk(measured, results):
    back = Measurements.load(results / "measurements" / "c10-resnet18")
    assert (back.classifier, back.layers, back.ks) == (measured.classifier, measured.layers, measured.ks)
    assert set(back.sets) == set(measured.sets)
    for name, each in measured.sets.items():
        assert np.abs(back.sets[name].logits - each.logits).max() < 0.005
        assert np.abs(back.sets[name].distances - each.distances).max() < 0.0006
    assert (back.labels("clean") == measured.labels("clean")).all()


def test_conditions_are_ordered_by_severity_and_share_the_clean_labels(measured):
    listed = measured.conditions(50)
    assert [condition.severity for condition in listed] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert all((condition.outputs.labels == measured.labels("clean")).all() for condition in listed)
    assert listed[0].name == "clean"


def test_distances_are_those_of_the_asked_neighbour_and_layers(measured):
    first, fiftieth = measured.distances("clean", 1), measured.distances("clean", 50)
    assert (first < fiftieth).all()
    chosen = measured.distances("clean", 50, ["layer4"])
    assert (chosen[:, 0] == fiftieth[:, 4]).all()


def test_an_unmeasured_neighbour_is_refused(measured):
    with pytest.raises(ValueError, match=r"one of the measured \[1, 10, 50, 100, 200\], got 7"):
        measured.distances("clean", 7)


def test_out_of_domain_sets_have_no_labels(measured):
    (outside,) = measured.out_of_domain(50)
    assert outside.name == "fashion"
    assert outside.out_of_domain


def test_a_classifier_without_validation_set_is_fitted_on_test_images_that_no_test_set_keeps(measured):
    sets = {name: each for name, each in measured.sets.items() if name != "val"}
    split = Measurements("c10-resnet20", measured.layers, measured.ks, sets).with_validation_from_test(100)
    assert len(split.sets["val"].logits) == 100
    assert len(split.sets["clean"].logits) == len(split.sets["gaussian_noise-3"].logits) == 200
    kept = {row.tobytes() for row in split.sets["clean"].logits}
    assert not kept & {row.tobytes() for row in split.sets["val"].logits}
    assert len(split.sets["ood-fashion"].logits) == 300


def test_perturbed_sets_have_the_labels_of_what_was_perturbed(measured):
    perturbed = MeasuredSet(measured.sets["val"].logits, measured.sets["val"].distances)
    more = Measurements("c10-resnet18", measured.layers, measured.ks, {**measured.sets, "perturbed-mild-0": perturbed})
    assert (more.labels("perturbed-mild-0") == measured.labels("val")).all()
    assert len(more.conditions(50)) == len(measured.conditions(50))


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no measurements"):
        Measurements.load(tmp_path)


def test_a_truncated_file_is_refused(measured, tmp_path):
    measured.save(tmp_path)
    path = tmp_path / "severity-1.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtefactError, match="truncated"):
        Measurements.load(tmp_path)
