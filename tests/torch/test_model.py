"""The calibrated model: the calibrator's probabilities from a module that can be moved, saved, compiled, exported."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import threading
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import densecal  # noqa: E402
from densecal import ArtefactError  # noqa: E402
from densecal.torch import CalibratedModel  # noqa: E402
from densecal.torch.features.layout import Layout  # noqa: E402


@pytest.fixture
def calibrated(trained, measured):
    model = CalibratedModel(trained[0], measured[0], measured[1])
    yield model
    model.capture.remove()


def test_probabilities_are_those_of_the_calibrator_on_the_extracted_features(calibrated, trained, measured):
    chain, _, (_, val) = measured
    with torch.inference_mode():
        details = calibrated.details(trained[2][0])
    expected = chain.predict_proba(val.logits, features=val.features)
    np.testing.assert_allclose(details.probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(details.temperature, chain.stages[0].temperatures(features=val.features), atol=1e-5)
    distances = chain.stages[0].bank.distances(val.features)
    for column, layer in enumerate(["3", "6", "9", "logits"]):
        np.testing.assert_allclose(details.distances[layer], distances[:, column], atol=1e-5)
    np.testing.assert_allclose(details.logits, val.logits, atol=1e-5)
    with torch.inference_mode():
        assert torch.equal(calibrated(trained[2][0]), details.probabilities)


def test_accuracy_is_unchanged_to_the_last_sample(calibrated, trained):
    with torch.inference_mode():
        assert torch.equal(calibrated(trained[2][0]).argmax(1), trained[0](trained[2][0]).argmax(1))


def test_a_batch_of_one_is_answered_as_part_of_a_larger_one(calibrated, trained):
    images = trained[2][0][:3]
    with torch.inference_mode():
        one_by_one = torch.cat([calibrated(image[None]) for image in images])
        torch.testing.assert_close(one_by_one, calibrated(images), atol=1e-5, rtol=0)


def test_layers_without_a_weight_have_neither_hook_nor_bank(trained, measured):
    chain, layouts, _ = measured
    chain = copy.deepcopy(chain)
    chain.stages[0].weights_ = np.array([0.0, 0.2, 0.0, 0.0])
    model = CalibratedModel(trained[0], chain, layouts)
    try:
        assert model.layers == ("6",)
        assert model.head.search.bank.shape == (1200, 24)
        hooked = [name for name, module in trained[0].named_modules() if module._forward_hooks]
        assert hooked == ["6"]
        with torch.inference_mode():
            details = model.details(trained[2][0][:5])
        assert list(details.distances) == ["6"]
    finally:
        model.capture.remove()


def test_without_any_weight_it_is_temperature_scaling_without_a_bank(trained, measured, tmp_path):
    chain = copy.deepcopy(measured[0])
    chain.stages[0].weights_ = np.zeros(4)
    model = CalibratedModel(trained[0], chain, measured[1])
    assert model.layers == () and model.head.search is None
    with torch.inference_mode():
        details = model.details(trained[2][0][:5])
    assert details.distances == {} and torch.allclose(details.temperature, torch.tensor(0.3))
    model.save(tmp_path / "plain.densecal")
    again = CalibratedModel.load(tmp_path / "plain.densecal", trained[0])
    with torch.inference_mode():
        assert torch.equal(again(trained[2][0][:5]), details.probabilities)
    core = densecal.load(tmp_path / "plain.densecal")
    got = core.predict_proba(details.logits.numpy(), features={})
    np.testing.assert_allclose(got, details.probabilities, atol=1e-6)


def test_the_published_codes_scores_are_served_too(trained, measured):
    chain, layouts, (_, val) = measured
    dac = copy.deepcopy(chain.stages[0])
    dac.scores = "published_code"
    model = CalibratedModel(trained[0], dac, layouts)
    with torch.inference_mode():
        got = model.details(trained[2][0])
    model.capture.remove()
    np.testing.assert_allclose(got.temperature, dac.temperatures(features=val.features), atol=1e-5)


def test_a_classifier_in_training_mode_is_refused(calibrated, trained):
    calibrated.train()
    try:
        with pytest.raises(RuntimeError, match=r"in training mode.*Call \.eval\(\) first"):
            calibrated(trained[2][0][:2])
    finally:
        calibrated.eval()
    calibrated(trained[2][0][:2])


def test_a_single_layer_in_training_mode_is_refused(calibrated, trained):
    copied = copy.deepcopy(calibrated)
    for model in (calibrated, copied, pickle.loads(pickle.dumps(calibrated))):
        model.classifier[10].train()
        try:
            with pytest.raises(RuntimeError, match="or a part of it, is in training mode"):
                model(trained[2][0][:2])
        finally:
            model.classifier[10].eval()
        model(trained[2][0][:2])


def test_an_empty_batch_gives_no_row(calibrated, trained):
    with torch.inference_mode():
        details = calibrated.details(trained[2][0][:0])
    assert details.probabilities.shape == (0, 4) and details.temperature.shape == (0,)
    assert [distances.shape for distances in details.distances.values()] == [(0,)] * 4


def test_nan_activations_give_nan_for_that_sample_and_leave_the_others_right(calibrated, trained):
    images = trained[2][0][:4].clone()
    images[1] = float("nan")
    with torch.inference_mode():
        got, expected = calibrated(images), calibrated(trained[2][0][:4])
    assert got[1].isnan().all()
    torch.testing.assert_close(got[[0, 2, 3]], expected[[0, 2, 3]], atol=1e-5, rtol=0)


def test_a_half_precision_bank_halves_its_memory_and_moves_distances_by_less_than_a_thousandth(calibrated, trained):
    images = trained[2][0]
    with torch.inference_mode():
        full = calibrated.details(images)
        half_model = copy.deepcopy(calibrated)
        half_model.head.half()
        half = half_model.details(images)
    assert half_model.head.search.bank.dtype == torch.float16
    assert half_model.head.temperature.weights_.dtype == torch.float32
    for layer in full.distances:
        assert (half.distances[layer] - full.distances[layer]).abs().max() < 1e-3


def test_the_whole_model_may_run_in_half_precision_or_under_autocast(calibrated, trained):
    images = trained[2][0][:64]
    with torch.inference_mode():
        expected = calibrated(images)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = calibrated(images)
        half = copy.deepcopy(calibrated).bfloat16()(images.bfloat16())
    assert mixed.dtype == half.dtype == torch.float32
    assert (mixed - expected).abs().max() < 0.05
    assert (half - expected).abs().max() < 0.05


def test_gradients_flow_through_the_logits_to_the_input(calibrated, trained):
    images = trained[2][0][:2].clone().requires_grad_()
    calibrated(images).amax(dim=1).sum().backward()
    assert images.grad.abs().sum() > 0


def test_a_model_made_moved_and_loaded_under_inference_mode_still_has_gradients(trained, measured):
    images = trained[2][0][:2].clone().requires_grad_()
    with torch.inference_mode():
        model = CalibratedModel(trained[0], measured[0], measured[1])
        model.head.to(torch.float32).load_state_dict(model.head.state_dict())
        model.head.half().float()
    assert not any(buffer.is_inference() for buffer in model.head.buffers())
    model(images).amax(dim=1).sum().backward()
    assert images.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["irm", "spl", "pts", "dir", "vs", "dia"])
def test_every_method_made_under_inference_mode_still_has_gradients(name, measured):
    val = measured[2][1]
    logits = torch.tensor(val.logits[:5], requires_grad=True)
    with torch.inference_mode():
        model = CalibratedModel(nn.Identity(), densecal.make_calibrator(name).fit(val.logits, val.labels), {})
    model(logits)[:, 0].sum().backward()
    assert logits.grad.isfinite().all()


def test_the_state_dict_carries_classifier_bank_and_parameters(calibrated, trained, measured):
    other_chain = copy.deepcopy(measured[0])
    other_chain.stages[0].weights_ = np.array([1.0, 1.0, 1.0, 1.0])
    other = CalibratedModel(copy.deepcopy(trained[0]), other_chain, measured[1])
    other.load_state_dict(calibrated.state_dict())
    with torch.inference_mode():
        assert torch.equal(other(trained[2][0][:5]), calibrated(trained[2][0][:5]))


def changed(measured):
    """The same method and layers with another fit and another bank."""
    chain = copy.deepcopy(measured[0])
    dac, ets = chain.stages
    dac.weights_, dac.bias_ = np.array([1.0, 1.1, 0.9, 1.2]), 0.5
    dac.bank = densecal.FeatureBank({layer: dac.bank[layer][::-1] * 1.0 for layer in dac.bank.layers}, k=10)
    ets.temperature_, ets.mixture_ = 1.7, np.array([0.5, 0.2, 0.3])
    return chain


def test_what_is_saved_after_a_state_dict_was_loaded_is_what_is_served(calibrated, trained, measured, tmp_path):
    other = CalibratedModel(copy.deepcopy(trained[0]), changed(measured), measured[1])
    other.load_state_dict(calibrated.state_dict())
    other.save(tmp_path / "other.densecal")
    again = CalibratedModel.load(tmp_path / "other.densecal", other.classifier)
    with torch.inference_mode():
        expected = calibrated(trained[2][0])
        assert torch.equal(other(trained[2][0]), expected)
        torch.testing.assert_close(again(trained[2][0]), expected, atol=1e-6, rtol=0)
    np.testing.assert_allclose(other.calibrator.stages[1].mixture_, measured[0].stages[1].mixture_, rtol=1e-6)


def test_a_shift_fitted_state_dict_is_saved_as_it_is_served(trained, measured, shift_fitted, tmp_path):
    source = CalibratedModel(copy.deepcopy(trained[0]), shift_fitted, measured[1])
    other_fit = copy.deepcopy(shift_fitted)
    other_fit.weights_, other_fit.excess_spread_ = 2 * other_fit.weights_, 1.5 * other_fit.excess_spread_
    other = CalibratedModel(copy.deepcopy(trained[0]), other_fit, measured[1])
    other.load_state_dict(source.state_dict())
    other.save(tmp_path / "other.densecal")
    again = CalibratedModel.load(tmp_path / "other.densecal", other.classifier)
    with torch.inference_mode():
        torch.testing.assert_close(again(trained[2][0]), source(trained[2][0]), atol=1e-6, rtol=0)


def reduced(measured, weights, k=10):
    chain = copy.deepcopy(measured[0])
    dac = chain.stages[0]
    dac.bank = densecal.FeatureBank({layer: dac.bank[layer] for layer in dac.bank.layers}, k=k)
    dac.weights_ = np.array(weights)
    return chain


def test_a_state_dict_of_other_layers_is_refused_before_anything_is_loaded(trained, measured):
    both = {**measured[1], "7": measured[1]["9"]}
    source = CalibratedModel(copy.deepcopy(trained[0]), reduced(measured, [0.0, 0.0, 0.3, 0.0]), both)
    target = CalibratedModel(copy.deepcopy(trained[0]), reduced(measured, [0.0, 0.2, 0.0, 0.0]), both)
    with torch.no_grad():
        source.classifier[0].weight.add_(1)
    before = target.classifier[0].weight.clone()
    with pytest.raises(ValueError, match=r"expected layers \['6'\], got \['9'\]"):
        target.load_state_dict(source.state_dict())
    assert torch.equal(target.classifier[0].weight, before)
    deeper = CalibratedModel(copy.deepcopy(trained[0]), reduced(measured, [0.0, 0.2, 0.0, 0.0], k=20), both)
    with pytest.raises(ValueError, match="expected k = 10, got 20"):
        target.load_state_dict(deeper.state_dict())


def test_a_call_outside_no_grad_gives_no_warning(trained, measured, shift_fitted):
    model = CalibratedModel(trained[0], shift_fitted, measured[1])
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(trained[2][0][:2])
    finally:
        torch.set_warn_always(False)
        model.capture.remove()


def test_a_state_dict_of_other_numbers_of_centres_is_refused_before_anything_is_loaded(trained, measured, shift_fitted):
    fewer = copy.deepcopy(shift_fitted)
    fewer.bank = densecal.FeatureBank(measured[2][0].features, centres=7)
    source, target = (CalibratedModel(copy.deepcopy(trained[0]), fit, measured[1]) for fit in (fewer, shift_fitted))
    before = target.head.state_dict()["search.bank"].clone()
    with pytest.raises(ValueError, match=r"expected numbers of centres \[120, 120, 120, 120\], got \[7, 7, 7, 7\]"):
        target.load_state_dict(source.state_dict())
    assert torch.equal(target.head.search.bank, before)


def test_a_saved_model_with_centres_comes_back_to_the_last_digit(trained, measured, shift_fitted, tmp_path):
    model = CalibratedModel(trained[0], shift_fitted, measured[1])
    model.double().float().save(tmp_path / "model.densecal")
    again = CalibratedModel.load(tmp_path / "model.densecal", trained[0])
    with torch.inference_mode():
        assert torch.equal(again(trained[2][0]), model(trained[2][0]))
    bank, kept = shift_fitted.bank, densecal.load(tmp_path / "model.densecal").bank
    for layer in bank.layers:
        np.testing.assert_array_equal(kept[layer], bank[layer])
        np.testing.assert_array_equal(kept.state().counts[layer], bank.state().counts[layer])
    assert kept.k is None


def test_a_state_dict_goes_through_a_file_of_tensors_alone(calibrated, tmp_path):
    torch.save(calibrated.state_dict(), tmp_path / "state.pt")
    calibrated.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert all(isinstance(value, torch.Tensor) for value in calibrated.state_dict().values())


def test_copies_and_pickles_read_their_own_features(calibrated, trained):
    images = trained[2][0]
    with torch.inference_mode():
        expected = calibrated(images[:4])
        for other in (copy.deepcopy(calibrated), pickle.loads(pickle.dumps(calibrated))):
            calibrated(images[10:20])
            assert torch.equal(other(images[:4]), expected)


def test_threads_that_share_a_model_do_not_mix_their_features(calibrated, trained):
    images = trained[2][0]
    with torch.inference_mode():
        expected = [calibrated(images[i * 20 : i * 20 + 20]) for i in range(8)]
    got = [[] for _ in range(8)]

    def serve(number):
        with torch.inference_mode():
            for _ in range(10):
                got[number].append(calibrated(images[number * 20 : number * 20 + 20]))

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        assert len(got[number]) == 10
        for answer in got[number]:
            torch.testing.assert_close(answer, expected[number], atol=1e-6, rtol=0)


def head_inputs(calibrated, images):
    with torch.inference_mode(), calibrated.capture.reading() as features:
        logits = calibrated.classifier(images)
    read = {**features, "logits": logits}
    return logits.clone(), [read[layer].clone() for layer in calibrated.layers]


def test_the_head_compiles_without_a_break(calibrated, trained):
    logits, features = head_inputs(calibrated, trained[2][0][:16])
    compiled = torch.compile(calibrated.head, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, features), calibrated.head(logits, features), atol=1e-5, rtol=0)


def test_the_model_compiles_without_a_break(calibrated, trained):
    torch.compiler.reset()
    images = trained[2][0][:16]
    with torch.inference_mode():
        compiled = torch.compile(calibrated, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(images), calibrated(images), atol=1e-5, rtol=0)


def test_what_is_no_classifier_is_not_called_a_damaged_file(calibrated, trained, tmp_path):
    calibrated.save(tmp_path / "model.densecal")
    for classifier, message in (
        (None, r"must be an nn\.Module, got NoneType\."),
        ("resnet18", r"must be an nn\.Module, got str\. Build the network and load the weights into it first"),
        (trained[0].state_dict(), r"must be an nn\.Module, got OrderedDict\. Build the network"),
    ):
        with pytest.raises(TypeError, match=message):
            CalibratedModel.load(tmp_path / "model.densecal", classifier)


def test_a_compiled_head_is_what_the_model_runs(calibrated, trained):
    model = copy.deepcopy(calibrated)
    seen = []

    def backend(graph, _):
        seen.append(graph)
        return graph.forward

    with torch.inference_mode():
        expected = model(trained[2][0][:16])
        model.head.compile(backend=backend)
        torch.testing.assert_close(model(trained[2][0][:16]), expected, atol=1e-5, rtol=0)
    assert seen, "the model went past the compiled head"


def test_the_head_exports_with_a_free_batch_size(calibrated, trained):
    logits, features = head_inputs(calibrated, trained[2][0][:16])
    batch = torch.export.Dim("batch", min=1, max=4096)
    shapes = ({0: batch}, [{0: batch}] * len(features))
    program = torch.export.export(calibrated.head, (logits, features), dynamic_shapes=shapes)
    many_logits, many_features = head_inputs(calibrated, trained[2][0][:300])
    torch.testing.assert_close(
        program.module()(many_logits, many_features), calibrated.head(many_logits, many_features), atol=1e-5, rtol=0
    )


def test_the_whole_model_exports_with_a_free_batch_size_as_the_classifier_would(calibrated, trained, tmp_path):
    images = trained[2][0]
    program = torch.export.export(calibrated, (images[:4],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, tmp_path / "model.pt2")
    served = torch.export.load(tmp_path / "model.pt2").module()
    for batch in (images[:1], images[:300]):
        torch.testing.assert_close(served(batch), calibrated(batch), atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated, and warns of every shape that is compared
@pytest.mark.parametrize("fit", ["clean", "shift"])
def test_the_whole_model_is_traced_for_any_batch_size(calibrated, trained, measured, shift_fitted, fit):
    images = trained[2][0]
    model = calibrated if fit == "clean" else CalibratedModel(trained[0], shift_fitted, measured[1])
    served = torch.jit.trace(model, images[:4])
    torch.testing.assert_close(served(images[:30]), model(images[:30]), rtol=1e-5, atol=1e-6)


def test_a_model_with_the_signature_of_its_classifier_can_be_pickled_and_copied(calibrated, trained):
    assert list(inspect.signature(calibrated.forward).parameters) == ["input"]
    assert repr(calibrated).startswith("CalibratedModel(")
    for copied in (pickle.loads(pickle.dumps(calibrated)), copy.deepcopy(calibrated)):
        assert type(copied) is type(calibrated)
        torch.testing.assert_close(copied(trained[2][0][:5]), calibrated(trained[2][0][:5]))


def test_a_shift_fitted_dac_is_served_compiled_and_exported_as_it_was_fitted(trained, measured, shift_fitted):
    model = CalibratedModel(trained[0], shift_fitted, measured[1])
    val = measured[2][1]
    with torch.inference_mode():
        details = model.details(trained[2][0])
    expected = shift_fitted.temperatures(features=val.features, logits=val.logits)
    np.testing.assert_allclose(details.temperature, expected, rtol=1e-4)
    np.testing.assert_allclose(
        details.probabilities, shift_fitted.predict_proba(val.logits, features=val.features), atol=5e-5
    )
    logits, features = head_inputs(model, trained[2][0][:16])
    compiled = torch.compile(model.head, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, features), model.head(logits, features), atol=1e-5, rtol=0)
    batch = torch.export.Dim("batch", min=1, max=4096)
    shapes = ({0: batch}, [{0: batch}] * len(features))
    program = torch.export.export(model.head, (logits, features), dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(logits, features), model.head(logits, features), atol=1e-5, rtol=0)


# Save and load


def test_a_saved_model_comes_back_with_the_same_probabilities(calibrated, trained, tmp_path):
    calibrated.save(tmp_path / "model.densecal")
    again = CalibratedModel.load(tmp_path / "model.densecal", copy.deepcopy(trained[0]))
    with torch.inference_mode():
        torch.testing.assert_close(again(trained[2][0]), calibrated(trained[2][0]), atol=1e-6, rtol=0)
    assert again.layers == calibrated.layers


def test_the_core_reads_the_same_file(calibrated, measured, trained, tmp_path):
    calibrated.save(tmp_path / "model.densecal")
    core = densecal.load(tmp_path / "model.densecal")
    val = measured[2][1]
    with torch.inference_mode():
        expected = calibrated(trained[2][0])
    np.testing.assert_allclose(core.predict_proba(val.logits, features=val.features), expected, atol=1e-5)


def test_a_file_with_a_half_precision_bank_is_smaller_and_nearly_as_good(calibrated, trained, tmp_path):
    calibrated.save(tmp_path / "full.densecal")
    calibrated.save(tmp_path / "half.densecal", half_precision_bank=True)
    sizes = [(tmp_path / name).stat().st_size for name in ("half.densecal", "full.densecal")]
    assert sizes[0] < 0.6 * sizes[1]
    again = CalibratedModel.load(tmp_path / "half.densecal", trained[0])
    with torch.inference_mode():
        assert (again(trained[2][0]) - calibrated(trained[2][0])).abs().max() < 2e-3
    again.capture.remove()


def test_another_classifier_is_refused_unless_told_otherwise(calibrated, trained, tmp_path):
    calibrated.save(tmp_path / "model.densecal")
    further = copy.deepcopy(trained[0])
    with torch.no_grad():
        for parameter in further.parameters():
            parameter.add_(1e-3 * torch.randn_like(parameter))
    with pytest.raises(ArtefactError, match=r"does not belong to this classifier: the weights of .* differ"):
        CalibratedModel.load(tmp_path / "model.densecal", further)
    with pytest.raises(ArtefactError, match="of another architecture"):
        CalibratedModel.load(tmp_path / "model.densecal", nn.Sequential(nn.Flatten(), nn.Linear(192, 4)))
    overridden = CalibratedModel.load(tmp_path / "model.densecal", further, check_classifier=False)
    assert overridden.layers == calibrated.layers


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.bfloat16, nn.Module.double, torch.compile])
def test_the_same_classifier_in_another_precision_or_compiled_is_the_same_classifier(
    calibrated, trained, tmp_path, change
):
    calibrated.save(tmp_path / "model.densecal")
    again = CalibratedModel.load(tmp_path / "model.densecal", change(copy.deepcopy(trained[0])))
    assert again.layers == calibrated.layers


def test_logits_of_another_number_of_classes_are_refused(calibrated, trained):
    _, logits, features = calibrated._run((trained[2][0][:2],), {})
    with pytest.raises(ValueError, match=r"fitted on \d+ classes, but got 2 logits"):
        calibrated.head(logits[:, :2], features)


def test_a_file_without_a_model_says_what_to_do(measured, trained, tmp_path):
    measured[0].save(tmp_path / "core.densecal")
    with pytest.raises(ArtefactError, match="saved without a model"):
        CalibratedModel.load(tmp_path / "core.densecal", trained[0])


def test_dac_without_a_bank_or_not_at_the_start_is_refused(trained, measured):
    dac = copy.deepcopy(measured[0].stages[0])
    with pytest.raises(ValueError, match=r"layouts lacks the layers \['3', '6', '9'\]"):
        CalibratedModel(trained[0], dac, {})
    dac.bank = None
    with pytest.raises(ValueError, match="fitted on distances, without a bank"):
        CalibratedModel(trained[0], dac, measured[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cpu_and_gpu_agree_and_a_model_saved_on_one_loads_on_the_other(calibrated, trained, tmp_path):
    images = trained[2][0]
    on_gpu = copy.deepcopy(calibrated).cuda()
    with torch.inference_mode():
        expected, got = calibrated(images), on_gpu(images.cuda()).cpu()
    assert (got - expected).abs().max() < 2e-3
    on_gpu.save(tmp_path / "gpu.densecal")
    again = CalibratedModel.load(tmp_path / "gpu.densecal", copy.deepcopy(trained[0]))
    with torch.inference_mode():
        torch.testing.assert_close(again(images), expected, atol=1e-5, rtol=0)
    calibrated.save(tmp_path / "cpu.densecal")
    back = CalibratedModel.load(tmp_path / "cpu.densecal", copy.deepcopy(trained[0]).cuda())
    with torch.inference_mode():
        torch.testing.assert_close(back(images.cuda()), on_gpu(images.cuda()), atol=1e-5, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_shift_fitted_model_answers_on_the_gpu_as_on_the_cpu(measured, shift_fitted, trained):
    model = CalibratedModel(copy.deepcopy(trained[0]), shift_fitted, measured[1])
    images = trained[2][0]
    with torch.inference_mode():
        expected = model.details(images)
        got = model.cuda().details(images.cuda())
    torch.testing.assert_close(got.temperature.cpu(), expected.temperature, atol=0, rtol=5e-3)
    assert (got.probabilities.cpu() - expected.probabilities).abs().max() < 2e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_pickled_on_the_gpu_is_read_where_there_is_none(calibrated, trained):
    kept = io.BytesIO()
    torch.save(copy.deepcopy(calibrated).cuda(), kept)
    kept.seek(0)
    again = torch.load(kept, map_location="cpu", weights_only=False)
    with torch.inference_mode():
        torch.testing.assert_close(again(trained[2][0][:9]), calibrated(trained[2][0][:9]), atol=1e-5, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["paper", "shift-fitted"])
def test_a_head_compiled_into_a_cuda_graph_gives_answers_that_last(measured, shift_fitted, trained, kind):
    fitted = measured[0] if kind == "paper" else shift_fitted
    model = CalibratedModel(copy.deepcopy(trained[0]), fitted, measured[1]).cuda()
    batches = trained[2][0].cuda()[:192].split(64)
    with torch.inference_mode():
        expected = [model(batch) for batch in batches]
        model.head.compile(mode="reduce-overhead")
        for _ in range(2):
            model(batches[0])
        got = [model(batch) for batch in batches]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("strict", [False, True])
def test_a_head_exported_on_the_gpu_runs_where_there_is_no_triton(measured, trained, strict):
    model = CalibratedModel(copy.deepcopy(trained[0]), measured[0], measured[1]).cuda()
    with torch.inference_mode():
        given = model._run((trained[2][0][:9].cuda(),), {})[1:]
        expected = model.head(*given)
    program = torch.export.export(model.head, given, strict=strict)
    assert not [node for node in program.graph.nodes if "triton" in str(node.target)]
    torch.testing.assert_close(program.module()(*given), expected, atol=1e-3, rtol=0)


def test_a_mask_given_by_position_counts_the_same_tokens_as_one_given_by_name():
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.out = nn.Embedding(20, 6), nn.Linear(6, 3)

        def forward(self, words, attention_mask=None):
            mask = attention_mask[:, :, None].float()
            return self.out((self.embedding(words) * mask).sum(dim=1) / mask.sum(dim=1))

    torch.manual_seed(0)
    text = Text().eval()
    words = torch.randint(20, (40, 5))
    mask = (torch.arange(5) < torch.randint(2, 6, (40, 1))).long()
    dac = densecal.DAC(densecal.FeatureBank({"embedding": torch.randn(30, 6)}, k=3))
    with torch.inference_mode():
        logits = text(words, mask)
    dac.fit(logits, logits.argmax(dim=1).flip(0), distances=torch.rand(40, 1))
    dac.weights_, dac.bias_ = np.array([1.0]), 0.5
    model = CalibratedModel(text, dac, {"embedding": Layout("last")})
    with torch.inference_mode():
        by_name, by_position = model.details(words, attention_mask=mask), model.details(words, mask)
        longer = model.details(torch.cat([words, words], dim=1), torch.cat([mask, 0 * mask], dim=1))
    assert torch.equal(by_name.distances["embedding"], by_position.distances["embedding"])
    torch.testing.assert_close(longer.distances["embedding"], by_name.distances["embedding"])
