from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import logsumexp

from densecal.calibrators import matrix_scaling
from densecal.calibrators.matrix_scaling import MatrixScaling, WeightedSamples, matrix_loss
from densecal.calibrators.vector_scaling import VectorScaling
from densecal.errors import CalibrationWarning


def plain_objective(parameters, logits, labels, off_diagonal_penalty, bias_penalty):
    classes = logits.shape[1]
    matrix, biases = parameters[:-classes].reshape(classes, classes), parameters[-classes:]
    scores = logits @ matrix.T + biases
    nll = np.mean(logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels])
    off_diagonal = matrix[~np.eye(classes, dtype=bool)]
    return nll + off_diagonal_penalty * np.mean(off_diagonal**2) + bias_penalty * np.mean(biases**2)


@pytest.fixture(scope="module")
def three_classes(make_overconfident):
    logits, labels = make_overconfident(400, 3)
    return logits - logits.mean(axis=1, keepdims=True), labels


def test_the_loss_is_the_published_one_and_its_gradient_that_of_finite_differences(three_classes):
    logits, labels = three_classes
    samples = WeightedSamples(logits, labels, np.ones(len(labels)))
    parameters = np.random.default_rng(2).normal(size=12)
    penalties = 0.6, 1.5  # means over 6 off-diagonal weights and 3 biases
    loss = matrix_loss(parameters, samples, 0.1, 0.5)[0]
    assert loss == pytest.approx(plain_objective(parameters, logits, labels, *penalties))
    error = check_grad(
        lambda x: plain_objective(x, logits, labels, *penalties),
        lambda x: matrix_loss(x, samples, 0.1, 0.5)[1],
        parameters,
    )
    assert error < 1e-5


def test_with_given_penalties_the_fit_reaches_scipys_optimum(three_classes):
    logits, labels = three_classes
    reference = minimize(plain_objective, np.append(np.eye(3), np.zeros(3)), args=(logits, labels, 0.6, 1.5), tol=1e-9)
    calibrator = MatrixScaling(off_diagonal_penalty=0.6, bias_penalty=1.5).fit(logits, labels)
    ours = np.append(calibrator.matrix_, calibrator.biases_)
    assert plain_objective(ours, logits, labels, 0.6, 1.5) <= reference.fun + 1e-6
    np.testing.assert_allclose(ours, reference.x, atol=5e-3)
    assert calibrator.off_diagonal_penalty_ == pytest.approx(0.6)
    assert calibrator.bias_penalty_ == pytest.approx(1.5)


def test_it_undoes_a_confusion_that_no_diagonal_can(make_overconfident):
    honest, labels = make_overconfident(4000, 3, sharpness=1.0)
    mixed = honest @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.0], [0.3, 0.0, 1.0]]).T
    held_out = slice(2000, None)

    def nll(calibrator):
        calibrator.fit(mixed[:2000], labels[:2000])
        probabilities = calibrator.predict_proba(mixed[held_out])
        return -np.log(probabilities[np.arange(2000), labels[held_out]]).mean()

    assert nll(MatrixScaling()) < nll(VectorScaling()) - 0.01


def test_many_classes_and_few_samples_choose_a_stronger_penalty_than_the_reverse(make_overconfident):
    few = MatrixScaling().fit(*make_overconfident(150, 12))
    honest, labels = make_overconfident(3000, 3, sharpness=1.0)
    many = MatrixScaling().fit(honest @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.0], [0.3, 0.0, 1.0]]).T, labels)
    assert few.off_diagonal_penalty_ / (12 * 11) > many.off_diagonal_penalty_ / (3 * 2)


def test_a_large_problem_is_judged_by_one_held_out_split(ten_classes, monkeypatch):
    fits = []
    real_fit = matrix_scaling.fit_matrix
    monkeypatch.setattr(matrix_scaling, "fit_matrix", lambda *args: fits.append(len(args[0].logits)) or real_fit(*args))
    MatrixScaling().fit(*ten_classes)
    folds = set(fits[:-1])
    monkeypatch.setattr(matrix_scaling, "LARGE_PRODUCT", 1000)
    fits.clear()
    MatrixScaling().fit(*ten_classes)
    assert folds == {1000}
    assert set(fits[:-1]) == {1200}
    assert fits[-1] == 1500


def test_a_class_missing_from_the_labels_becomes_rare_with_a_warning(make_overconfident):
    logits, labels = make_overconfident(300, 4)
    seen = labels != 2
    with pytest.warns(CalibrationWarning, match="1 of 4 classes are missing"):
        calibrator = MatrixScaling().fit(logits[seen], labels[seen])
    assert calibrator.predict_proba(logits[seen])[:, 2].mean() < 0.05


def test_a_single_fold_is_refused(ten_classes):
    with pytest.raises(ValueError, match="folds must be at least 2, got 1"):
        MatrixScaling(folds=1).fit(*ten_classes)


def test_perfect_validation_data_keep_the_given_penalties_and_ignore_samples_without_weight():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    logits = 3.0 * np.eye(3)[labels] + 0.1 * rng.normal(size=(60, 3))
    with pytest.warns(UserWarning, match="Every validation sample is classified correctly"):
        given = MatrixScaling(off_diagonal_penalty=1.0, bias_penalty=2.0).fit(logits, labels)
    assert (given.off_diagonal_penalty_, given.bias_penalty_) == (1.0, 2.0)
    weights = np.ones(60)
    wrong = labels.copy()
    wrong[:3], weights[:3] = (labels[:3] + 1) % 3, 0.0
    with pytest.warns(UserWarning, match="57 correct predictions"):
        weighted = MatrixScaling().fit(logits, wrong, sample_weight=weights)
    with pytest.warns(UserWarning, match="57 correct predictions"):
        without = MatrixScaling().fit(logits[3:], labels[3:])
    np.testing.assert_allclose(weighted.predict_proba(logits), without.predict_proba(logits))
