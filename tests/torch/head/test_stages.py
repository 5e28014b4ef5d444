"""Every method as a torch module gives what the calibrator itself gives, and survives moves, copies and exports."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecal.calibrators.registry import METHODS  # noqa: E402
from densecal.torch.head.head import CalibrationHead  # noqa: E402
from densecal.torch.head.stages import Softmax, make_stage  # noqa: E402

LOGIT_METHODS = [name for name in METHODS if name != "dac"]
tracers_that_know_array_api = pytest.mark.skipif(
    torch.__version__ < torch.torch_version.TorchVersion("2.11"), reason="an older torch does not trace every method"
)
PRESERVING = [name for name in LOGIT_METHODS if METHODS[name].accuracy_preserving]


@pytest.fixture(scope="module")
def validation():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 600)
    logits = rng.normal(0, 2, (600, 4))
    logits[np.arange(600), labels] += 2.5
    return logits.astype(np.float32), labels


@pytest.fixture(scope="module")
def fitted(validation):
    return {name: METHODS[name]().fit(*validation) for name in LOGIT_METHODS}


@pytest.mark.parametrize("name", LOGIT_METHODS)
def test_a_stage_gives_the_calibrators_own_probabilities(name, fitted, validation):
    logits = validation[0]
    got = make_stage(fitted[name].state().stages[0])(torch.from_numpy(logits)).numpy()
    np.testing.assert_allclose(got, fitted[name].predict_proba(logits), atol=2e-6)
    assert got.dtype == np.float32


@pytest.mark.parametrize("name", LOGIT_METHODS)
def test_an_empty_batch_gives_no_row(name, fitted):
    got = CalibrationHead(fitted[name])(torch.empty(0, 4), [])
    assert got.shape == (0, 4) and got.dtype == torch.float32


@pytest.mark.parametrize("name", PRESERVING)
def test_an_accuracy_preserving_head_never_changes_the_predicted_class(name, fitted):
    logits = torch.randn(5000, 4, generator=torch.Generator().manual_seed(1)) * 8
    assert torch.equal(CalibrationHead(fitted[name])(logits, []).argmax(1), logits.argmax(1))


@pytest.mark.parametrize("name", LOGIT_METHODS)
def test_learned_numbers_travel_in_the_state_dict(name, fitted, validation):
    logits = torch.from_numpy(validation[0])
    stage = make_stage(fitted[name].state().stages[0])
    other = copy.deepcopy(stage)
    for buffer in other.buffers():
        buffer.mul_(1.5)
    assert not torch.allclose(other(logits), stage(logits)), "the buffers are not what the stage computes with"
    other.load_state_dict(stage.state_dict())
    assert torch.equal(other(logits), stage(logits))


@pytest.mark.parametrize("name", LOGIT_METHODS)
def test_halving_a_head_leaves_the_methods_numbers_alone(name, fitted, validation):
    logits = torch.from_numpy(validation[0])
    head = CalibrationHead(fitted[name])
    before = head(logits, [])
    assert torch.equal(head.half()(logits, []), before)


@pytest.mark.parametrize("name", LOGIT_METHODS)
def test_every_method_exports_with_a_free_batch_size(name, fitted, validation):
    head = CalibrationHead(fitted[name]).eval()
    logits = torch.from_numpy(validation[0])
    batch = torch.export.Dim("batch", min=2, max=4096)
    program = torch.export.export(head, (logits[:7], []), dynamic_shapes=({0: batch}, []))
    torch.testing.assert_close(program.module()(logits, []), head(logits, []))


@tracers_that_know_array_api
@pytest.mark.parametrize("name", LOGIT_METHODS)
def test_every_method_compiles_without_a_break(name, fitted, validation):
    torch.compiler.reset()
    head = CalibrationHead(fitted[name]).eval()
    logits = torch.from_numpy(validation[0])
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, []), head(logits, []))


@tracers_that_know_array_api
@pytest.mark.parametrize("name", LOGIT_METHODS)
def test_an_exported_head_can_still_be_copied_pickled_and_exported_again(name, fitted, validation):
    head = CalibrationHead(fitted[name]).eval()
    logits = torch.from_numpy(validation[0])
    before = head(logits, [])
    for strict in (False, True):
        torch.export.export(head, (logits[:7], []), strict=strict)
        for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head)), head):
            assert torch.equal(other(logits, []), before)


@pytest.fixture(scope="module")
def otherwise_fitted(validation):
    logits, labels = validation
    return {name: METHODS[name]().fit(0.6 * logits[:400], labels[:400]) for name in LOGIT_METHODS}


@pytest.mark.parametrize("name", ["ts", "ets", "pts", "dir", "dia", "vs"])
def test_a_loaded_state_dict_is_what_the_head_serves_and_hands_out(name, fitted, otherwise_fitted, validation):
    logits = torch.from_numpy(validation[0])
    source, target = CalibrationHead(fitted[name]), CalibrationHead(otherwise_fitted[name])
    assert not torch.equal(target(logits, []), source(logits, []))
    target.load_state_dict(source.state_dict())
    assert torch.equal(target(logits, []), source(logits, []))
    handed_out = target.calibrator
    np.testing.assert_allclose(handed_out.predict_proba(validation[0]), source(logits, []), atol=2e-6)
    assert handed_out.data_hashes_ == fitted[name].data_hashes_
    for attribute, value in vars(fitted[name]).items():
        if attribute.endswith("_") and attribute != "data_hashes_":
            np.testing.assert_allclose(getattr(handed_out, attribute), value, rtol=1e-6, err_msg=attribute)


def test_where_the_classes_maps_begin_travels_with_them(fitted, validation):
    calibrator = copy.deepcopy(fitted["ir"])
    source = CalibrationHead(calibrator)
    moved = copy.deepcopy(calibrator)
    moved.offsets_ = moved.offsets_.copy()
    moved.offsets_[1] -= 1
    target = CalibrationHead(moved)
    logits = torch.from_numpy(validation[0])
    target.load_state_dict(source.state_dict())
    assert torch.equal(target(logits, []), source(logits, []))
    np.testing.assert_array_equal(target.calibrator.offsets_, calibrator.offsets_)


def test_a_state_dict_of_another_method_is_refused(fitted):
    with pytest.raises(ValueError, match="expected method 'ets', got 'ts'"):
        CalibrationHead(fitted["ets"]).load_state_dict(CalibrationHead(fitted["ts"]).state_dict())


@pytest.mark.parametrize("name", LOGIT_METHODS)
def test_a_head_hands_out_the_calibrator_it_was_made_of_to_the_last_digit(name, fitted):
    handed_out = CalibrationHead(fitted[name]).calibrator
    for attribute, value in vars(fitted[name]).items():
        np.testing.assert_array_equal(getattr(handed_out, attribute), value)


def test_a_method_that_fell_back_to_the_uncalibrated_logits_is_a_softmax(fitted):
    scaling = copy.deepcopy(fitted["ts"])
    scaling.is_identity_ = True
    assert isinstance(make_stage(scaling.state().stages[0]), Softmax)
