"""scikit-learn classifiers, calibrated: any estimator, any labels, every method, and DAC on layers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from densecal import METHODS, CalibratedClassifier
from densecal.errors import CalibrationWarning
from densecal.metrics import expected_calibration_error
from densecal.sklearn.responses import hidden_layers

pytestmark = [
    pytest.mark.filterwarnings("ignore::densecal.errors.CalibrationWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    return (X[:700], y[:700]), (X[700:1250], y[700:1250]), (X[1250:], y[1250:])


@pytest.fixture(scope="module")
def bayes(digits):
    return GaussianNB().fit(*digits[0])


@pytest.mark.parametrize("method", [name for name in METHODS if name != "dac"])
def test_every_method_without_features_calibrates_an_estimator(digits, bayes, method):
    _, val, (X, y) = digits
    calibrated = CalibratedClassifier(bayes, method).fit(*val)
    probabilities = calibrated.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    plain = expected_calibration_error(bayes.predict_proba(X), y)
    assert expected_calibration_error(probabilities, y) < plain
    if METHODS[method].accuracy_preserving:
        np.testing.assert_array_equal(calibrated.predict(X), bayes.predict(X))


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(max_iter=200),
        RandomForestClassifier(20, random_state=0),
        KNeighborsClassifier(5),
        LinearSVC(random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=50)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_any_classifier_works_with_or_without_probabilities(digits, estimator):
    train, val, (X, y) = digits
    estimator = clone(estimator).fit(*train)
    calibrated = CalibratedClassifier(estimator, "ets").fit(*val)
    np.testing.assert_array_equal(calibrated.predict(X), estimator.predict(X))
    assert expected_calibration_error(calibrated.predict_proba(X), y) < 0.08
    np.testing.assert_allclose(calibrated.confidence(X), calibrated.predict_proba(X).max(axis=1))


@pytest.mark.parametrize("estimator", [LogisticRegression(), LinearSVC(random_state=0)], ids=["proba", "decision"])
def test_two_classes_with_names_keep_their_names(estimator):
    X, y = load_iris(return_X_y=True)
    X, names = X[50:], np.where(y[50:] == 1, "versicolor", "virginica")
    order = np.random.default_rng(0).permutation(100)
    X, names = X[order], names[order]
    estimator = estimator.fit(X[:50], names[:50])
    calibrated = CalibratedClassifier(estimator, "ts").fit(X[50:], names[50:])
    assert list(calibrated.classes_) == ["versicolor", "virginica"]
    np.testing.assert_array_equal(calibrated.predict(X), estimator.predict(X))
    assert calibrated.score(X[50:], names[50:]) == estimator.score(X[50:], names[50:])


@pytest.fixture(scope="module")
def network(digits):
    return MLPClassifier((24, 16), activation="tanh", max_iter=60, random_state=0).fit(*digits[0])


def test_hidden_layers_are_what_the_network_computes(digits, network):
    X = digits[2][0]
    layers = hidden_layers(network, X)
    assert {name: values.shape[1] for name, values in layers.items()} == {"hidden1": 24, "hidden2": 16}
    scores = layers["hidden2"] @ network.coefs_[-1] + network.intercepts_[-1]
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax, network.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("method", ["dac", "dac+ets", "dac+spl"])
def test_dac_finds_the_layers_of_a_perceptron_by_itself(digits, network, method):
    train, val, (X, _) = digits
    calibrated = CalibratedClassifier(network, method).fit(*val, X_train=train[0])
    dac = calibrated.calibrator_ if method == "dac" else calibrated.calibrator_.stages[0]
    assert dac.layers_ == ["hidden1", "hidden2", "logits"]
    assert dac.bank.k == 10
    np.testing.assert_array_equal(calibrated.predict(X), network.predict(X))


def test_a_perceptron_at_the_end_of_a_pipeline_is_measured_behind_the_other_steps(digits):
    train, val, (X, _) = digits
    pipeline = make_pipeline(StandardScaler(), MLPClassifier((12,), max_iter=30, random_state=0)).fit(*train)
    calibrated = CalibratedClassifier(pipeline, "dac", k=3).fit(*val, X_train=train[0])
    dac = calibrated.calibrator_
    assert dac.layers_ == ["hidden1", "logits"] and dac.bank.k == 3
    scaled = pipeline[0].transform(train[0])
    expected = hidden_layers(pipeline[-1], scaled)["hidden1"]
    np.testing.assert_allclose(
        dac.bank["hidden1"], expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6
    )
    np.testing.assert_array_equal(calibrated.predict(X), pipeline.predict(X))


def test_dac_measures_features_that_the_user_gives(digits, bayes):
    train, val, (X, _) = digits
    calibrated = CalibratedClassifier(bayes, "dac", features=lambda X: {"pixels": X}).fit(*val, X_train=train[0])
    far = 16 - X
    dac = calibrated.calibrator_
    near_distance = dac.bank.distances({"pixels": X}).mean()
    assert dac.bank.distances({"pixels": far}).mean() > near_distance
    assert calibrated.predict_proba(far).shape == (len(far), 10)


def test_a_layer_that_the_bank_lacks_is_ignored(digits, bayes):
    train, val, _ = digits

    def features(X):
        return {"pixels": X} if len(X) == len(train[0]) else {"pixels": X, "wider": np.hstack([X, X])}

    calibrated = CalibratedClassifier(bayes, "dac", features=features).fit(*val, X_train=train[0])
    assert calibrated.calibrator_.bank.layers == ("pixels",)


@pytest.mark.parametrize("kind", ["numbers", "answers"])
def test_a_fit_on_the_training_samples_of_the_estimator_is_noticed(kind):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(3000, 12))
    X = numbers if kind == "numbers" else 1.0 * (numbers > 0.5)
    y = (numbers[:, 0] + rng.normal(size=3000) > 0).astype(int)
    forest = RandomForestClassifier(10, random_state=0).fit(X[:2000], y[:2000])
    calibrated = CalibratedClassifier(forest, "dac", features=lambda X: {"columns": X})
    with pytest.warns(CalibrationWarning, match="validation samples are probably in the training data"):
        calibrated.fit(X[:2000], y[:2000], X_train=X[:2000])
    if kind == "answers":
        known = {tuple(row) for row in X[:2000]}
        assert np.mean([tuple(row) in known for row in X[2000:]]) > 0.3, "other people give the same answers"
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*are probably in the training data")
        calibrated.fit(X[2000:], y[2000:], X_train=X[:2000])
        CalibratedClassifier(RandomForestClassifier(10), "dac", features=calibrated.features, cv=3).fit(X, y)


def test_training_samples_and_labels_of_other_samples_are_noticed_without_features():
    """The default, beta, made the confidence of a forest 98 % on its training samples; 84 % were right later."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    y = np.where(X[:, 0] + rng.normal(size=2000) > 0, "up", "down")
    forest = RandomForestClassifier(50, random_state=0).fit(X[:1000], y[:1000])
    with pytest.warns(CalibrationWarning, match="right on every validation sample. If it was trained on these"):
        CalibratedClassifier(forest).fit(X[:1000], y[:1000])
    with pytest.warns(CalibrationWarning, match="no better than chance"):
        CalibratedClassifier(forest).fit(X[1000:], rng.permutation(y[1000:]))
    with pytest.warns(CalibrationWarning, match="Class down is not in the validation set"):
        CalibratedClassifier(forest).fit(X[1000:][y[1000:] == "up"], y[1000:][y[1000:] == "up"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        CalibratedClassifier(forest).fit(X[1000:], y[1000:])
        CalibratedClassifier(forest, cv=3).fit(X[:1000], y[:1000])


def test_dac_asks_the_estimator_once_for_a_prediction(digits, bayes, network, monkeypatch):
    train, val, (X, _) = digits
    for estimator, features in ((bayes, lambda X: {"pixels": X}), (network, None)):
        calibrated = CalibratedClassifier(estimator, "dac", features=features).fit(*val, X_train=train[0])
        asked, predict_proba = [], type(estimator).predict_proba
        monkeypatch.setattr(
            type(estimator), "predict_proba", lambda self, X, ask=predict_proba, to=asked: to.append(1) or ask(self, X)
        )
        calibrated.predict_proba(X)
        assert len(asked) == 1


def test_dac_without_layers_or_training_data_says_what_to_pass(digits, bayes, network):
    train, val, _ = digits
    with pytest.raises(ValueError, match=r"GaussianNB has no hidden layers. Pass features="):
        CalibratedClassifier(bayes, "dac").fit(*val, X_train=train[0])
    with pytest.raises(ValueError, match=r"pass fit\(X, y, X_train=\.\.\.\)"):
        CalibratedClassifier(network, "dac+ets").fit(*val)


def test_wrong_labels_an_unfitted_estimator_and_one_without_scores_are_explained(digits, bayes):
    _, (X, y), _ = digits
    with pytest.raises(ValueError, match=r"y holds the classes \[10, 11\], but the estimator was fitted on"):
        CalibratedClassifier(bayes).fit(X, np.where(y == 0, 10, np.where(y == 1, 11, y)))
    with pytest.raises(ValueError, match=r"y must have shape \(n_samples,\)"):
        CalibratedClassifier(bayes).fit(X, np.eye(10)[y])
    with pytest.raises(NotFittedError):
        CalibratedClassifier(bayes).predict(X)
    with pytest.raises(ValueError, match="Did you mean 'ets'"):
        CalibratedClassifier(bayes, "etz").fit(X, y)


def test_it_is_a_scikit_learn_estimator(bayes):
    calibrated = CalibratedClassifier(bayes, "dac+ets", k=7)
    copied = clone(calibrated)
    assert copied.get_params(deep=False).keys() == {
        "estimator", "method", "cv", "features", "k", "loss", "n_jobs", "ensemble",
    }  # fmt: skip
    assert copied.k == 7 and copied.method == "dac+ets"
    assert calibrated.set_params(method="ts").method == "ts"
    assert "CalibratedClassifier" in repr(calibrated)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return (X[:300], y[:300]), (X[300:450], y[300:450]), (X[450:], y[450:])


def test_a_clone_freezes_the_fitted_estimator_so_that_searches_and_cross_validation_work(cancer):
    (X, y), (X_val, y_val), _ = cancer
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    calibrated = CalibratedClassifier(forest, method="ts")
    assert clone(calibrated).estimator.estimator is forest
    scores = cross_val_score(calibrated, X_val, y_val, scoring="neg_log_loss", error_score="raise")
    assert np.isfinite(scores).all()
    search = GridSearchCV(calibrated, {"method": ["ts", "ets"]}, scoring="neg_log_loss", cv=3, error_score="raise")
    assert search.fit(X_val, y_val).best_params_["method"] in ("ts", "ets")


def test_the_layers_of_a_network_are_found_inside_searches_and_frozen_estimators(cancer):
    frozen = pytest.importorskip("sklearn.frozen", reason="FrozenEstimator came with scikit-learn 1.6")
    (X, y), (X_val, y_val), _ = cancer
    network = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=200, random_state=0))
    search = GridSearchCV(network, {"mlpclassifier__alpha": [1e-4]}, cv=2).fit(X, y)
    for estimator in (search, frozen.FrozenEstimator(search)):
        calibrated = CalibratedClassifier(estimator, method="dac", k=5).fit(X_val, y_val, X_train=X)
        assert calibrated.calibrator_.layers_ == ["hidden1"]


