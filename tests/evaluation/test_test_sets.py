from __future__ import annotations

import numpy as np
import pytest

from densecal import Outputs
from densecal.evaluation.test_sets import read_sets, severity_line


def save(path, metadata=None, labels=(0, 1, 1)):
    logits = np.array([[3.0, -1.0], [0.5, 2.0], [1.5, 0.5]])
    Outputs(logits, labels if labels is None else list(labels), metadata=metadata).save(path)
    return str(path)


def told(sources):
    return [(one.condition.name, one.condition.severity) for one in read_sets(sources)]


@pytest.mark.parametrize("name", ["cifar10", "sales-2024", "fold_2", "test-3", "v2-5", "resnet50", "fog-6"])
def test_a_number_in_a_files_name_is_not_taken_for_a_severity(tmp_path, name):
    assert told([save(tmp_path / f"{name}.npz")]) == [(name, 0)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rain-severity-3", ("rain", 3)),
        ("severity-2", ("shift", 2)),
        ("sev4", ("shift", 4)),
        ("rain_sev1", ("rain", 1)),
        ("fog-3", ("fog", 3)),
        ("gaussian_noise-5", ("gaussian_noise", 5)),
        ("Motion-Blur_1", ("Motion-Blur", 1)),
        ("fog-0", ("fog", 0)),
    ],
)
def test_a_name_that_says_severity_or_a_known_corruption_gives_the_severity(tmp_path, name, expected):
    assert told([save(tmp_path / f"{name}.npz")]) == [expected]


def test_sets_that_share_a_name_with_different_numbers_are_a_series_of_severities(tmp_path):
    for number in (0, 3, 5):
        save(tmp_path / f"night-{number}.npz")
    assert told([str(tmp_path)]) == [("night", 0), ("night", 3), ("night", 5)]


@pytest.mark.parametrize("stem", ["fold_", "fold-", "cv-Fold-", "test_set-", "sales-2024-", "c_run-", "hospital_"])
def test_months_folds_runs_and_places_are_no_series(tmp_path, stem):
    for number in (1, 2):
        save(tmp_path / f"{stem}{number}.npz")
    assert told([str(tmp_path)]) == [(f"{stem}1", 0), (f"{stem}2", 0)]


@pytest.mark.parametrize(
    ("stem", "last"), [("week", 7), ("week", 5), ("day", 5), ("store-week", 3), ("Month", 3), ("store", 5), ("wave", 7)]
)
def test_times_and_places_and_numbers_beyond_5_are_no_series(tmp_path, stem, last):
    names = [f"{stem}-{number}" for number in range(1, last + 1)]
    for name in names:
        save(tmp_path / f"{name}.npz")
    assert told([str(tmp_path)]) == [(name, 0) for name in names]


def test_the_metadata_in_a_file_come_before_its_name(tmp_path):
    path = save(tmp_path / "fog-3.npz", metadata={"condition": "rain", "severity": "1"})
    assert told([path]) == [("rain", 1)]


def test_a_name_the_user_gives_comes_before_the_metadata_but_keeps_their_severity(tmp_path):
    path = save(tmp_path / "x.npz", metadata={"condition": "rain", "severity": "1"})
    assert told([f"storm={path}"]) == [("storm", 1)]


def test_a_name_the_user_gives_may_carry_the_severity(tmp_path):
    path = save(tmp_path / "cifar10.npz")
    assert told([f"storm-sev4={path}"]) == [("storm", 4)]


def test_what_was_read_as_a_severity_is_said_in_one_line(tmp_path):
    files = [save(tmp_path / name) for name in ("fog-3.npz", "cifar10.npz")]
    files.append(save(tmp_path / "x.npz", metadata={"condition": "rain", "severity": "2"}))
    line = severity_line(read_sets(files))
    assert "from names: fog-3.npz → 3" in line
    assert "from the metadata in the files: 2" in line
    assert "none given, so 0 (in-domain): cifar10" in line


def test_natural_shifts_are_told_apart_from_sets_without_a_severity(tmp_path):
    clean, other = (save(tmp_path / name) for name in ("test.npz", "abroad.npz"))
    sets = [*read_sets([clean]), *read_sets([other], natural=True)]
    assert severity_line(sets) == (
        "Severity: none given, so 0 (in-domain): test. Natural shifts, without a severity: abroad."
    )
    assert severity_line(read_sets([clean, other])).endswith(
        "Sets of one severity are averaged. Name severities, as in rain-severity-3=FILE. Pass natural shifts with "
        "--natural."
    )


def test_two_sets_of_one_name_are_told_by_their_files(tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
    with pytest.raises(ValueError, match=r"a/x\.npz and .*b/x\.npz are both named 'x'"):
        read_sets([save(tmp_path / "a" / "x.npz"), save(tmp_path / "b" / "x.npz")])


def test_a_set_whose_labels_have_another_name_is_told_with_what_is_in_the_file(tmp_path):
    np.savez(tmp_path / "x.npz", logits=3 * np.eye(2), y=[0, 1])
    with (
        pytest.warns(UserWarning, match="y is ignored"),
        pytest.raises(ValueError, match="only logits, y: "),
    ):
        read_sets([str(tmp_path / "x.npz")])


def test_without_severities_from_names_only_the_metadata_count(tmp_path):
    save(tmp_path / "fog-3.npz")
    save(tmp_path / "x.npz", metadata={"condition": "rain", "severity": "1"})
    sets = read_sets([str(tmp_path)], severity_from_names=False)
    assert [(one.condition.name, one.condition.severity, one.severity_from) for one in sets] == [
        ("fog-3", 0, "none"),
        ("rain", 1, "metadata"),
    ]


def test_a_set_without_labels_is_not_taken_for_out_of_domain_by_its_name(tmp_path):
    path = save(tmp_path / "ood.npz", labels=None)
    with pytest.raises(ValueError, match=r"ood\.npz has no labels"):
        read_sets([path])
    assert read_sets([path], out_of_domain=True)[0].condition.out_of_domain
