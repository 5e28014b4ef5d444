"""A file is what its content says, whatever byte happens to stand where another format has its mark."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from densecal import Outputs
from densecal.errors import ArtefactError
from densecal.io import output_files
from densecal.io.output_files import FileLayout


def test_a_parquet_file_with_a_brace_in_its_ninth_byte_is_read(tmp_path):
    pytest.importorskip("pyarrow")
    path, layout, with_brace = tmp_path / "t.parquet", FileLayout(id="key"), 0
    table = pd.DataFrame({"key": [f"d6-{row}" for row in range(810)], "logit0": range(810), "logit1": 0.5})
    for n_rows in range(790, 811):
        table[:n_rows].to_parquet(path)
        with_brace += path.read_bytes()[8:9] == b"{"
        assert output_files.read(path, layout).ids.tolist() == table["key"][:n_rows].tolist()
    assert with_brace, "the size of the first page decides: choose other sizes"


def test_a_csv_file_with_a_brace_in_its_ninth_byte_is_read(tmp_path):
    (tmp_path / "t.csv").write_text("logit_a1{,logit_b\n1,2\n3,1\n")
    assert Outputs.load(tmp_path / "t.csv").logits.tolist() == [[1, 2], [3, 1]]


def test_outputs_under_the_name_of_a_table_are_still_pointed_out(tmp_path):
    Outputs(np.eye(3)).save(tmp_path / "t.safetensors")
    (tmp_path / "t.safetensors").rename(tmp_path / "t.parquet")
    with pytest.raises(ArtefactError, match="holds a .safetensors file. Rename it to t.safetensors"):
        Outputs.load(tmp_path / "t.parquet")


def test_the_labels_of_our_own_files_are_positions_whether_or_not_their_name_is_given(tmp_path):
    Outputs(np.eye(3), [0, 1, 2]).save(tmp_path / "t.safetensors")
    layout = FileLayout(classes=("2", "1", "0"))
    named = FileLayout(classes=("2", "1", "0"), labels="labels")
    found = [output_files.read(tmp_path / "t.safetensors", one).labels.tolist() for one in (layout, named)]
    assert found == [[0, 1, 2], [0, 1, 2]]