def test_a_network_of_two_classes_without_a_hidden_layer_is_measured_at_its_output(cancer):
    (X, y), (X_val, y_val), (X_test, _) = cancer
    network = make_pipeline(StandardScaler(), MLPClassifier((), max_iter=200, random_state=0)).fit(X, y)
    calibrated = CalibratedClassifier(network, method="dac", k=5).fit(X_val, y_val, X_train=X)
    assert calibrated.calibrator_.layers_ == ["logits"]
    np.testing.assert_array_equal(calibrated.predict(X_test), network.predict(X_test))


def test_two_classes_do_not_end_at_certainty(cancer):
    (X, y), (X_val, y_val), (X_test, y_test) = cancer
    network = make_pipeline(StandardScaler(), MLPClassifier((20,), max_iter=300, random_state=0)).fit(X, y)
    losses = {}
    for method in ("ts", "dac"):
        calibrated = CalibratedClassifier(network, method=method).fit(X_val, y_val, X_train=X)
        losses[method] = log_loss(y_test, calibrated.predict_proba(X_test))
    assert losses["dac"] < 1.5 * losses["ts"]


def test_scores_of_pairs_of_classes_are_refused():
    X, y = load_iris(return_X_y=True)
    machine = SVC(decision_function_shape="ovo").fit(X[::2], y[::2])
    with pytest.raises(ValueError, match=r"SVC's decision_function returns 3 scores for 3 classes.*'ovr'"):
        CalibratedClassifier(machine, method="ts").fit(X[1::2], y[1::2])


