"""Tables and files of other people: their names of columns, classes and samples are kept, none is renamed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax

import densecal as package

CLASSES = ("cat", "dog", "grey wolf", "NA")


@pytest.fixture
def frame(drifting):
    """Probabilities by class name, ids with leading zeros, and the names of the true classes."""
    val = drifting["val"]
    table = pd.DataFrame(softmax(val.logits / 4, axis=1), columns=list(CLASSES))
    table.insert(0, "sample", [f"{row:04}" for row in range(len(table))])
    return table.assign(truth=[CLASSES[label] for label in val.labels])


OPTIONS = ("--probabilities", "--labels", "truth", "--id", "sample")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_with_its_own_names_is_calibrated_and_keeps_them(densecal, drifting, frame, suffix, tmp_path):
    def write(table, name):
        table.to_csv(name, index=False) if suffix == "csv" else table.to_parquet(name, index=False)

    write(frame, f"val.{suffix}")
    answer = densecal("fit", "--val", f"val.{suffix}", *OPTIONS, "--method", "ts", "-o", "cal.densecal")
    assert answer.code == 0, answer.err
    fitted = package.load("cal.densecal")
    logits = drifting["val"].logits / 4
    expected = package.TemperatureScaling().fit(logits, drifting["val"].labels)
    assert fitted.temperature_ == pytest.approx(expected.temperature_, rel=1e-4)
    assert densecal("inspect", "cal.densecal", "--json").json["classes"] == list(CLASSES)
    # New data have no labels, and their columns may come in another order.
    write(frame[["dog", "sample", "NA", "cat", "grey wolf"]], f"new.{suffix}")
    for output in ("out.csv", "out.parquet", "out.npz"):
        options = ("--probabilities", "--id", "sample", "-o", output)
        answer = densecal("apply", "cal.densecal", "--data", f"new.{suffix}", *options)
        assert answer.code == 0, answer.err
    expected = fitted.predict_proba(logits)
    table = pd.read_csv("out.csv", dtype={"sample": str}, keep_default_na=False)
    assert list(table.columns) == ["sample", "predicted", "confidence", *(f"p_{name}" for name in CLASSES)]
    assert list(table["sample"]) == list(frame["sample"])
    assert list(table["predicted"]) == [CLASSES[place] for place in expected.argmax(axis=1)]
    np.testing.assert_allclose(table[[f"p_{name}" for name in CLASSES]], expected, atol=1e-5)
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), table, check_dtype=False, rtol=1e-5)
    with np.load("out.npz") as arrays:
        assert list(arrays["classes"]) == list(CLASSES) and list(arrays["sample"]) == list(frame["sample"])
        np.testing.assert_allclose(arrays["probabilities"], expected, atol=1e-5)
    answer = densecal("evaluate", "cal.densecal", "--data", f"val.{suffix}", *OPTIONS, "--resamples", 0, "--json")
    assert answer.code == 0, answer.err
    accuracy = (logits.argmax(axis=1) == drifting["val"].labels).mean()
    assert answer.json["overall"]["accuracy"][0]["value"] == pytest.approx(accuracy)


def test_classes_that_are_not_those_of_the_calibrator_are_an_error_unless_their_order_is_stated(
    densecal, complains, frame, tmp_path
):
    """The order of the columns is no guess: of a renamed class in sorted columns, most answers would be wrong."""
    frame.to_csv("val.csv", index=False)
    assert densecal("fit", "--val", "val.csv", *OPTIONS, "--method", "ts", "-o", "cal.densecal").code == 0
    renamed = {"NA": "p_missing", "cat": "p_cat", "dog": "p_dog", "grey wolf": "p_grey wolf"}
    names = ["p_missing", "p_grey wolf", "p_dog", "p_cat"]
    frame.rename(columns=renamed)[[*names, "sample"]].to_csv("new.csv", index=False)
    order = "NA,grey wolf,dog,cat"
    frame.rename(columns={"NA": "missing"}).drop(columns="truth").to_csv("bare.csv", index=False)
    answer = densecal("apply", "cal.densecal", "--data", "bare.csv", "--probabilities", "--id", "sample", "-o", "o.csv")
    assert answer.code == 1 and "No column is named for the classes 'NA'." in answer.err
    scores = frame[list(CLASSES)].to_numpy()
    np.savez("new.npz", logits=np.log(scores[:, ::-1]), classes=["missing", "grey wolf", "dog", "cat"])
    reading = {"new.csv": ("--probabilities", "--id", "sample"), "new.npz": ("--assume-logits",)}
    for data, options in reading.items():
        command = ("apply", "cal.densecal", "--data", data, *options, "-o", "out.csv")
        answer = densecal(*command)
        assert answer.code == 1 and complains(answer)
        assert "missing: NA; unknown: missing." in answer.err and "--classes cat,dog,grey wolf,..." in answer.err
        answer = densecal(*command, "--classes", order.replace("NA", "cow"))
        assert answer.code == 1 and "missing: NA; unknown: cow." in answer.err
        assert densecal(*command, "--classes", order).code == 0
        found = pd.read_csv("out.csv", keep_default_na=False)
        assert list(found["predicted"]) == [CLASSES[place] for place in scores.argmax(axis=1)]


def test_the_scores_and_numbered_labels_of_an_array_file_follow_its_own_classes(densecal, frame, tmp_path):
    frame.to_csv("val.csv", index=False)
    assert densecal("fit", "--val", "val.csv", *OPTIONS, "--method", "vs", "-o", "cal.densecal").code == 0
    logits = np.log(frame[list(CLASSES)].to_numpy())
    labels = np.array([CLASSES.index(name) for name in frame["truth"]])
    np.savez("one.npz", logits=logits, labels=labels)
    np.savez("other.npz", logits=logits[:, ::-1], labels=3 - labels, classes=CLASSES[::-1])
    command = ("evaluate", "cal.densecal", "--assume-logits", "--resamples", 0, "--json", "--data")
    expected, found = (densecal(*command, name).json["overall"]["nll"] for name in ("one.npz", "other.npz"))
    assert found[1]["value"] == pytest.approx(expected[1]["value"], rel=1e-6)


def test_one_score_of_two_classes_is_enough(densecal, tmp_path):
    rng = np.random.default_rng(0)
    score = rng.normal(0, 3, 2000)
    labels = rng.random(2000) < expit(score / 2)
    table = pd.DataFrame({"age": 1, "risk": score, "ill": np.where(labels, "yes", "no")})
    table.to_csv("val.csv", index=False, sep=";")
    given = ("--scores", "risk", "--labels", "ill", "--delimiter", ";", "--method", "ts", "-o", "cal.densecal")
    answer = densecal("fit", "--val", "val.csv", *given)
    assert answer.code == 1 and "--classes no,yes" in answer.err
    answer = densecal("fit", "--val", "val.csv", *given, "--classes", "no,yes")
    assert answer.code == 0, answer.err
    assert package.load("cal.densecal").temperature_ == pytest.approx(2, rel=0.2)
    table.assign(risk=expit(score)).to_csv("shares.csv", index=False)
    answer = densecal("apply", "cal.densecal", "--data", "shares.csv", "--scores", "risk", "-o", "out.csv")
    assert answer.code == 1 and "every score lies in [0, 1], as probabilities do. Pass --probabilities" in answer.err
    table.assign(risk=(100 * expit(score)).round(1)).to_csv("percent.csv", index=False)
    options = ("--scores", "risk", "--probabilities", "-o", "out.csv")
    assert densecal("apply", "cal.densecal", "--data", "percent.csv", *options).code == 0
    found = pd.read_csv("out.csv")["p_yes"]
    np.testing.assert_allclose(found, expit(score / package.load("cal.densecal").temperature_), atol=0.05)


def test_without_training_features_the_default_is_a_method_that_needs_none(densecal, frame, tmp_path):
    frame.to_csv("val.csv", index=False)
    answer = densecal("fit", "--val", "val.csv", *OPTIONS, "-o", "cal.densecal", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["method"] == "ets"


def test_arrays_with_other_names_are_named_on_the_command_line(densecal, drifting, tmp_path):
    from safetensors.numpy import save_file

    val = drifting["val"]
    arrays = {"probs": softmax(val.logits, axis=1), "y": val.labels}
    np.savez("val.npz", **arrays, key=np.arange(len(val)))
    save_file({name: np.ascontiguousarray(one) for name, one in arrays.items()}, "val.safetensors")
    for file in ("val.npz", "val.safetensors"):
        options = ("--scores", "probs", "--labels", "y", "--probabilities")
        answer = densecal("fit", "--val", file, *options, "--method", "ts", "-o", "cal.densecal")
        assert answer.code == 0, answer.err
    options = ("--scores", "probs", "--labels", "y", "--probabilities", "--id", "key")
    assert densecal("apply", "cal.densecal", "--data", "val.npz", *options, "-o", "out.csv").code == 0
    assert list(pd.read_csv("out.csv")["key"][:3]) == [0, 1, 2]
    answer = densecal("fit", "--val", "val.npz", "--scores", "prob", "--method", "ts", "-o", "cal.densecal")
    assert answer.code == 1 and "val.npz has no array named 'prob', only key, probs, y." in answer.err


def test_files_of_one_data_set_are_read_together(densecal, drifting, drifting_files, tmp_path):
    val, train = drifting["val"], drifting["train"]
    Path("shards").mkdir()
    for number in range(3):
        val[number::3].save(f"val-{number}.npz")
        train[number::3].save(f"shards/train-{number}.safetensors")
    for options in (("--val", "val-0.npz", "--val", "val-1.npz", "--val", "val-2.npz"), ("--val", "val-*.npz")):
        answer = densecal("fit", *options, "--train", "shards", "--method", "dac+ts", "-o", "cal.densecal", "--json")
        assert answer.code == 0, answer.err
        assert answer.json["n_samples"] == len(val)
        assert len(package.load("cal.densecal").density_stage.bank) == len(train)
    assert list(densecal("inspect", "cal.densecal", "--json").json["files"]["train"]) == [
        f"train-{number}.safetensors" for number in range(3)
    ]
    answer = densecal("apply", "cal.densecal", "--data", "val-*.npz", "-o", "out.npz", "--json")
    assert answer.json["n_samples"] == len(val)


def test_apply_names_the_file_that_does_not_fit_the_others(densecal, complains, frame, tmp_path):
    frame.to_csv("val.csv", index=False)
    assert densecal("fit", "--val", "val.csv", *OPTIONS, "--method", "ts", "-o", "cal.densecal").code == 0
    np.savez("named.npz", probabilities=frame[list(CLASSES)], ids=np.arange(len(frame)))
    np.savez("bare.npz", probabilities=frame[list(CLASSES)])
    data = ("--data", "named.npz", "--data", "bare.npz")
    answer = densecal("apply", "cal.densecal", *data, "--probabilities", "-o", "out.csv")
    assert answer.code == 1 and complains(answer)
    assert "bare.npz and named.npz must both have sample ids, or neither" in answer.err
    np.savez("other.npz", probabilities=frame[list(CLASSES)] - 1)
    answer = densecal(
        "apply", "cal.densecal", "--data", "bare.npz", "--data", "other.npz", "--probabilities", "-o", "out.csv"
    )
    assert answer.code == 1 and answer.err.startswith("densecal: other.npz: ")


def test_a_table_may_hold_features(densecal, drifting, tmp_path):
    for name in ("train", "val"):
        outputs = drifting[name]
        columns = {f"logit{place}": outputs.logits[:, place] for place in range(4)} | {"label": outputs.labels}
        for layer, values in outputs.features.items():
            columns |= {f"features/{layer}/{place}": values[:, place] for place in range(values.shape[1])}
        pd.DataFrame(columns).to_parquet(f"{name}.parquet")
    answer = densecal(
        "fit", "--train", "train.parquet", "--val", "val.parquet", "--method", "dac", "-o", "cal.densecal"
    )
    assert answer.code == 0, answer.err
    assert package.load("cal.densecal").density_stage.bank.widths == {"early": 6, "late": 8}


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("id,a,b,y\n1,2,3,a\n", ("--labels", "z"), "has no column 'z'. Its columns are 'id', 'a', 'b', 'y'"),
        ("id,a,b,y\n1,2,3,a\n", ("--labels", "y"), "has the columns 'id', 'a', 'b', 'y'. Expected logit0"),
        ("id,a,b,y\n1,2,3,a\n1,2,3,b\n", ("--labels", "y"), "Otherwise say which: --scores a,b."),
        ("a;b;y\n1,5;2;a\n", ("--labels", "y", "--scores", "a,b", "--delimiter", ";"), "need --decimal ','"),
        (
            "id,a,b,y\n1,2,3,c\n",
            ("--labels", "y", "--scores", "a,b"),
            "has the labels 'c', but the classes are 'a', 'b'",
        ),
        ("a,b,y\n1,2,a\n3,4,\n", ("--labels", "y", "--scores", "a,b"), "the label of row 1 is missing"),
        (
            "a,b,y\n1,x,a\n",
            ("--labels", "y", "--scores", "a,b"),
            "the column 'b' must contain only numbers, got 'x' in row 0 (rows count from 0)",
        ),
        ("logit0,logit1,label\n,2,0\n1,x,1\n", (), "the column 'logit1' must contain only numbers, got 'x' in row 1"),
        ("logit0;logit1;label\n;2;0\n1,5;3;1\n", ("--delimiter", ";"), "need --decimal ','"),
        ("a,b,label\n1,2, a\n3,4,b\n5,6,a\n", (), "No column is named for the classes ' a'."),
        ("0.31,-1.2,a\n1,2,a\n", ("--labels", "label"), "'a'. Its first row must contain the names of the columns."),
        ("0.31,-1.2,1\n1,2,1\n", (), "--id. Its first row must contain the names of the columns."),
        ("logit0;logit1;label\n1;2;0\n", (), "--delimiter ';'"),
        ("logit0;logit1;note;label\n1;2;a;0\n1;2;b,c;0\n", (), "--delimiter ';'"),
        ("", (), "val.csv is empty."),
        ("p_a,p_b,ts,label\n1,2,3,a\n1,2,3,b\n", (), "say which: --scores 'p_*'"),
        ("logit0,logit1,note,label\n1,2,3,0\n", (), "say which: --scores 'logit*'"),
        ("p0,p1,label\n0.5,0.5,0\n0.9,0.9,1\n", ("--probabilities",), "row 1 sums to 1.8"),
        ("p0,p1,label\n-3,4,0\n", ("--probabilities",), "omit --probabilities"),
        ("p0,p1,label\n0.5,0.5,0\n", ("--probabilities", "--scores", "q*"), "has no column 'q*' for --scores"),
        ("p0,p1,label\n3,-1,0\n", ("--classes", "a,b,c"), "scores of 2 classes, but the classes are a, b, c"),
    ],
)
def test_what_a_table_lacks_is_said_with_the_option_that_helps(densecal, complains, text, options, words, tmp_path):
    Path("val.csv").write_text(text)
    answer = densecal("fit", "--val", "val.csv", *options, "--method", "ts", "-o", "cal.densecal")
    assert answer.code == 1
    assert complains(answer), answer.err
    assert words in answer.err


def test_numbered_classes_may_start_anywhere(densecal, drifting, tmp_path):
    val = drifting["val"]
    table = pd.DataFrame(val.logits, columns=[f"score_{place}" for place in (1, 2, 3, 4)])
    table.assign(y=val.labels + 1).to_csv("val.csv", index=False)
    options = ("--scores", "score_*", "--labels", "y", "--classes", "1,2,3,4")
    answer = densecal("fit", "--val", "val.csv", *options, "--method", "ts", "-o", "cal.densecal")
    assert answer.code == 0, answer.err
    expected = package.TemperatureScaling().fit(val).temperature_
    assert package.load("cal.densecal").temperature_ == pytest.approx(expected, rel=1e-4)


def test_the_same_data_at_the_same_time_make_the_same_file(densecal, drifting_files, monkeypatch, tmp_path):
    command = ("fit", "--val", drifting_files / "val.safetensors", "--method", "ts")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("a", "b"):
        assert densecal(*command, "-o", f"{name}.densecal").code == 0
    assert Path("a.densecal").read_bytes() == Path("b.densecal").read_bytes()
    assert densecal("inspect", "a.densecal", "--json").json["created_at"] == "2023-11-14T22:13:20+00:00"


def test_an_artefact_knows_when_with_what_and_from_which_data_it_was_made(densecal, drifting, drifting_files):
    import hashlib

    val = drifting_files / "val.safetensors"
    assert densecal("fit", "--val", val, "--method", "ts", "-o", "cal.densecal").code == 0
    told = densecal("inspect", "cal.densecal", "--json").json
    assert told["densecal_version"] == package.__version__
    assert told["files"]["val"] == {"val.safetensors": hashlib.sha256(val.read_bytes()).hexdigest()}
    package.TemperatureScaling().fit(drifting["val"]).save("from-python.densecal")
    package.load("from-python.densecal").save("again.densecal")
    others = [densecal("inspect", f"{name}.densecal", "--json").json for name in ("from-python", "again")]
    assert told["data_hashes"] == others[0]["data_hashes"] == others[1]["data_hashes"]
    package.TemperatureScaling().fit(drifting["val"][1:]).save("other.densecal")
    assert densecal("inspect", "other.densecal", "--json").json["data_hashes"] != told["data_hashes"]
    assert densecal("fit", "--val", val, "--method", "ets", "-o", "cal.densecal").code == 0
    assert "created at" in densecal("inspect", "cal.densecal").out


def test_a_log_gets_a_line_now_and_then(capsys, monkeypatch):
    from densecal import display

    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(display.track("abc", "reading")) == list("abc")
    assert capsys.readouterr().err.splitlines()[1].startswith("reading: 1 of 3 after ")
    monkeypatch.undo()
    list(display.track("abc", "reading"))
    assert capsys.readouterr().err == ""


def test_decimal_commas_are_read(densecal, frame, tmp_path):
    frame.to_csv("val.csv", index=False)
    frame.to_csv("commas.csv", index=False, sep=";", decimal=",")
    assert densecal("fit", "--val", "val.csv", *OPTIONS, "--method", "ts", "-o", "a.densecal").code == 0
    reading = ("--delimiter", ";", "--decimal", ",")
    answer = densecal("fit", "--val", "commas.csv", *OPTIONS, *reading, "--method", "ts", "-o", "b.densecal")
    assert answer.code == 0, answer.err
    assert package.load("a.densecal").temperature_ == package.load("b.densecal").temperature_
