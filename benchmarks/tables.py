"""Calibrate six classifiers on real tables with and without shift; compare with scikit-learn's own methods.

python benchmarks/tables.py FOLDER [--seeds 1] [--only NAME ...]

FOLDER holds the data, see ``table_data.py``. Defaults are chosen on the development tables and judged on the others.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import hash as joblib_hash
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import table_data
from densecal import CalibratedClassifier
from densecal.sklearn.responses import hidden_layers
from table_report import OURS, write_report

RESULTS = Path(__file__).parent / "results"
TRAINING_ROWS, TEST_ROWS = 1_000, 2_000
SKLEARN = ("sigmoid", "isotonic", "temperature")
MODELS = {
    "logistic regression": LogisticRegression(max_iter=500),
    "random forest": RandomForestClassifier(100, random_state=0),
    "gradient boosting": GradientBoostingClassifier(random_state=0),
    "SVC": SVC(random_state=0),
    "naive Bayes": GaussianNB(),
    "MLP": MLPClassifier((64, 32), max_iter=100, random_state=0),
}


class FitOnce(ClassifierMixin, BaseEstimator):
    """A classifier that is fitted once on the same samples, because all methods ask for the same folds."""

    fitted: dict[str, BaseEstimator] = {}  # noqa: RUF012

    def __init__(self, model: BaseEstimator) -> None:
        self.model = model

    def fit(self, X, y):
        key = joblib_hash((repr(self.model), X, y))
        if key not in self.fitted:
            self.fitted[key] = clone(self.model).fit(X, y)
        self.model_ = self.fitted[key]
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def __getattr__(self, name):
        if name in ("predict_proba", "decision_function"):
            inner = self.__dict__.get("model_", self.__dict__["model"])
            return getattr(inner, name)
        raise AttributeError(name)


def encoder():
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include="number")),
        (
            OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist", sparse_output=False),
            make_column_selector(dtype_exclude="number"),
        ),
    )


def split(table: table_data.Table, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return encoded training, clean test and shifted test rows."""
    rng = np.random.default_rng(seed)
    clean = np.arange(len(table.labels)) if table.shifted is None else np.flatnonzero(~table.shifted)
    clean = rng.permutation(clean)
    n_train = min(TRAINING_ROWS, int(0.6 * len(clean)))
    rows = {"train": clean[:n_train], "clean": clean[n_train : n_train + TEST_ROWS]}
    if table.shifted is not None:
        rows["shifted"] = rng.permutation(np.flatnonzero(table.shifted))[:TEST_ROWS]
    columns = encoder().fit(table.inputs.iloc[rows["train"]])
    # scikit-learn's temperature scaling answers 1/2 for classes that do not count from 0.
    labels = np.unique(table.labels, return_inverse=True)[1]
    return {name: (columns.transform(table.inputs.iloc[at]), labels[at]) for name, at in rows.items()}


def losses(classifier, X, y) -> np.ndarray:
    of_label = classifier.predict_proba(X)[np.arange(len(y)), np.searchsorted(classifier.classes_, y)]
    return -np.log(np.clip(of_label, np.finfo(np.float64).eps, None))


def candidates(model) -> dict[str, object]:
    once = FitOnce(model)
    return {
        **{f"sklearn {m}": CalibratedClassifierCV(once, method=m, ensemble=False) for m in SKLEARN},
        **{f"sklearn {m}, five models": CalibratedClassifierCV(once, method=m, ensemble=True) for m in SKLEARN},
        "default": CalibratedClassifier(once),
        **{name: CalibratedClassifier(once, name, ensemble=False) for name in OURS},
    }


def with_dac(name: str, model, data, base: str) -> dict[str, object]:
    """Return the base method on a hold-out half, without density and with each density that the model has."""
    X, y = data["train"]
    half = len(y) // 2
    fitted = clone(model).fit(X[:half], y[:half])
    densities = {"none": None, "columns": lambda X: {"columns": X}}
    if name == "MLP":
        densities["hidden layers"] = lambda X: hidden_layers(fitted, X)
    if name == "random forest":
        leaves = OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32).fit(fitted.apply(X))
        densities["leaves"] = lambda X: {"leaves": leaves.transform(fitted.apply(X))}
    made = {}
    for density, features in densities.items():
        method = base if features is None else f"dac+{base}"
        made[f"density: {density}"] = CalibratedClassifier(fitted, method, features=features).fit(
            X[half:], y[half:], X_train=None if features is None else X[:half]
        )
    return made


def measure(name: str, table: table_data.Table, seed: int) -> list[dict[str, object]]:
    data, rows = split(table, seed), []
    base = "beta" if len(np.unique(table.labels)) == 2 else "dir"
    for model_name, model in MODELS.items():
        fitted = {k: c.fit(*data["train"]) for k, c in candidates(model).items()}
        fitted |= with_dac(model_name, model, data, base)
        for test in ("clean", "shifted"):
            if test in data:
                shared = {"table": name, "seed": seed, "model": model_name, "test": test}
                rows += [shared | {"method": k, "loss": losses(c, *data[test])} for k, c in fitted.items()]
        FitOnce.fitted.clear()
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=())
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for load in (*table_data.REPORTED, *table_data.DEVELOPMENT):
        if options.only and load.__name__ not in options.only:
            continue
        table = load(options.folder)
        for seed in range(options.seeds):
            found += measure(load.__name__, table, seed)
            print(load.__name__, seed, flush=True)
            write_report(pd.DataFrame(found), None if options.only else RESULTS / "tables.md")
