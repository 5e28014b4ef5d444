"""CalibratedClassifier as the rest of scikit-learn uses it: unfitted, cloned, searched, weighted, saved."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import sklearn
from densecal import BetaCalibration, CalibratedClassifier, load
from densecal.errors import ArtefactError, CalibrationWarning
from densecal.shift import table_domains

pytestmark = [
    pytest.mark.filterwarnings("ignore::densecal.errors.CalibrationWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@parametrize_with_checks([CalibratedClassifier(LogisticRegression(C=1))])
def test_scikit_learn_accepts_it_as_an_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return (X[:400], y[:400]), (X[400:], y[400:])


@pytest.mark.parametrize("routing", [False, True])
def test_without_an_estimator_it_calibrates_the_same_as_scikit_learns(cancer, routing):
    (X, y), (X_test, y_test) = cancer
    weights = np.where(y, 1, 2)
    with sklearn.config_context(enable_metadata_routing=routing):
        calibrated = clone(CalibratedClassifier(cv=3)).fit(X, y, sample_weight=weights)
        default = CalibratedClassifierCV(cv=3).fit(X, y, sample_weight=weights)
    for ours, theirs in zip(calibrated.estimators_, default.calibrated_classifiers_, strict=True):
        np.testing.assert_array_equal(ours.coef_, theirs.estimator.coef_)
    assert calibrated.score(X_test, y_test) > 0.8


@pytest.fixture(scope="module")
def forest():
    return RandomForestClassifier(20, random_state=0)


def test_an_unfitted_estimator_is_fitted_by_cross_validation_and_stays_unfitted(cancer, forest):
    (X, y), (X_test, y_test) = cancer
    calibrated = CalibratedClassifier(forest, cv=3, ensemble=False).fit(X, y)
    assert not hasattr(forest, "estimators_")
    np.testing.assert_array_equal(calibrated.estimator_.predict_proba(X), clone(forest).fit(X, y).predict_proba(X))
    held_out = cross_val_predict(forest, X, y, cv=3, method="predict_proba")
    floor = held_out[held_out > 0].min() / 2
    assert calibrated.probability_floor_ == floor
    expected = BetaCalibration().fit(np.log(np.maximum(held_out, floor)), y)
    np.testing.assert_allclose(calibrated.calibrator_.positive_slopes_, expected.positive_slopes_, rtol=1e-3)
    plain = log_loss(y_test, clone(forest).fit(X, y).predict_proba(X_test))
    assert log_loss(y_test, calibrated.predict_proba(X_test)) < plain


def test_copies_are_held_out_with_their_rows_so_the_estimated_accuracy_is_less_wrong():
    X, y = make_classification(3000, 20, n_informative=8, n_classes=3, flip_y=0.2, random_state=1)
    new = table_domains(X[1000:], seed=1)
    neighbours = make_pipeline(StandardScaler(), KNeighborsClassifier(1))
    error = {}
    for copies in (True, False):
        calibrated = CalibratedClassifier(neighbours, "dac", features="standardscaler")
        domains = table_domains(X[:1000])
        calibrated.fit(X[:1000], y[:1000], X_shifted=domains, y_shifted=y[:1000], shifted_copies=copies)
        errors = [calibrated.estimate_accuracy(one).accuracy - calibrated.score(one, y[1000:]) for one in new.values()]
        error[copies] = abs(np.mean(errors))
    assert error[True] < error[False] - 0.005


@pytest.mark.parametrize("estimator", [SVC(), RandomForestClassifier(50, random_state=0)], ids=["svc", "forest"])
def test_two_classes_are_at_least_as_good_as_the_sigmoid(estimator, cancer):
    (X, y), (X_test, y_test) = cancer
    sigmoid = CalibratedClassifierCV(estimator, ensemble=False).fit(X, y)
    ours = CalibratedClassifier(estimator, ensemble=False).fit(X, y)
    assert log_loss(y_test, ours.predict_proba(X_test)) < 1.02 * log_loss(y_test, sigmoid.predict_proba(X_test))


@pytest.mark.parametrize(("theirs", "ours"), [("sigmoid", "platt"), ("isotonic", "ir"), ("temperature", "ts")])
def test_scikit_learns_names_of_methods_are_known(cancer, theirs, ours):
    (X, y), _ = cancer
    assert CalibratedClassifier(GaussianNB(), method=theirs, cv=5).fit(X, y).calibrators_[0].short_name == ours


def test_names_of_columns_and_classes_are_kept(cancer):
    (X, y), _ = cancer
    names = np.where(y, "benign", "malignant")
    frame = X.assign(site=np.where(X.index % 2, "a", "b"))
    columns = make_column_transformer((OneHotEncoder(), ["site"]), remainder=StandardScaler())
    calibrated = CalibratedClassifier(make_pipeline(columns, LogisticRegression())).fit(frame, names)
    assert list(calibrated.classes_) == ["benign", "malignant"]
    assert list(calibrated.feature_names_in_) == list(frame.columns) and calibrated.n_features_in_ == 31
    assert set(calibrated.predict(frame)) == {"benign", "malignant"}


def test_a_search_over_the_estimators_parameters_tries_them_and_leaves_the_users_model_alone(cancer):
    (X, y), _ = cancer
    bayes = GaussianNB()
    grid = {"estimator__var_smoothing": [1e-9, 1e3], "method": ["ts", "beta"]}
    search = GridSearchCV(CalibratedClassifier(bayes), grid, scoring="neg_log_loss", cv=2).fit(X, y)
    scores = pd.DataFrame(search.cv_results_).groupby("param_estimator__var_smoothing")["mean_test_score"].max()
    assert scores[1e-9] != scores[1e3]
    assert bayes.var_smoothing == 1e-9 and not hasattr(bayes, "theta_")


def test_a_search_over_the_parameters_of_a_fitted_estimator_is_refused(cancer):
    (X, y), _ = cancer
    bayes = GaussianNB().fit(X[:200], y[:200])
    for estimator in (bayes, FrozenEstimator(bayes)):
        search = GridSearchCV(CalibratedClassifier(estimator), {"estimator__var_smoothing": [1e-9, 1.0]}, cv=2)
        with pytest.raises(ValueError, match="estimator__var_smoothing has no effect: the estimator is fitted"):
            search.fit(X[200:], y[200:])
    assert bayes.var_smoothing == 1e-9
    again = GridSearchCV(CalibratedClassifier(bayes, cv=2), {"estimator__var_smoothing": [1e-9, 1.0]}, cv=2)
    again.fit(X[200:], y[200:])
    assert bayes.var_smoothing == 1e-9


def test_it_votes_with_others_and_ends_a_pipeline(cancer):
    (X, y), (X_test, _) = cancer
    calibrated = CalibratedClassifier(GaussianNB())
    voting = VotingClassifier([("a", calibrated), ("b", LogisticRegression())], voting="soft").fit(X, y)
    assert voting.predict_proba(X_test).shape == (len(X_test), 2)
    assert make_pipeline(StandardScaler(), calibrated).fit(X, y).score(X_test, y.iloc[: len(X_test)]) > 0


def test_weights_reach_the_estimator_and_the_calibrator(cancer):
    (X, y), _ = cancer
    X, y = X.to_numpy()[:200], y.to_numpy()[:200]
    weights = np.where(y == 1, 5.0, 1.0)
    folds = list(StratifiedKFold(3).split(X, y))
    plain = CalibratedClassifier(GaussianNB(), cv=folds, ensemble=False).fit(X, y).predict_proba(X)[:, 1].mean()
    weighted = CalibratedClassifier(GaussianNB(), cv=folds, ensemble=False).fit(X, y, sample_weight=weights)
    assert weighted.predict_proba(X)[:, 1].mean() > plain
    expected = GaussianNB().fit(X, y, sample_weight=weights).class_prior_
    np.testing.assert_allclose(weighted.estimator_.class_prior_, expected)
    fitted = GaussianNB().fit(X[::2], y[::2])
    with pytest.raises(ValueError, match="'ts' takes no sample_weight"):
        CalibratedClassifier(fitted, "ts").fit(X[1::2], y[1::2], sample_weight=weights[1::2])
    with pytest.warns(CalibrationWarning, match="'ts' takes no sample_weight, so only the estimator"):
        CalibratedClassifier(GaussianNB(), "ts").fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("method", ["beta", "platt", "dir"])
def test_a_weight_of_two_is_a_sample_given_twice(method):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(0, 2, (300, 3)), rng.integers(0, 3, 300)
    from densecal import make_calibrator

    twice = rng.integers(1, 3, 300)
    penalties = {"off_diagonal_penalty": 0.1, "bias_penalty": 0.1} if method == "dir" else {}
    weighted = make_calibrator(method).set_params(**penalties).fit(logits, labels, sample_weight=twice)
    repeated = make_calibrator(method).set_params(**penalties).fit(logits.repeat(twice, 0), labels.repeat(twice))
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-4)


def test_what_is_saved_is_the_calibration_and_joins_the_users_estimator(cancer, forest, tmp_path):
    (X, y), (X_test, _) = cancer
    names = np.where(y, "benign", "malignant")
    calibrated = CalibratedClassifier(forest, ensemble=False).fit(X, names)
    calibrated.save(tmp_path / "forest.densecal", metadata={"origin": "clinic"})
    loaded = CalibratedClassifier.load(tmp_path / "forest.densecal", calibrated.estimator_)
    np.testing.assert_array_equal(loaded.predict_proba(X_test), calibrated.predict_proba(X_test))
    np.testing.assert_array_equal(loaded.predict(X_test), calibrated.predict(X_test))
    assert load(tmp_path / "forest.densecal").short_name == "beta"
    with pytest.raises(ValueError, match=r"classes \['benign', 'malignant'\], got"):
        CalibratedClassifier.load(tmp_path / "forest.densecal", clone(forest).fit(X, y))
    with pytest.raises(ValueError, match="estimator must be fitted"):
        CalibratedClassifier.load(tmp_path / "forest.densecal", forest)
    calibrated.calibrator_.save(tmp_path / "alone.densecal")
    with pytest.raises(ArtefactError, match=r"alone.densecal was not written by CalibratedClassifier.save"):
        CalibratedClassifier.load(tmp_path / "alone.densecal", calibrated.estimator_)


@pytest.mark.parametrize("as_frame", [True, False])
def test_other_estimators_than_those_saved_are_rejected(cancer, forest, tmp_path, as_frame):
    (X, y), (X_test, _) = cancer
    X, X_test = (X, X_test) if as_frame else (X.to_numpy(), X_test.to_numpy())
    calibrated, path = CalibratedClassifier(forest, cv=3).fit(X, y), tmp_path / "forest.densecal"
    calibrated.save(path)
    flipped = [clone(forest).fit(X, 1 - y) for _ in range(3)]
    for others in (calibrated.estimators_[::-1], flipped):
        with pytest.raises(ArtefactError, match="does not belong to this RandomForestClassifier: its outputs differ"):
            CalibratedClassifier.load(path, others)
        assert CalibratedClassifier.load(path, others, check_classifier=False).predict_proba(X_test).shape[1] == 2
    copies = pickle.loads(pickle.dumps(calibrated.estimators_))
    loaded = CalibratedClassifier.load(path, copies)
    np.testing.assert_array_equal(loaded.predict_proba(X_test), calibrated.predict_proba(X_test))


def test_estimators_that_take_no_rows_of_numbers_are_saved_and_loaded(tmp_path):
    texts, labels = ["good film", "bad film"] * 20, [1, 0] * 20
    calibrated = CalibratedClassifier(make_pipeline(CountVectorizer(), LogisticRegression()), ensemble=False)
    calibrated.fit(texts, labels).save(tmp_path / "texts.densecal")
    loaded = CalibratedClassifier.load(tmp_path / "texts.densecal", calibrated.estimator_)
    np.testing.assert_array_equal(loaded.predict_proba(texts), calibrated.predict_proba(texts))


def test_the_models_of_all_folds_are_averaged_each_with_its_calibrator(cancer, forest):
    (X, y), (X_test, _) = cancer
    calibrated = CalibratedClassifier(forest, cv=3).fit(X, y)
    theirs = CalibratedClassifierCV(forest, cv=3).fit(X, y)
    parts = []
    for estimator, calibrator, other in zip(
        calibrated.estimators_, calibrated.calibrators_, theirs.calibrated_classifiers_, strict=True
    ):
        shares = estimator.predict_proba(X_test)
        np.testing.assert_array_equal(shares, other.estimator.predict_proba(X_test))
        parts.append(calibrator.predict_proba(np.log(np.maximum(shares, calibrated.probability_floor_))))
    np.testing.assert_allclose(calibrated.predict_proba(X_test), np.mean(parts, axis=0))
    np.testing.assert_array_equal(calibrated.confidence(X_test), calibrated.predict_proba(X_test).max(axis=1))
    with pytest.raises(AttributeError, match="There are 3, one per fold: see estimators_, or use ensemble=False"):
        _ = calibrated.estimator_
    with pytest.raises(ValueError, match="measures distances of one classifier: use ensemble=False"):
        CalibratedClassifier(forest, "dac", features=StandardScaler(), ensemble=True).fit(X, y)


def test_a_fold_without_a_class_shares_the_calibrator_of_all(cancer):
    (X, y), _ = cancer
    alone = np.flatnonzero(y == 1)[:50]
    folds = [(np.setdiff1d(np.arange(len(y)), part), part) for part in (alone, np.arange(200, 400))]
    calibrated = CalibratedClassifier(GaussianNB(), "platt", cv=folds).fit(X, y)
    first, second = calibrated.calibrators_
    assert len(calibrated.estimators_) == 2
    np.testing.assert_array_equal(first.predict_proba(3 * np.eye(2)), second.predict_proba(3 * np.eye(2)))


def test_an_ensemble_is_saved_without_its_models_and_loaded_with_all_of_them(cancer, forest, tmp_path):
    (X, y), (X_test, _) = cancer
    calibrated = CalibratedClassifier(forest, cv=3).fit(X, y)
    calibrated.save(tmp_path / "forest.densecal")
    loaded = CalibratedClassifier.load(tmp_path / "forest.densecal", calibrated.estimators_)
    np.testing.assert_array_equal(loaded.predict_proba(X_test), calibrated.predict_proba(X_test))
    assert len(clone(loaded).fit(X, y).estimators_) == 3
    with pytest.raises(ValueError, match="3 fitted classifiers, one per fold, got 1. Pass the list estimators_"):
        CalibratedClassifier.load(tmp_path / "forest.densecal", calibrated.estimators_[0])
    with pytest.raises(ArtefactError, match="holds 3 calibrators, one for each classifier of an ensemble"):
        load(tmp_path / "forest.densecal")


@pytest.mark.parametrize("features", ["standardscaler", StandardScaler(), None], ids=["step", "transformer", "layers"])
def test_dac_measures_held_out_samples_from_their_own_folds(features, tmp_path):
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    network = make_pipeline(StandardScaler(), MLPClassifier((16,), max_iter=60, random_state=0))
    calibrated = CalibratedClassifier(network, "dac", features=features, cv=3).fit(X, y)
    assert len(calibrated.calibrator_.bank) == 600
    layers = {"standardscaler"} if features is not None else {"hidden1", "logits"}
    assert set(calibrated.calibrator_.layers_) == layers
    again = pickle.loads(pickle.dumps(calibrated))
    np.testing.assert_array_equal(again.predict_proba(X), calibrated.predict_proba(X))
    if not isinstance(features, StandardScaler):
        calibrated.save(tmp_path / "dac.densecal")
        loaded = CalibratedClassifier.load(tmp_path / "dac.densecal", calibrated.estimator_)
        np.testing.assert_allclose(loaded.predict_proba(X), calibrated.predict_proba(X), atol=1e-4)


def test_a_fitted_transformer_keeps_its_fit_in_clones(cancer):
    (X, y), (X_val, y_val) = cancer
    scaler = StandardScaler().fit(X)
    bayes = GaussianNB().fit(X, y)
    copied = clone(CalibratedClassifier(bayes, "dac", features=scaler, k=5))
    assert copied.fit(X_val, y_val, X_train=X).calibrator_.layers_ == ["frozenestimator"]


def test_what_cannot_be_cross_validated_is_explained(cancer):
    (X, y), _ = cancer
    with pytest.raises(ValueError, match="got 'prefit'. A fitted estimator needs no cv"):
        CalibratedClassifier(GaussianNB().fit(X, y), cv="prefit").fit(X, y)
    with pytest.raises(ValueError, match=r"The class 0 is missing from the training part"):
        CalibratedClassifier(GaussianNB(), cv=KFold(2)).fit(X[:40], [0] * 20 + [1] * 20)
    with pytest.raises(ValueError, match="With cross-validation the training samples are X"):
        CalibratedClassifier(GaussianNB()).fit(X, y, X_train=X)
    with pytest.raises(ValueError, match="'standardscaler' names a step of a pipeline, but estimator is a GaussianNB"):
        CalibratedClassifier(GaussianNB(), "dac", features="standardscaler").fit(X, y)
    with pytest.raises(ValueError, match="at least two classes"):
        CalibratedClassifier(GaussianNB()).fit(X, [1] * len(X))


def test_routed_metadata_reach_the_estimator_and_the_splitter(cancer):
    (X, y), _ = cancer
    from sklearn.model_selection import GroupKFold

    groups = np.arange(len(X)) % 7
    with sklearn.config_context(enable_metadata_routing=True):
        bayes = GaussianNB().set_fit_request(sample_weight=True)
        calibrated = CalibratedClassifier(bayes, cv=GroupKFold(3)).set_fit_request(sample_weight=True)
        calibrated.fit(X, y, sample_weight=np.where(y == 1, 9.0, 1.0), groups=groups)
    assert calibrated.estimators_[0].class_prior_[1] > 0.9


def test_weights_that_are_zero_in_a_whole_fold_are_told_that_it_is_a_fold():
    X, y = load_breast_cancer(return_X_y=True)
    weights = np.where(np.arange(len(y)) < 200, 0.0, 1.0)
    calibrated = CalibratedClassifier(GaussianNB(), "platt", cv=KFold(3))
    with pytest.raises(ValueError, match=r"a cross-validation fold holds out, but one fold has none.*ensemble=False"):
        calibrated.fit(X, y, sample_weight=weights)
    calibrated.set_params(ensemble=False).fit(X, y, sample_weight=weights)


def test_with_cv_a_fitted_estimator_is_refitted_on_its_training_data_as_in_scikit_learn():
    X, y = load_breast_cancer(return_X_y=True)
    fitted = RandomForestClassifier(5, random_state=0).fit(X, y)
    ours = CalibratedClassifier(fitted, cv=5).fit(X, y)
    theirs = CalibratedClassifierCV(fitted, cv=5).fit(X, y)
    for one, other in zip(ours.estimators_, theirs.calibrated_classifiers_, strict=True):
        np.testing.assert_array_equal(one.predict_proba(X), other.estimator.predict_proba(X))


def test_a_calibration_is_not_loaded_onto_classifiers_of_another_kind(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    CalibratedClassifier(LogisticRegression(max_iter=5000).fit(X, y)).fit(X, y).save(tmp_path / "cal.densecal")
    with pytest.raises(ArtefactError, match="belongs to a LogisticRegression, got a RandomForestClassifier"):
        CalibratedClassifier.load(tmp_path / "cal.densecal", RandomForestClassifier(n_estimators=5).fit(X, y))


def test_a_calibration_of_a_clone_is_loaded_onto_the_estimator_that_it_froze(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    model = LogisticRegression(max_iter=5000).fit(X, y)
    calibrated = clone(CalibratedClassifier(model)).fit(X, y)
    calibrated.save(tmp_path / "cal.densecal")
    loaded = CalibratedClassifier.load(tmp_path / "cal.densecal", model)
    np.testing.assert_allclose(loaded.predict_proba(X), calibrated.predict_proba(X))