def test_an_estimator_that_decides_by_a_threshold_is_told_of(cancer):
    (X, y), (X_val, y_val), _ = cancer

    class Cautious(GaussianNB):
        def predict(self, X):
            return np.zeros(len(X), dtype=int)

    with pytest.warns(CalibrationWarning, match="Cautious predicts its most probable class for only") as caught:
        CalibratedClassifier(Cautious().fit(X, y), method="ts").fit(X_val, y_val)
    assert caught[0].filename == __file__


def test_an_estimator_without_predictions_is_calibrated(cancer):
    (X, y), (X_val, y_val), (X_test, _) = cancer

    class Scores(BaseEstimator):
        def fit(self, X, y):
            self.inner_ = GaussianNB().fit(X, y)
            self.classes_ = self.inner_.classes_
            return self

        def predict_proba(self, X):
            return self.inner_.predict_proba(X)

    calibrated = CalibratedClassifier(Scores().fit(X, y), method="ts").fit(X_val, y_val)
    assert calibrated.predict(X_test).shape == (len(X_test),)


def test_an_estimator_whose_predictions_are_a_column_agrees_with_itself(cancer):
    (X, y), (X_val, y_val), (X_test, _) = cancer

    class Column(GaussianNB):
        def predict(self, X):
            return super().predict(X)[:, None]

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Column predicts its most probable class for only")
        calibrated = CalibratedClassifier(Column().fit(X, y), method="ts").fit(X_val, y_val)
    assert calibrated.predict(X_test).shape == (len(X_test),)


