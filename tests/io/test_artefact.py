from __future__ import annotations

import hashlib
import json
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import densecal
from densecal import DAC, ArtefactError, FeatureBank, Outputs
from densecal.calibrators.registry import METHODS


@pytest.fixture
def fitted(overconfident):
    logits, labels, _ = overconfident
    rng = np.random.default_rng(0)
    bank = FeatureBank({"conv/1": rng.normal(size=(100, 4)), "pool": rng.normal(size=(100, 6))}, k=5)
    features = {"conv/1": rng.normal(size=(3000, 4)), "pool": rng.normal(size=(3000, 6))}
    calibrator = densecal.make_calibrator("dac+ets", bank=bank)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", densecal.CalibrationWarning)  # random features may get no weight
        calibrator.fit(logits, labels, features=features)
    return calibrator, logits[:50], {name: array[:50] for name, array in features.items()}


@pytest.mark.parametrize("name", [name for name in METHODS if name != "dac"])
def test_every_method_gives_the_same_probabilities_after_saving_and_loading(name, overconfident, tmp_path):
    logits, labels, distances = overconfident
    for method in (name, f"dac+{name}"):
        calibrator = densecal.make_calibrator(method).fit(logits, labels, distances=distances)
        calibrator.save(tmp_path / "cal.densecal")
        loaded = densecal.load(tmp_path / "cal.densecal")
        np.testing.assert_array_equal(
            loaded.predict_proba(logits, distances=distances), calibrator.predict_proba(logits, distances=distances)
        )
        np.testing.assert_array_equal(
            loaded.confidence(logits, distances=distances), calibrator.confidence(logits, distances=distances)
        )
        assert loaded.short_name == method


def test_the_bank_travels_with_the_calibrator(fitted, tmp_path):
    calibrator, logits, features = fitted
    calibrator.save(tmp_path / "cal.densecal")
    loaded = densecal.load(tmp_path / "cal.densecal")
    np.testing.assert_allclose(
        loaded.predict_proba(logits, features=features), calibrator.predict_proba(logits, features=features), atol=1e-6
    )
    assert loaded.stages[0].bank.layers == ("conv/1", "pool")


def test_a_half_precision_bank_is_smaller_and_nearly_the_same(fitted, tmp_path):
    calibrator, _, features = fitted
    calibrator.save(tmp_path / "full.densecal")
    calibrator.save(tmp_path / "half.densecal", half_precision_bank=True)
    assert (tmp_path / "half.densecal").stat().st_size < (tmp_path / "full.densecal").stat().st_size
    half = densecal.load(tmp_path / "half.densecal").stages[0].bank.distances(features)
    np.testing.assert_allclose(half, calibrator.stages[0].bank.distances(features), atol=1e-3)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_loaded_bank_of_rows_is_the_saved_one(tmp_path, library):
    asarray = pytest.importorskip("torch").tensor if library == "torch" else np.asarray
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 64)).astype(np.float32)
    val = Outputs(asarray(rng.normal(size=(500, 4))), asarray(rng.integers(0, 4, 500)), {"pool": asarray(features)})
    calibrator = DAC(FeatureBank({"pool": asarray(features[::2])}, k=5)).fit(val)
    calibrator.save(tmp_path / "rows.densecal")
    loaded = densecal.load(tmp_path / "rows.densecal")
    measured = calibrator.measure(val)
    assert loaded.measure(measured) is measured, "measured once, for both"
    np.testing.assert_array_equal(loaded.predict_proba(measured), calibrator.predict_proba(measured))


def test_an_unfitted_calibrator_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        DAC().save(tmp_path / "cal.densecal")
    assert not (tmp_path / "cal.densecal").exists()


def rewrite_header(path, change):
    """Edit the JSON header of a file in place, as another program or another release would have written it."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    header = json.loads(entries["__metadata__"]["densecal"])
    change(header)
    entries["__metadata__"] = {"sha256": "0" * 64, "densecal": json.dumps(header)}
    encoded = json.dumps(entries).encode()
    changed = len(encoded).to_bytes(8, "little") + encoded + content[8 + length :]
    path.write_bytes(changed.replace(b"0" * 64, hashlib.sha256(changed).hexdigest().encode(), 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header.update(version=99), "format version 99.*reads version 1"),
        (
            lambda header: header.update(format="densecal.outputs"),
            "holds 'densecal.outputs', not 'densecal.calibrator'",
        ),
        (lambda header: header["stages"][0].update(method="os.system"), "unknown method 'os.system'"),
        (lambda header: header["stages"][0]["learned"].update(fit="evil"), "not a learned attribute"),
        (lambda header: header["stages"][0].update(params={"evil": 1}), "damaged"),
        (lambda header: header["bank"].update(layers=["conv/1", "gone"]), "damaged"),
        (lambda header: header.pop("stages"), "'stages' is missing"),
        (lambda header: header.update(stages=[]), "no stages"),
        (lambda header: header.update(stages={"a": 1}), "damaged"),
        (lambda header: header.update(metadata=[]), "metadata is not a mapping"),
        (lambda header: header["stages"][0]["learned"].pop("bias_"), "learned values bias_ of 'dac' are missing"),
        (lambda header: header["stages"][0]["learned"].update(bias_=float("nan")), "bias_ is nan"),
        (lambda header: header["stages"][0]["learned"].update(bias_="1"), "damaged"),
        (lambda header: header["stages"][0]["learned"].update(bias_=-9.0), "'dac' would change the predicted"),
        (
            lambda header: header["stages"][0]["learned"].update(layers_=["pool", "conv/1"]),
            "fitted on .'pool', 'conv/1'",
        ),
        (lambda header: header["stages"][1]["learned"].update(n_classes_=10**12), "n_classes_ must be an integer"),
        (lambda header: header["stages"][1]["learned"].update(temperature_=0.0), "damaged"),
    ],
)
def test_a_file_of_another_version_or_with_a_strange_header_is_refused(fitted, tmp_path, change, message):
    path = tmp_path / "cal.densecal"
    fitted[0].save(path)
    rewrite_header(path, change)
    with pytest.raises(ArtefactError, match=message):
        densecal.load(path)


def test_an_array_of_another_shape_is_refused(fitted, tmp_path):
    path = tmp_path / "cal.densecal"
    state = fitted[0].state()
    state.stages[1].learned["mixture_"] = np.full((2, 2), 0.25)
    densecal.io.artefacts.write(path, state)
    with pytest.raises(ArtefactError, match=r"cal\.densecal is damaged"):
        densecal.load(path)


def test_a_truncated_file_is_refused(fitted, tmp_path):
    path = tmp_path / "cal.densecal"
    fitted[0].save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtefactError, match="truncated"):
        densecal.load(path)


def test_a_pickle_is_never_opened(tmp_path):
    import pickle

    path = tmp_path / "cal.densecal"
    path.write_bytes(pickle.dumps({"logits": 1}))
    with pytest.raises(ArtefactError, match="truncated or not a safetensors file|not written by densecal"):
        densecal.load(path)


def test_names_make_calibrators_and_a_typo_is_explained():
    assert densecal.make_calibrator(" DAC + ETS ").short_name == "dac+ets"
    with pytest.raises(ValueError, match="Unknown calibration method 'est'. Did you mean 'ets'"):
        densecal.make_calibrator("dac+est")
