"""Extraction: correct values, no side effects on the model, and clear error messages."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from densecal.torch import extract, extract_to  # noqa: E402
from densecal.torch.features.capture import on_device  # noqa: E402


def test_features_are_the_averages_of_what_each_layer_gave_in_evaluation_mode(net, data):
    got = extract(net, DataLoader(data, batch_size=5), ["stem", "body", "logits"])
    net.eval()
    images, labels = data.tensors
    with torch.no_grad():
        stem = net.stem(images)
        body = net.body(net.pool(stem))
        logits = net(images)
    np.testing.assert_allclose(got.features["stem"], stem.mean(dim=(2, 3)), atol=1e-6)
    np.testing.assert_allclose(got.features["body"], body.mean(dim=(2, 3)), atol=1e-6)
    np.testing.assert_allclose(got.logits, logits, atol=1e-6)
    np.testing.assert_array_equal(got.features["logits"], got.logits)
    np.testing.assert_array_equal(got.labels, labels)


def test_batches_without_samples_are_skipped(net, data, tmp_path):
    images, labels = data.tensors
    none = (images[:0], labels[:0])
    with_gaps = [none, (images[:10], labels[:10]), none, (images[10:], labels[10:])]
    expected = extract(net, [(images[:10], labels[:10]), (images[10:], labels[10:])])
    for got in (extract(net, with_gaps), extract_to(tmp_path / "all.safetensors", net, with_gaps)):
        np.testing.assert_array_equal(got.labels, labels)
        for layer in expected.layers:
            np.testing.assert_array_equal(got.features[layer], expected.features[layer])
    with pytest.raises(ValueError, match="yielded no batches"):
        extract(net, [none])


def test_layers_are_chosen_right_while_other_threads_run_the_same_classifier(net, data):
    images = data.tensors[0]
    expected = extract(net.eval(), [images]).layers
    stop = threading.Event()

    def serve():
        with torch.inference_mode():
            while not stop.is_set():
                net(images[:2])

    with ThreadPoolExecutor(2) as pool:
        served = [pool.submit(serve) for _ in range(2)]
        try:
            found = {extract(net, [images], progress=False).layers for _ in range(30)}
        finally:
            stop.set()
        for future in served:
            future.result()
    assert found == {expected}


def test_of_several_outputs_that_could_be_logits_none_is_guessed(data):
    class WithFeatures(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = nn.LazyLinear(7), nn.Linear(7, 3)

        def forward(self, x):
            features = self.body(x.flatten(1))
            return features, self.out(features)

    images = data.tensors[0]
    with pytest.raises(TypeError, match=r"several tensors, of shapes \(\d+, 7\) and \(\d+, 3\)"):
        extract(WithFeatures(), [images])

    class WithMore(WithFeatures):
        def forward(self, x):
            features, logits = super().forward(x)
            return logits, features, logits[:, :1], logits.topk(2).indices

    assert extract(WithMore(), [images]).n_classes == 3


def test_a_layer_keeps_its_own_values_though_the_next_one_works_in_place():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
    x = torch.randn(9, 4)
    with torch.no_grad():
        linear = model[0](x)
    for autocast in (None, torch.bfloat16):
        got = extract(model, [x], ["0", "1"], autocast=autocast).features
        tolerance = 1e-6 if autocast is None else 0.02
        np.testing.assert_allclose(got["0"], linear, atol=tolerance)
        np.testing.assert_allclose(got["1"], linear.relu(), atol=tolerance)
    assert linear.min() < 0


def test_the_model_is_left_in_its_own_mode_without_hooks_and_unchanged(net, data, hooks_on):
    net.train()
    net.drop.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    extract(net, DataLoader(data, batch_size=5))
    assert net.training and net.stem.training and not net.drop.training
    assert hooks_on(net) == 0
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_an_exception_in_the_middle_leaves_nothing_behind(net, data, hooks_on):
    def broken():
        yield from list(DataLoader(data, batch_size=5))[:2]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        extract(net, broken())
    assert net.training and hooks_on(net) == 0


@pytest.mark.parametrize("batch_size", [1, 23, 100])
def test_any_batch_size_gives_the_same_outputs(net, data, batch_size):
    expected = extract(net, DataLoader(data, batch_size=5))
    got = extract(net, DataLoader(data, batch_size=batch_size))
    for layer in expected.layers:
        np.testing.assert_allclose(got.features[layer], expected.features[layer], atol=1e-6)


def test_layers_are_matched_by_name_whatever_order_they_run_in():
    class Swapped(nn.Module):
        """Runs its two branches in an order that depends on the batch."""

        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = nn.Linear(3, 5), nn.Linear(3, 7), nn.Linear(12, 2)

        def forward(self, x):
            if x[0, 0] > 0:
                a, b = self.a(x), self.b(x)
            else:
                b, a = self.b(x), self.a(x)
            return self.out(torch.cat([a, b], dim=1))

    model = Swapped()
    batches = [torch.ones(2, 3), -torch.ones(2, 3)]
    got = extract(model, batches, ["a", "b"])
    assert {layer: array.shape for layer, array in got.features.items()} == {"a": (4, 5), "b": (4, 7)}
    np.testing.assert_allclose(got.features["a"], model.a(torch.cat(batches)).detach(), atol=1e-6)


def test_a_layer_that_runs_twice_in_a_later_batch_is_an_error_that_says_so(hooks_on):
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.out = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            x = self.a(x)
            return self.out(self.a(x) if x.shape[0] == 3 else x)

    model = Sometimes()
    with pytest.raises(ValueError, match=r"'a' ran twice in one forward pass.*modules around it"):
        extract(model, [torch.ones(2, 3), torch.ones(3, 3)], ["a"])
    assert hooks_on(model) == 0


def test_a_layer_that_skips_a_batch_is_an_error_that_names_it():
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.out = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.out(self.a(x) if x[0, 0] > 0 else x)

    with pytest.raises(ValueError, match=r"\['a'\] did not run in this forward pass"):
        extract(Skips(), [torch.ones(2, 3), -torch.ones(2, 3)], ["a"])


def test_a_layer_of_changing_width_is_an_error_that_names_it():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.flat, self.out = nn.Flatten(), nn.LazyLinear(2)

        def forward(self, x):
            return self.out(self.flat(x)[:, :4])

    model = Grows()
    model(torch.ones(1, 4, 4))
    with pytest.raises(ValueError, match="width of layer 'flat' changed from 16 to 25 in batch 1"):
        extract(model, [torch.ones(2, 4, 4), torch.ones(2, 5, 5)], ["flat"])


def test_nan_activations_are_an_error_that_names_batch_and_layer(net, data):
    images, labels = data.tensors
    bad = images.clone()
    bad[7] = float("nan")
    with pytest.raises(ValueError, match=r"NaN or infinite activations in batch 1, in the layers \['body', 'logits'\]"):
        extract(net, [(images, labels), (bad, labels)], ["body"])


def test_an_overflow_of_float16_features_is_found_and_explained():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    nn.init.constant_(model[0].weight, 1e6)
    with pytest.raises(ValueError, match="float16 maximum is 65,504"):
        extract(model, [torch.ones(2, 2)], ["0"], feature_dtype=torch.float16)


def test_features_may_be_float16_while_logits_stay_float32(net, data):
    got = extract(net, DataLoader(data, batch_size=5), feature_dtype=torch.float16)
    assert {array.dtype for array in got.features.values()} == {np.dtype(np.float16)}
    assert got.logits.dtype == np.float32


def test_autocast_runs_in_half_precision_and_averages_in_float32(net, data):
    plain = extract(net, DataLoader(data, batch_size=5), ["stem", "logits"])
    mixed = extract(net, DataLoader(data, batch_size=5), ["stem", "logits"], autocast=torch.bfloat16)
    assert mixed.features["stem"].dtype == np.float32
    np.testing.assert_allclose(mixed.logits, plain.logits, atol=0.05)
    assert not np.array_equal(mixed.logits, plain.logits)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.rand(5), TypeError, "labels must be integers"),
        (torch.full((5,), 4), ValueError, "labels must lie in 0 ... 3"),
    ],
)
def test_bad_labels_are_refused_at_once(net, labels, error, message):
    with pytest.raises(error, match=message):
        extract(net, [(torch.zeros(5, 3, 8, 8), labels)])


def test_an_empty_loader_and_an_odd_batch_are_explained(net):
    with pytest.raises(ValueError, match="loader yielded no batches"):
        extract(net, [])
    with pytest.raises(TypeError, match=r"A batch must be a tensor of inputs, a tuple.*got str.*batch_fn"):
        extract(net, ["images"])
    with pytest.raises(ValueError, match="Only 1 of 2 batches have labels"):
        extract(net, [(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1])), torch.zeros(2, 3, 8, 8)])


def test_an_output_without_logits_is_explained():
    class Boxes(nn.Module):
        def forward(self, x):
            return {"boxes": x[None], "masks": x[None]}

    with pytest.raises(TypeError, match=r"returned dict with the keys \['boxes', 'masks'\].*'logits'"):
        extract(Boxes(), [torch.zeros(2, 3)])
    with pytest.raises(ValueError, match=r"must have shape \(n_samples, n_classes\)"):
        extract(nn.Identity(), [torch.zeros(2, 3, 4)])


def test_one_extraction_that_ends_does_not_put_the_model_of_another_into_training_mode(net, data, hooks_on):
    expected = extract(net, DataLoader(data, batch_size=5)).logits
    net.train()
    started, ended = threading.Event(), threading.Event()
    found = {}

    def slow():
        batches = iter(DataLoader(data, batch_size=5))
        yield next(batches)
        started.set()
        assert ended.wait(20)
        yield from batches

    def run():
        found["slow"] = extract(net, slow(), progress=False).logits

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(20)
    found["quick"] = extract(net, DataLoader(data, batch_size=5)).logits
    ended.set()
    thread.join()
    for logits in found.values():
        np.testing.assert_allclose(logits, expected, atol=1e-6)
    assert all(module.training for module in net.modules()) and hooks_on(net) == 0


def test_a_model_cannot_run_on_two_devices_at_once(net):
    with on_device(net, torch.device("cpu")):
        with on_device(net, torch.device("cpu", 0)):
            pass
        with pytest.raises(RuntimeError, match="is in use on cpu by another thread"):
            on_device(net, torch.device("meta")).__enter__()


def test_hooks_that_two_threads_add_at_once_have_different_numbers(net, monkeypatch):
    from densecal.torch.features import capture as captures

    inside, overlaps = [], []
    register = nn.Module.register_forward_hook

    def slow_register(self, *args, **kwargs):
        inside.append(self)
        overlaps.append(len(inside))
        time.sleep(0.01)
        handle = register(self, *args, **kwargs)
        inside.pop()
        return handle

    monkeypatch.setattr(nn.Module, "register_forward_hook", slow_register)
    layouts = dict.fromkeys(["body", "out"], None)
    threads = [threading.Thread(target=captures.LayerCapture, args=(net, layouts)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(overlaps) == 1
