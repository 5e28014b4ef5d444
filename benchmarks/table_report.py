"""The report of ``tables.py``: log losses per table, and the comparison with scikit-learn's best method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import table_data
from reproduction.page.markdown import markdown

SAME_FITS = ("sklearn sigmoid", "sklearn isotonic", "sklearn temperature")
FIVE_MODELS = tuple(f"{name}, five models" for name in SAME_FITS)
OURS = ("auto", "beta", "platt", "dir", "vs", "ets", "ts")
N_RESAMPLES = 2_000


def write_report(found: pd.DataFrame, path: Path | None) -> None:
    """Write the report to a file, or print it without one."""
    names = {role: [load.__name__ for load in getattr(table_data, role)] for role in ("DEVELOPMENT", "REPORTED")}
    parts = [
        "## Tables: the default of CalibratedClassifier and scikit-learn's methods\n",
        "Six classifiers (logistic regression, random forest, gradient boosting, SVC, naive Bayes, MLP) on up to 1,000 "
        "training rows of each table, five folds. The log loss is the mean over the classifiers. *Difference* is "
        "densecal minus the best of scikit-learn's three methods on these rows, with a paired 95 % bootstrap interval "
        "over the test rows. Written by `python benchmarks/tables.py FOLDER`.\n",
    ]
    for role, title in (("REPORTED", "Held-out tables"), ("DEVELOPMENT", "Tables used to choose the default")):
        chosen = found[found["table"].isin(names[role])]
        if len(chosen):
            parts += [f"### {title}\n", comparison(chosen, FIVE_MODELS), comparison(chosen, SAME_FITS)]
            parts += ["Every method with one model, mean log loss over the classifiers:\n", every_method(chosen)]
    parts += ["### Density\n", density(found)]
    text = "\n".join(parts)
    if path is None:
        print(text)
    else:
        path.write_text(text)


def per_sample(found: pd.DataFrame, method: str) -> np.ndarray:
    """Return the loss of each test sample, averaged over the classifiers."""
    part = found[found["method"] == method]
    return np.concatenate([np.mean(np.stack(group.to_list()), axis=0) for _, group in part.groupby("seed")["loss"]])


def comparison(found: pd.DataFrame, theirs: tuple[str, ...]) -> str:
    """Return the default and the best of scikit-learn's methods, per table and test set."""
    kind = "one model, `ensemble=False`" if theirs is SAME_FITS else "the mean of five models, the default of both"
    ours = "auto" if theirs is SAME_FITS else "default"
    lines = []
    worse: dict[str, list[bool]] = {"all": [], "any": []}
    for table, rows in found.groupby("table", sort=False):
        tests = dict(list(rows.groupby("test", sort=False)))
        losses = {test: [per_sample(part, name) for name in (ours, *theirs)] for test, part in tests.items()}
        if len(losses) > 1:
            losses["all"] = [np.concatenate(parts) for parts in zip(*losses.values(), strict=True)]
        is_worse = []
        for test, (default, *others) in losses.items():
            best = min(others, key=np.mean)
            low, high = interval(default - best)
            is_worse.append(low > 0)
            cells = [f"{values.mean():.4f}" for values in (default, *others)]
            lines.append([table, test, *cells, f"{(default - best).mean():+.4f} [{low:+.4f}, {high:+.4f}]"])
        worse["all"].append(is_worse[-1])
        worse["any"].append(any(is_worse[: len(tests)]))
    kept = {name: f"{len(found) - sum(found)} of {len(found)}" for name, found in worse.items()}
    header = ["table", "test rows", "densecal", "sigmoid", "isotonic", "temperature", "difference"]
    return (
        f"Compared with `CalibratedClassifierCV` with {kind}:\n\n{markdown(header, lines, n_text=2)}\n"
        f"Not significantly worse than the best of scikit-learn's methods on any test set: {kept['any']} tables; on "
        f"all test rows of a table together: {kept['all']}.\n"
    )


def interval(differences: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean."""
    rng = np.random.default_rng(0)
    means = [rng.choice(differences, len(differences)).mean() for _ in range(N_RESAMPLES)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def every_method(found: pd.DataFrame) -> str:
    """Return the mean log loss of every method, per table and test set."""
    mean = found.assign(loss=found["loss"].map(np.mean))
    wide = mean.pivot_table(index=["table", "test"], columns="method", values="loss", sort=False)[[*OURS]]
    lines = [[*key, *(f"{value:.4f}" for value in row)] for key, row in zip(wide.index, wide.to_numpy(), strict=True)]
    return markdown(["table", "test rows", *OURS], lines, n_text=2)


def density(found: pd.DataFrame) -> str:
    """Return the change of the log loss by DAC, per density and classifier."""
    mean = found[found["method"].str.startswith("density")].assign(loss=lambda rows: rows["loss"].map(np.mean))
    wide = mean.pivot_table(index=["table", "seed", "model", "test"], columns="method", values="loss")
    lines = []
    for kind in ("columns", "leaves", "hidden layers"):
        change = (100 * (wide[f"density: {kind}"] / wide["density: none"] - 1)).dropna()
        for model, part in change.groupby("model", sort=False):
            clean, shifted = (part[part.index.get_level_values("test") == test] for test in ("clean", "shifted"))
            shares = f"{(shifted < -0.5).mean():.0%}, {(shifted > 0.5).mean():.0%}"
            lines.append([kind, model, f"{clean.mean():+.1f} %", f"{shifted.mean():+.1f} %", shares])
    header = ["density", "classifier", "clean", "shifted", "shifted: better, worse by over 0.5 %"]
    return (
        "Log loss with DAC in front of the default relative to the default alone, mean over all tables, fitted on half "
        f"of the training rows and calibrated on the other half:\n\n{markdown(header, lines, n_text=2)}"
    )
