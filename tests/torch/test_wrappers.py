"""Compiled and data-parallel classifiers behave like the classifiers they wrap, and share their files."""

from __future__ import annotations

import copy
import re
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from densecal.torch import CalibratedModel, calibrate, extract  # noqa: E402
from densecal.torch.features.capture import uncompiled  # noqa: E402
from densecal.torch.features.layers import select_from  # noqa: E402
from densecal.torch.features.trace import trace  # noqa: E402
from densecal.torch.wrappers import find_layers  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # DataParallel uses a GPU if there is one.


@pytest.fixture(autouse=True)
def _fresh_compiler():
    # torch.compile may reuse code compiled for another classifier of the same architecture.
    torch.compiler.reset()


def compiled(model):
    return torch.compile(model, backend="eager")


def parallel(model):
    # On several GPUs the layers of its replicas cannot be read.
    return nn.DataParallel(model, device_ids=[0] if DEVICE == "cuda" else None)


def copy_of(trained):
    return copy.deepcopy(trained[0]).to(DEVICE)


def inner_compiled(model):
    model[4] = compiled(model[4])
    return nn.Sequential(*model)


WRAPPERS = {
    "bare": lambda model: model,
    "compiled": compiled,
    "data-parallel": parallel,
    "both": lambda model: parallel(compiled(model)),
    "compiled within": inner_compiled,
}


@pytest.mark.parametrize("now", WRAPPERS)
@pytest.mark.parametrize("then", WRAPPERS)
def test_a_model_saved_in_one_wrapper_loads_in_another(then, now, trained, measured, tmp_path):
    chain, layouts, _ = measured
    images = trained[2][0][:50].to(DEVICE)
    source = CalibratedModel(WRAPPERS[then](copy_of(trained)), chain, layouts).to(DEVICE)
    source.save(tmp_path / "model.densecal")
    again = CalibratedModel.load(tmp_path / "model.densecal", WRAPPERS[now](copy_of(trained)))
    with torch.inference_mode():
        got, expected = again.details(images), source.details(images)
    assert list(got.distances) == list(expected.distances) == ["3", "6", "9", "logits"]
    torch.testing.assert_close(got.probabilities, expected.probabilities, atol=1e-5, rtol=0)


@pytest.mark.parametrize("wrapper", ["compiled", "data-parallel", "both"])
def test_layers_named_as_the_wrapped_classifier_names_them_are_found(wrapper, trained, measured):
    chain, layouts, (_, val) = measured
    wrapped = WRAPPERS[wrapper](copy_of(trained))
    prefix = {"compiled": "_orig_mod.", "data-parallel": "module.", "both": "module._orig_mod."}[wrapper]
    named = {layer: layer if layer == "logits" else prefix + layer for layer in chain.stages[0].layers_}
    renamed = copy.deepcopy(chain)
    dac = renamed.stages[0]
    dac.layers_ = [named[layer] for layer in dac.layers_]
    dac.layer_importance_ = {named[layer]: share for layer, share in dac.layer_importance_.items()}
    bank = dac.bank.select(dac.bank.layers)
    bank._features = {named[layer]: dac.bank[layer] for layer in dac.bank.layers}
    dac.bank = bank
    model = CalibratedModel(wrapped, renamed, {named[layer]: layout for layer, layout in layouts.items()}).to(DEVICE)
    assert model.layers == ("3", "6", "9", "logits")
    assert model.calibrator.stages[0].layers_ == ["3", "6", "9", "logits"]
    with torch.inference_mode():
        got = model(trained[2][0].to(DEVICE)).cpu()
    expected = torch.from_numpy(chain.predict_proba(val.logits, features=val.features))
    torch.testing.assert_close(got, expected.float(), atol=1e-5 if DEVICE == "cpu" else 2e-3, rtol=0)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_classifier_that_ran_compiled_before_is_not_read_in_vain(trained, measured, in_place):
    classifier = copy.deepcopy(trained[0])
    if in_place:
        classifier.compile(backend="eager")
    else:
        classifier = compiled(classifier)
    images = trained[2][0][:50]
    with torch.inference_mode():
        classifier(images)
        model = CalibratedModel(classifier, measured[0], measured[1])
        expected = CalibratedModel(copy.deepcopy(trained[0]), measured[0], measured[1])(images)
        try:
            # Some releases of torch run new hooks of modules compiled in place.
            torch.testing.assert_close(model(images), expected, atol=1e-5, rtol=0)
        except RuntimeError as error:
            assert re.search(r"ran before it was calibrated.*torch\.compiler\.reset\(\)", str(error))
            torch.compiler.reset()
            torch.testing.assert_close(model(images), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("part", ["whole", "within"])
def test_layers_that_run_unseen_since_the_classifier_ran_compiled_before_are_not_left_out(part):
    bare = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    classifier = compiled(bare) if part == "whole" else nn.Sequential(compiled(bare[:2]), bare[2])
    x = torch.randn(20, 4)
    with torch.inference_mode():
        classifier(x[:2])
    (hidden,) = (name for name, module in classifier.named_modules() if isinstance(module, nn.ReLU))
    assert len(extract(classifier, [x], "auto").layers) == 2, "the hidden layer and the logits"
    np.testing.assert_allclose(extract(classifier, [x], [hidden]).features[hidden], bare[:2](x).detach(), atol=1e-6)


def test_threads_that_extract_at_once_leave_torch_compile_on():
    first_in, last_out = threading.Event(), threading.Event()

    def first():
        with uncompiled():
            first_in.set()
            last_out.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    first_in.wait(10)
    with uncompiled():
        last_out.set()
        thread.join()
    ran = []
    compiled_function = torch.compile(torch.sin, backend=lambda graph, _: ran.append(graph) or graph)
    compiled_function(torch.ones(2))
    assert ran, "torch.compile no longer compiles"


@pytest.mark.filterwarnings("ignore::densecal.errors.CalibrationWarning")
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_calibrate_names_the_layers_that_it_chose_as_the_bare_classifier_does(wrapper, trained):
    _, train, (images, labels) = trained
    classifier = WRAPPERS[wrapper](copy_of(trained))
    model = calibrate(classifier, [train], [(images, labels)], method="dac", k=10, progress=False)
    assert model.choices["layers"] == "3, 6, 10, logits"
    with torch.inference_mode():
        answers, plain = (given(images[:50].to(DEVICE)).argmax(dim=1) for given in (model, copy_of(trained)))
    assert torch.equal(answers, plain)


def test_copies_on_several_gpus_are_refused_in_words(trained, measured):
    several = nn.DataParallel(copy.deepcopy(trained[0]))
    several.device_ids = [0, 1]
    with pytest.raises(ValueError, match="replicas of the classifier on 2 GPUs"):
        CalibratedModel(several, measured[0], measured[1])
    traced = trace(trained[0], trained[2][0][:4])
    with pytest.raises(ValueError, match="replicas of the classifier on 2 GPUs"):
        select_from(traced, several, "auto")
    assert select_from(traced, several, "logits") == ("logits",), "their output alone can be read"


def test_a_name_with_two_meanings_or_none_is_rejected():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Sequential(nn.ReLU())
            self.add_module("0", nn.ReLU())

    assert find_layers(Own(), ["module.0", "0"]) == {"module.0": ("module.0", "module.0"), "0": ("0", "0")}
    with pytest.raises(ValueError, match=r"matches all of \['0', 'module\.0'\]"):
        find_layers(nn.DataParallel(Own()), ["module.0"])
    with pytest.raises(ValueError, match="'17' cannot be found in this Own"):
        find_layers(Own(), ["17"])
