"""Tables of other people: what is missing is said with options that can be copied."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from densecal.errors import ArtefactError
from densecal.io import output_files
from densecal.io.output_files import FileLayout


@pytest.mark.parametrize(
    ("text", "layout", "advice"),
    [
        ("id,dog,big cat,y\n7,1,2,dog\n8,1,2,big cat\n", {"labels": "y"}, "--scores 'dog,big cat' --id id."),
        ("zebra,ant,note,y\n1,2,3,ant\n1,2,3,zebra\n", {"labels": "y"}, "--scores zebra,ant."),
        ("p_a,p_b,key,label\n1,2,u1,a\n1,2,u2,b\n", {}, "--scores 'p_*' --id key."),
        ("p_a,p_b,age\n1,2,30\n1,2,31\n", {}, "--scores 'p_*'; --labels."),
        ("a,b,customer_id\n1,2,30\n1,2,31\n", {}, "--id customer_id; --scores, --labels."),
        ("a,b,customer_id\n1,2,30\n1,2,31\n", {"labels": "a", "id": "customer_id"}, "--scores."),
        ("logit0,logit1,label,labels\n1,2,0,0\n1,2,1,1\n", {}, "--scores 'logit*' --labels label."),
    ],
)
def test_only_the_missing_options_are_named_with_their_columns(tmp_path, text, layout, advice):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ArtefactError) as caught:
        output_files.read(tmp_path / "t.csv", FileLayout(**layout))
    assert f"Otherwise say which: {advice}" in str(caught.value)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_table_in_another_encoding_is_to_be_saved_as_utf_8(tmp_path, encoding):
    (tmp_path / "t.csv").write_text("logit0,logit1,name\n1,2,Zoë\n", encoding=encoding)
    with pytest.raises(ArtefactError, match=r"t.csv cannot be read .* it is not UTF-8 text. Save it as UTF-8."):
        output_files.read(tmp_path / "t.csv")


def test_the_index_of_a_parquet_file_can_be_the_ids_or_the_labels(tmp_path):
    pytest.importorskip("pyarrow")
    path: Path = tmp_path / "t.parquet"
    index = pd.MultiIndex.from_tuples([("u1", 0), ("u2", 1)], names=["key", "truth"])
    pd.DataFrame({"logit0": [1.0, 2.0], "logit1": [0.0, 3.0]}, index=index).to_parquet(path)
    content = output_files.read(path, FileLayout(id="key", labels="truth"))
    assert content.ids.tolist() == ["u1", "u2"] and content.labels.tolist() == [0, 1]
    assert output_files.read(path).logits.tolist() == [[1, 0], [2, 3]]