def test_shifted_samples_fit_dac_to_stay_calibrated_under_shift(digits):
    (X, y), (X_val, y_val), _ = digits
    network = MLPClassifier((32,), max_iter=60, random_state=0).fit(X, y)
    noise = np.random.default_rng(0).normal(0, 4, X_val.shape)
    calibrated = CalibratedClassifier(network, method="dac")
    calibrated.fit(X_val, y_val, X_train=X, X_shifted=X_val + noise, y_shifted=y_val)
    assert calibrated.calibrator_.shift_fitted
    with pytest.raises(ValueError, match="must be passed together"):
        calibrated.fit(X_val, y_val, X_train=X, X_shifted=X_val)
    with pytest.raises(ValueError, match="is not fitted on shifted data"):
        CalibratedClassifier(network, method="ts").fit(X_val, y_val, X_shifted=X_val, y_shifted=y_val)


def test_the_accuracy_on_unlabelled_samples_is_estimated_from_named_domains(digits):
    (X, y), (X_val, y_val), (X_test, y_test) = digits
    network = MLPClassifier((32,), max_iter=60, random_state=0).fit(X, y)
    rng = np.random.default_rng(0)
    shifted = {f"noise/{scale}": X_val + rng.normal(0, scale, X_val.shape) for scale in (2, 4, 6)}
    calibrated = CalibratedClassifier(network, method="dac")
    calibrated.fit(X_val, y_val, X_train=X, X_shifted=shifted, y_shifted=dict.fromkeys(shifted, y_val))
    noisy = X_test + rng.normal(0, 5, X_test.shape)
    found = calibrated.estimate_accuracy(noisy)
    assert found.low <= network.score(noisy, y_test) <= found.high
    adapted = calibrated.adapted_to(noisy)
    assert abs(adapted.confidence(noisy).mean() - found.accuracy) < 0.05
    assert np.array_equal(adapted.predict(noisy), calibrated.predict(noisy))
    assert calibrated.calibrator_.adaptation_ is None
    once = clone(calibrated).fit(X_val, y_val, X_train=X, X_shifted=shifted, y_shifted=y_val)
    assert once.estimate_accuracy(noisy).accuracy == found.accuracy, "one array of labels stands for all domains"
    with pytest.raises(ValueError, match="two mappings with the same names"):
        calibrated.fit(X_val, y_val, X_train=X, X_shifted=X_val, y_shifted={"noise": y_val})
    for several in ([X_val, X_val], [X_val] * len(y_val)):
        with pytest.raises(ValueError, match="two mappings with the same names"):
            calibrated.fit(X_val, y_val, X_train=X, X_shifted=several, y_shifted=y_val)
    shorter = {**shifted, "cut": X_val[:50]}
    with pytest.raises(ValueError, match=r"X_shifted\['cut'\] has 50 samples, but y_shifted has \d+ labels"):
        calibrated.fit(X_val, y_val, X_train=X, X_shifted=shorter, y_shifted=y_val)
    with pytest.raises(ValueError, match="to a CalibratedClassifier X_shifted="):
        CalibratedClassifier(network, method="dac").fit(X_val, y_val, X_train=X).estimate_accuracy(noisy)
    with pytest.raises(ValueError, match="does not measure distances"):
        CalibratedClassifier(GaussianNB()).fit(X, y).estimate_accuracy(noisy)


@pytest.mark.parametrize("fitted", [False, True])
def test_a_missing_label_is_named_by_its_row(fitted):
    import pandas as pd

    X, names = np.arange(40.0).reshape(20, 2), ["cat", "dog"] * 10
    bayes = GaussianNB().fit(X, names) if fitted else GaussianNB()
    names[3] = names[7] = pd.NA
    with pytest.raises(ValueError, match=r"y has no label in row 3, counted from 0\. Remove such rows \(2\)"):
        CalibratedClassifier(bayes).fit(X, pd.Series(names, dtype="string"))
