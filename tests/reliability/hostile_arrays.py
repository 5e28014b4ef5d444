"""Hostile arrays for every calibrator and the bank: the right answer, or an error that names the argument."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone

from tests.reliability.harness import CLASSES, LAYERS, NAMES, Tally, features_of, fitted, problem, wrong_with

ARGUMENTS = ("logits", "labels", "distances", "features")
TOLERANCE = 2e-3


def hostile_values(rng, samples):
    """Return float64 logits of odd sizes and patterns that are still numbers."""
    values = rng.normal(size=(samples, CLASSES)) * 10.0 ** rng.uniform(-3, 2)
    kind = rng.integers(9)
    if kind == 0:  # ties
        values = np.round(values)
    elif kind == 1:
        values[:] = values[:, :1]
    elif kind == 2:  # masked classes
        values[rng.random(values.shape) < 0.4] = rng.choice([-1e4, -1e9, np.finfo(np.float32).min])
        values[:, rng.integers(CLASSES)] = 1.0
    elif kind == 3:  # a common constant
        values += rng.choice([-1, 1]) * 10.0 ** rng.uniform(0, 3)
    elif kind == 4:
        values *= 10.0 ** rng.uniform(0, 30)
    elif kind == 5:
        values *= 10.0 ** rng.uniform(-30, 0)
    elif kind == 6:  # nearly equal
        values = 3 + values * 1e-7
    elif kind == 7:
        values[:, 0] = np.nextafter(values[:, 1], np.inf)
    return values


def spoilt(rng, values):
    """Return an array that must be refused."""
    holed = values.copy()
    holed.flat[rng.integers(values.size)] = rng.choice([np.nan, np.inf, -np.inf])
    forms = (
        holed, values[:, :1], values[:, :-1], values[0], values[None], values[:0], values > 0, None,
        values.astype(complex), values.astype(str), values.astype(object),
        np.ma.masked_array(values, mask=values < np.inf),
    )  # fmt: skip
    return forms[rng.integers(len(forms))]


def dressed(rng, values):
    """Return the values as another type of array, and the same numbers as float64."""
    kind = rng.integers(14)
    if kind >= 9:
        import torch

        tensor = torch.tensor(values)
        tensor = [tensor, tensor.float(), tensor.T.contiguous().T, tensor.requires_grad_(), tensor.bfloat16()][kind - 9]
        return tensor, tensor.detach().double().numpy()
    array = [
        lambda: values.astype(np.float32),
        lambda: values.astype(">f4"),
        lambda: values.astype(">f8"),
        lambda: values.astype(np.longdouble),
        lambda: np.asfortranarray(values),
        lambda: np.repeat(values, 2, axis=1)[:, ::2],
        lambda: values[::-1][::-1],
        lambda: values.tolist(),
        lambda: np.ma.masked_array(values, mask=False),
    ][kind]()
    with np.errstate(over="ignore"):
        return array, np.asarray(array, dtype=np.float64)


def as_numpy(answer):
    return answer.detach().cpu().numpy() if hasattr(answer, "detach") else np.asarray(answer)


def try_predict(rng, tally):
    """Predict for hostile logits with a fitted calibrator, and compare with the same numbers in float64."""
    name = str(rng.choice(NAMES))
    calibrator, samples = fitted(name), int(rng.integers(1, 6))
    values, features = hostile_values(rng, samples), features_of(rng, samples)
    if rng.random() < 0.3:
        features = {
            layer: (array * 10.0 ** rng.uniform(-30, 30)).astype(np.float64) for layer, array in features.items()
        }
    bad = rng.random() < 0.25
    given, exact = (spoilt(rng, values), None) if bad else dressed(rng, values)
    if bad and rng.random() < 0.3 and name.startswith("dac"):
        given, features = values, {layer: spoilt(rng, array.astype(np.float64)) for layer, array in features.items()}
    kept = np.array(exact, copy=True) if exact is not None else None
    options = {"features": features} if name.startswith("dac") else {}
    try:
        answer = as_numpy(calibrator.predict_proba(given, **options))
    except Exception as error:
        representable = exact is not None and np.isfinite(exact).all()
        if representable and "look like" not in str(error):
            tally.spoil(f"{name} refused good logits {exact[:1]}: {error}")
        else:
            tally.refuse(error, *ARGUMENTS, what=f"{name} predict")
        return
    if exact is None:
        seen = as_numpy(given)
        found = wrong_with(answer, seen, keeps_class=calibrator.accuracy_preserving) or not_refused(seen)
        if found:
            tally.spoil(f"{name} took {seen!r}: {found}")
        return
    narrow = exact.astype(answer.dtype).astype(np.float64)
    found = wrong_with(answer, narrow, keeps_class=calibrator.accuracy_preserving)
    reference = as_numpy(calibrator.predict_proba(narrow, **options))
    largest_step = np.abs(narrow).max() * np.finfo(answer.dtype).eps
    if not found and largest_step < 1e-4 and np.abs(answer - reference).max() > TOLERANCE:
        found = f"differs from float64 by {np.abs(answer - reference).max():.3g}"
    if not found and not np.array_equal(kept, exact):
        found = "the input was changed"
    if found:
        tally.spoil(f"{name} on {exact.tolist()}: {found}")


def not_refused(seen):
    """Return why an array that was meant to be refused had to be, if so."""
    return "" if seen.dtype.kind == "f" and seen.ndim == 2 and seen.shape[1] == CLASSES else "was not refused"


def try_fit(rng, tally):
    """Fit on hostile logits, labels and features; the fitted calibrator must answer, and not lose to the softmax."""
    name = str(rng.choice(NAMES[:-1]))
    samples = int(rng.integers(1, 25))
    values = hostile_values(rng, samples)
    labels = rng.integers(0, CLASSES, samples)
    kind = rng.integers(6)
    if kind == 0:
        labels = values.argmax(axis=1)
    elif kind == 1:
        labels = [labels - 1, labels + CLASSES, labels + 0.5, labels.astype(str), labels[:-1], None][rng.integers(6)]
    elif kind == 2:
        values = spoilt(rng, values)
    features = features_of(rng, samples) if name.startswith("dac") else None
    calibrator = clone(fitted(name))
    try:
        calibrator.fit(values, labels, features=features)
        answer = as_numpy(calibrator.predict_proba(values, features=features))
    except Exception as error:
        tally.refuse(error, *ARGUMENTS, what=f"{name} fit")
        return
    found = wrong_with(answer, as_numpy(values), keeps_class=calibrator.accuracy_preserving)
    if found:
        tally.spoil(f"{name} fitted on {np.asarray(values).tolist()} and {np.asarray(labels).tolist()}: {found}")


def try_bank(rng, tally):
    """Measure hostile features; compare with the same features after normalisation in float64."""
    bank = fitted(str(rng.choice(["dac", "dac-shift"]))).bank
    samples = int(rng.integers(1, 6))
    raw = {layer: rng.normal(size=(samples, 5)) * 10.0 ** rng.uniform(-250, 250) for layer in LAYERS}
    if rng.random() < 0.2:
        raw["pool"][0] = 0
    given = dict(raw)
    bad = rng.random() < 0.3
    if bad:
        given["pool"] = spoilt(rng, raw["pool"])
    elif rng.random() < 0.5:
        given["conv"] = raw["conv"].astype(rng.choice([">f8", np.longdouble]))
    try:
        found = as_numpy(bank.distances(given))
    except Exception as error:
        tally.refuse(error, *ARGUMENTS, what="bank") if bad else tally.spoil(f"bank refused {raw}: {error}")
        return
    if bad and np.shape(given["pool"]) != (samples, 5):
        tally.spoil(f"bank took {given['pool']!r}")
        return
    norms = {layer: np.abs(array).max(axis=1, keepdims=True) for layer, array in raw.items()}
    scaled = {layer: array / np.where(norms[layer] > 0, norms[layer], 1) for layer, array in raw.items()}
    if not bad and np.abs(found - as_numpy(bank.distances(scaled))).max() > 2e-3:
        tally.spoil(f"bank measured {raw} as {found}")
    if not np.isfinite(found).all():
        tally.spoil(f"bank measured {given} as {found}")


def hostile_arrays(count, seed=0):
    """Try so many hostile inputs: mostly predictions, some fits, some distances."""
    tally, rng = Tally(), np.random.default_rng(seed)
    for name in NAMES:
        fitted(name)
    problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(count):
            tally.tried += 1
            attempt = try_fit if number % 16 == 0 else try_bank if number % 8 == 1 else try_predict
            attempt(rng, tally)
    return tally
