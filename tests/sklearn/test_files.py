"""Files of a calibrated classifier and of its outputs, which the commands read."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from densecal import CalibratedClassifier, Monitor, Outputs, TemperatureScaling, load
from densecal.cli import main
from densecal.errors import ArtefactError, CalibrationWarning
from densecal.shift import table_domains

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def densecal(run_main):
    """Run the command in an empty folder and return its exit code and what it wrote."""
    return partial(run_main, main)


@pytest.fixture(scope="module")
def tables():
    X, y = make_classification(3600, 10, n_informative=6, n_classes=3, class_sep=1.5, random_state=0)
    return X, np.array(["low", "high", "middle"])[y]


@pytest.mark.parametrize(
    ("estimator", "features", "options"),
    [
        (MLPClassifier((16,), max_iter=60, random_state=0), None, ["--assume-logits"]),
        (LinearSVC(random_state=0), lambda X: {"columns": X}, []),
    ],
    ids=["probabilities", "scores"],
)
def test_the_command_monitors_the_files_of_a_fitted_estimator(densecal, tables, estimator, features, options):
    X, y = tables
    estimator.fit(X[:1200], y[:1200])
    X_val, y_val = X[1200:2400], y[1200:2400]
    calibrated = CalibratedClassifier(estimator, "dac", features=features)
    calibrated.fit(X_val, y_val, X_train=X[:1200], X_shifted=table_domains(X_val), y_shifted=y_val)
    calibrated.save("estimator.densecal")
    assert densecal("inspect", "estimator.densecal", "--json").json["classes"] == ["high", "low", "middle"]
    days = {"monday": (X[2400:3000], None), "tuesday": (X[3000:] + 1, y[3000:])}
    for day, (samples, labels) in days.items():
        calibrated.outputs(samples, labels).save(f"{day}.safetensors")
    files = [argument for day in days for argument in ("--data", f"{day}.safetensors")]
    answer = densecal("monitor", "estimator.densecal", *files, *options, "--alarm-below", 0.5, "--json")
    assert answer.code in (0, 3), answer.err
    for window, (samples, _) in zip(answer.json["windows"], days.values(), strict=True):
        assert window["estimate"]["accuracy"] == pytest.approx(calibrated.estimate_accuracy(samples).accuracy)
    second = answer.json["windows"][1]
    assert second["n_right"] == round(second["n_labels"] * estimator.score(*days["tuesday"]))
    read = Outputs.load("tuesday.safetensors")
    np.testing.assert_array_equal(calibrated.classes_[read.labels], y[3000:])
    np.testing.assert_allclose(load("estimator.densecal").predict_proba(read), calibrated.predict_proba(X[3000:] + 1))
    if options:
        answer = densecal("monitor", "estimator.densecal", *files)
        assert answer.code == 1 and "if they are logits or log-probabilities, --assume-logits" in answer.err


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_labels_of_numbered_classes_are_positions_in_files_without_the_first_class(densecal, tables, suffix):
    """Positions 1 and 2 are the classes 2 and 3, though there are classes 1 and 2."""
    X, y = tables
    y = np.searchsorted(np.unique(y), y) + 1
    estimator = GaussianNB().fit(X[:1200], y[:1200])
    calibrated = CalibratedClassifier(estimator, "ets").fit(X[1200:2400], y[1200:2400])
    calibrated.save("estimator.densecal")
    later = np.flatnonzero(y > 1)[-800:]
    calibrated.outputs(X[later], y[later]).save(f"later.{suffix}")
    command = ("evaluate", "estimator.densecal", "--assume-logits", "--resamples", 0, "--json")
    answer = densecal(*command, "--data", f"later.{suffix}")
    assert answer.code == 0, answer.err
    accuracy = answer.json["overall"]["accuracy"][0]["value"]
    assert accuracy == pytest.approx(estimator.score(X[later], y[later]))


def test_classifiers_of_several_folds_have_no_common_outputs(tables):
    X, y = tables
    calibrated = CalibratedClassifier(GaussianNB(), "ets").fit(X, y)
    with pytest.raises(AttributeError, match="There are 5, one per fold: see estimators_, or use ensemble=False"):
        calibrated.outputs(X)
    with pytest.raises(ValueError, match="'ets' cannot estimate accuracies"):
        Monitor(calibrated)
    one = CalibratedClassifier(GaussianNB(), "ets", ensemble=False).fit(X, y)
    outputs = one.outputs(X[:5], y[:5])
    assert outputs.layers == () and len(outputs.labels) == 5
    np.testing.assert_allclose(one.calibrator_.predict_proba(outputs), one.predict_proba(X[:5]))
    with pytest.raises(ValueError, match="y holds the classes"):
        one.outputs(X[:1], ["none"])


TEXTS, MOODS = np.array(["good film", "bad film", "a good one", "a bad one"] * 30), np.array([1, 0] * 60)


def patients(n_samples=400):
    rng = np.random.default_rng(0)
    age, sex = rng.normal(50, 10, n_samples), rng.choice(["f", "m"], n_samples)
    return pd.DataFrame({"age": age, "sex": sex}), (rng.random(n_samples) < age / 100).astype(int)


def on_columns(classifier, scaler=None, numbers="age", category="sex"):
    encoded = make_column_transformer((scaler or StandardScaler(), [numbers]), (OneHotEncoder(), [category]))
    return make_pipeline(encoded, classifier)


def saved(estimator, X, y):
    CalibratedClassifier(estimator.fit(X, y), "platt").fit(X, y).save("cal.densecal")
    return CalibratedClassifier.load("cal.densecal", estimator)


def test_pipelines_of_other_steps_columns_or_fits_than_the_saved_one_are_rejected(densecal):
    X, y = patients()
    loaded = saved(on_columns(LogisticRegression()), X, y)
    renamed = X.rename(columns={"age": "years"})
    others = {
        r", LogisticRegression\), got a .*, RandomForestClassifier": on_columns(RandomForestClassifier()).fit(X, y),
        r"got a Pipeline\(ColumnTransformer\(MinMaxScaler": on_columns(LogisticRegression(), MinMaxScaler()).fit(X, y),
        "fitted on the columns 'age', 'sex', got one fitted on 'years', 'sex'": on_columns(
            LogisticRegression(), numbers="years"
        ).fit(renamed, y),
        "its outputs differ": on_columns(LogisticRegression()).fit(X, 1 - y),
    }
    for words, other in others.items():
        with pytest.raises(ArtefactError, match=words):
            CalibratedClassifier.load("cal.densecal", other)
        CalibratedClassifier.load("cal.densecal", other, check_classifier=False)
    assert loaded.predict_proba(X).shape == (400, 2)


def test_metadata_that_another_program_calls_sklearn_are_no_calibrated_classifier(densecal):
    X, y = patients()
    estimator = on_columns(LogisticRegression()).fit(X, y)
    calibrator = TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    calibrator.save("cal.densecal", metadata={"sklearn": {"version": "1.7"}})
    with pytest.raises(ArtefactError, match=r"was not written by CalibratedClassifier\.save"):
        CalibratedClassifier.load("cal.densecal", estimator)


def test_classifiers_of_texts_are_compared_by_their_steps_and_their_classifier(densecal):
    saved(make_pipeline(CountVectorizer(), LogisticRegression()), TEXTS, MOODS)
    with pytest.raises(ArtefactError, match=r"Pipeline\(CountVectorizer, L.*got a Pipeline\(TfidfVectorizer, L"):
        other = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, MOODS)
        CalibratedClassifier.load("cal.densecal", other)
    with pytest.raises(ArtefactError, match="its outputs differ"):
        other = make_pipeline(CountVectorizer(), LogisticRegression()).fit(TEXTS, 1 - MOODS)
        CalibratedClassifier.load("cal.densecal", other)


def test_classifiers_of_folds_in_another_order_are_noticed_if_their_probabilities_are_zero_or_one(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[y]
    X, _, y, _ = train_test_split(X, names, random_state=0, stratify=names)
    calibrated = CalibratedClassifier(make_pipeline(StandardScaler(), GaussianNB())).fit(X, y)
    calibrated.save(tmp_path / "cal.densecal")
    CalibratedClassifier.load(tmp_path / "cal.densecal", calibrated.estimators_)
    with pytest.raises(ArtefactError, match="its outputs differ"):
        CalibratedClassifier.load(tmp_path / "cal.densecal", calibrated.estimators_[::-1])


def test_a_classifier_whose_fitted_values_cannot_be_compared_is_loaded_with_a_warning(densecal):
    votes = [("counts", make_pipeline(CountVectorizer(), LogisticRegression()))]
    with pytest.warns(CalibrationWarning, match=r"only the type of the VotingClassifier\(Pipeline\(CountVectorizer, "):
        saved(VotingClassifier(votes, voting="soft"), TEXTS, MOODS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        estimator = VotingClassifier(votes, voting="soft").fit(TEXTS, MOODS)
        CalibratedClassifier.load("cal.densecal", estimator, check_classifier=False)


def test_percentages_are_no_outputs_of_a_fitted_estimator_whose_probabilities_are_fractions(densecal):
    X, y = patients()
    saved(on_columns(LogisticRegression()), X, y)
    pd.DataFrame({"risk": [0.3, 78.0]}).to_csv("risk.csv", index=False)
    answer = densecal(
        "apply", "cal.densecal", "--data", "risk.csv", "--scores", "risk", "--probabilities", "-o", "o.csv"
    )
    assert answer.code == 1 and "risk.csv: the scores must be fractions in [0, 1], as in the fit" in answer.err
