from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from densecal.errors import CalibrationWarning
from densecal.shift import table_domains, token_domains

TOKENS = np.random.default_rng(0).integers(10, 50, (200, 12))
TOKENS[:, 0], TOKENS[:, 9], TOKENS[:, 10:] = 1, 2, 0


def test_tables_change_more_with_the_strength_and_keep_their_rows_and_types():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 500), "city": rng.choice(["Ulm", "Bonn"], 500)})
    copies = table_domains(frame)
    assert [name.partition("/")[0] for name in copies] == ["noise"] * 3 + ["shuffled"] * 3 + ["missing"] * 3
    for kind in ("noise", "shuffled", "missing"):
        weak, strong = ((copies[f"{kind}/{name}"]["age"] != frame["age"]).mean() for name in ("weak", "strong"))
        assert 0.1 < weak < 0.25 < 0.6 < strong < 0.9
    assert (copies["noise/strong"]["city"] == frame["city"]).all()
    assert set(copies["missing/strong"]["city"]) == {"Ulm", "Bonn"}
    assert sorted(copies["shuffled/weak"].columns) == ["age", "city"]


def test_arrays_stay_arrays_and_missing_values_can_be_nan():
    table = np.random.default_rng(0).normal(size=(100, 3))
    assert not np.isnan(table_domains(table)["missing/strong"]).any()
    assert 0.6 < np.isnan(table_domains(table, missing="nan")["missing/strong"]).mean() < 0.95
    np.testing.assert_array_equal(
        table_domains(table, seed=1)["noise/weak"], table_domains(table, seed=1)["noise/weak"]
    )


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(range(20), dtype="Int64"),
        pd.Series([None] * 20, dtype=object),
        pd.Series([1.5, None] * 10, dtype="Float64"),
        pd.Series(list("ab") * 10, dtype="category"),
        pd.Series([True, False] * 10),
    ],
    ids=["nullable integers", "nothing but missing values", "nullable floats", "categories", "booleans"],
)
@pytest.mark.parametrize("missing", ["typical", "nan"])
def test_any_type_of_column_can_be_perturbed(column, missing):
    copies = table_domains(pd.DataFrame({"x": column}), missing=missing)
    assert {copy.shape for copy in copies.values()} == {(20, 1)}


@pytest.mark.parametrize("as_array", [True, False])
def test_numbers_stored_as_objects_get_noise_and_stay_objects(as_array):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 500), "city": rng.choice(["Ulm", "Bonn"], 500)}).astype(object)
    copies = table_domains(frame.to_numpy() if as_array else frame)
    assert as_array or set(copies["noise/weak"].dtypes) == {np.dtype(object)}
    noise, missing = (np.asarray(copies[f"{kind}/strong"]) for kind in ("noise", "missing"))
    assert noise.dtype == object
    assert 0.6 < (noise[:, 0] != frame["age"].to_numpy()).mean() < 0.9
    assert (noise[:, 1] == frame["city"].to_numpy()).all()
    assert len(set(missing[:, 0])) < 200, "the mean, not the most frequent value"


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"city": ["Ulm", "Bonn"] * 10, "open": [True, False] * 10}),
        np.array([["1.5", "2"], ["3", "4"]] * 10),
        pd.DataFrame({"age": pd.Series(["31", "47"] * 10, dtype=object)}),
    ],
    ids=["categories", "an array of texts", "numbers as text"],
)
def test_a_table_without_numbers_has_no_noise_and_says_so(table):
    with pytest.warns(CalibrationWarning, match=r"no column is numeric, so no copies have noise.*pandas.to_numeric"):
        copies = table_domains(table)
    assert {name.partition("/")[0] for name in copies} == {"shuffled", "missing"}


@pytest.mark.parametrize("texts", [["good film", "bad film"], pd.Series(["good film"]), np.array(["good", "bad"])])
def test_texts_are_no_table(texts):
    with pytest.raises(ValueError, match=r"n_columns\), got \(\d,\). .*token ids, by token_domains"):
        table_domains(texts)


def test_columns_of_the_same_name_are_all_kept():
    frame = pd.DataFrame(np.arange(40.0).reshape(20, 2), columns=["x", "x"])
    assert {copy.shape for copy in table_domains(frame).values()} == {(20, 2)}


def test_single_precision_stays_single_for_a_network_that_takes_it():
    copies = table_domains(np.arange(40, dtype=np.float32).reshape(20, 2))
    assert {copy.dtype for copy in copies.values()} == {np.dtype(np.float32)}


def test_an_unknown_replacement_of_missing_values_is_refused():
    with pytest.raises(ValueError, match="missing must be one of 'typical', 'nan', got 'mean'"):
        table_domains(np.ones((4, 2)), missing="mean")


def test_a_sparse_table_is_rejected_with_what_to_pass_instead():
    with pytest.raises(TypeError, match=r"got a sparse matrix.*pass table\.toarray\(\)"):
        table_domains(csr_matrix(np.eye(4)))


def test_tokens_are_dropped_masked_and_replaced_but_not_the_special_ones():
    copies = token_domains(TOKENS, pad_id=0, mask_id=3, special_ids=(1, 2))
    for name, copy in copies.items():
        assert copy.shape == TOKENS.shape, name
        assert (copy[:, 0] == 1).all()
        assert ((copy == 2).sum(axis=1) == 1).all()
    assert (copies["masked/strong"] == 3).mean() > 4 * (copies["masked/weak"] == 3).mean()
    dropped = copies["dropped/medium"]
    assert (np.diff((dropped == 0).astype(int), axis=1) >= 0).all(), "the padding stays on the right"
    assert (dropped == 0).sum() > (TOKENS == 0).sum()
    assert not any(name.startswith("masked") for name in token_domains(TOKENS, pad_id=0))


def test_tokens_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="integers of shape"):
        token_domains(np.ones((3, 4)), pad_id=0)


def test_texts_padded_on_the_left_are_refused():
    with pytest.raises(ValueError, match="padded on the right, but pad_id 0 stands before"):
        token_domains(np.array([[0, 0, 5, 6], [0, 7, 8, 9]]), pad_id=0)
