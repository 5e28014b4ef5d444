"""The fingerprint detects any change of the weights, and ignores what does not change the classifier."""

from __future__ import annotations

import copy
import json

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from densecal import ArtefactError  # noqa: E402
from densecal.torch.fingerprint import differences, fingerprint  # noqa: E402


def classifier(blocks=20, width=24):
    torch.manual_seed(0)
    layers = [
        layer
        for _ in range(blocks)
        for layer in (nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.Linear(width, 5)).eval()


def saved(model):
    """The fingerprint as read from a file."""
    return json.loads(json.dumps(fingerprint(model)))


@pytest.fixture(scope="module")
def model():
    return classifier()


def test_every_single_tensor_is_looked_at(model):
    expected = saved(model)
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.state_dict()[name].view(-1)[-1] += 1e-3
        assert repr(name) in (differences(expected, other) or ""), f"a change of {name} was not detected"


def test_one_step_of_sgd_is_seen_in_the_last_layer_alone(model):
    other = copy.deepcopy(model)
    optimiser = torch.optim.SGD(other[-1].parameters(), lr=1e-2)
    nn.functional.cross_entropy(other(torch.randn(8, 24)), torch.arange(8) % 5).backward()
    optimiser.step()
    assert "'60." in differences(saved(model), other)


def test_values_that_have_changed_places_are_seen(model):
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.copy_(model[0].weight.flip(0))
    assert "'0.weight'" in differences(saved(model), other)


def test_a_training_mode_forward_that_moves_the_batch_norms_is_seen(model):
    other = copy.deepcopy(model).train()
    other(torch.randn(8, 24))
    assert "running_mean" in differences(saved(model), other)


TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("then", TYPES)
@pytest.mark.parametrize("now", TYPES)
def test_the_same_classifier_is_accepted_from_any_type_in_any_other(model, then, now):
    assert differences(saved(copy.deepcopy(model).to(then)), copy.deepcopy(model).to(now)) is None


@pytest.mark.parametrize("then", TYPES)
@pytest.mark.parametrize("now", TYPES)
@pytest.mark.parametrize("layer", [60, 27])
def test_a_retrained_layer_is_refused_from_any_type_in_any_other(model, then, now, layer):
    other = copy.deepcopy(model)
    nn.init.normal_(other[layer].weight, std=0.1)
    assert repr(f"{layer}.weight") in differences(saved(copy.deepcopy(model).to(then)), other.to(now))


def test_weights_too_small_or_too_large_for_float16_are_the_same_there(model):
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.mul_(1e-7)
        other[3].weight.mul_(1e7)
    assert differences(saved(other), copy.deepcopy(other).half()) is None
    assert differences(saved(copy.deepcopy(other).half()), other) is None


def test_a_nan_is_equal_to_a_nan_in_the_same_place():
    model = classifier(1)
    model.register_buffer("unused", torch.tensor([1.0, float("nan"), float("inf"), 2.0]))
    expected = saved(model)
    assert differences(expected, model) is None
    assert differences(expected, copy.deepcopy(model).half()) is None
    other = copy.deepcopy(model)
    other.unused = model.unused[[1, 0, 2, 3]]
    assert "'unused'" in differences(expected, other)


def test_memory_format_and_wrappers_make_no_difference():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(nn.Conv2d(8, 8, 3)))
    expected = saved(model)
    assert differences(expected, copy.deepcopy(model).to(memory_format=torch.channels_last)) is None
    inner = copy.deepcopy(model)
    inner[1] = torch.compile(inner[1])
    for other in (torch.compile(model), nn.DataParallel(model), nn.DataParallel(torch.compile(model)), inner):
        assert differences(expected, other) is None
        assert differences(saved(other), model) is None


def test_a_classifier_may_have_a_part_that_is_called_as_the_wrappers_call_it():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Sequential(nn.Linear(3, 3))
            self.add_module("0", nn.Linear(3, 3))

    model = Own()
    expected = saved(model)
    for other in (model, nn.DataParallel(model), torch.compile(model)):
        assert differences(expected, other) is None
    for layer in (model.module[0], model.get_submodule("0")):
        before = layer.weight.detach().clone()
        nn.init.normal_(layer.weight)
        assert differences(expected, model) is not None
        with torch.no_grad():
            layer.weight.copy_(before)


def test_tensors_that_are_whole_numbers_and_state_that_is_no_tensor_are_no_obstacle():
    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("codes", torch.arange(6, dtype=torch.int8))
            self.register_buffer("empty", torch.empty(0))
            self.register_buffer("phase", torch.ones(2, dtype=torch.complex64))

        def get_extra_state(self):
            return {"any": "thing"}

        def set_extra_state(self, state):
            pass

    expected, other = saved(Quantised()), Quantised()
    assert differences(expected, Quantised()) is None
    other.codes[2] += 1
    assert "'codes'" in differences(expected, other)


def test_a_fingerprint_of_an_unknown_kind_is_an_error_in_words(model):
    with pytest.raises(ArtefactError, match="fingerprint"):
        differences({"class": "Sequential", "shapes": saved(model)["shapes"]}, model)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("now", TYPES)
def test_a_classifier_on_the_gpu_is_the_one_from_the_cpu(model, now):
    assert differences(saved(model), copy.deepcopy(model).cuda().to(now)) is None
    assert differences(saved(copy.deepcopy(model).cuda().to(now)), model) is None
