"""The forms of a batch: the conventions, batch_fn for any other, and errors that show how to write it."""

from __future__ import annotations

import re
import warnings
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from densecal.errors import CalibrationWarning  # noqa: E402
from densecal.torch import calibrate, extract, select_layers  # noqa: E402
from densecal.torch.batches import split_batch  # noqa: E402


class SeriesLike(list):
    """Labels whose index lacks 0, like those of a part of a pandas Series."""

    def __getitem__(self, index):
        raise KeyError(index)

    def __array__(self, dtype=None, copy=None):
        return np.array([int(label) for label in self], dtype)


def test_batches_may_be_tensors_tuples_lists_or_mappings(net):
    images, labels = torch.randn(23, 3, 8, 8), torch.arange(23) % 4
    expected = extract(net, [(images, labels)])
    for batch in (
        [images, labels],
        (images, labels[:, None]),
        (images, labels.numpy()),
        (images, labels.numpy().astype(np.uint8)),
        (images, labels.numpy().astype(np.uint16)),
        (images, labels.numpy().astype(">i4")),
        (images, labels.flip(0).numpy()[::-1]),
        (images, labels.flip(0).numpy().astype(">f4")[::-1]),
        (images, SeriesLike(labels)),
        (images, list(torch.nn.functional.one_hot(labels, 4))),
        (images, labels.tolist()),
        (images, list(labels)),
        (images, labels.float()),
        (images, torch.nn.functional.one_hot(labels, 4)),
        ((images,), labels),
        ({"x": images}, labels.tolist()),
        {"x": images, "labels": labels},
        {"x": images, "label": labels[:, None].numpy()},
        {"label": labels, "labels": None, "x": images},
    ):
        got = extract(net, [batch])
        np.testing.assert_allclose(got.logits, expected.logits, atol=1e-6)
        np.testing.assert_array_equal(got.labels, expected.labels)
    for batch in (images, (images,), [images], {"x": images}, {"x": images, "labels": None}):
        assert extract(net, [batch]).labels is None


BATCH_FNS = {
    "labels that are not second": (lambda x, y: (x, y, torch.arange(len(x))), lambda b: ((b[0],), {}, b[1])),
    "labels that are last": (lambda x, y: (torch.arange(len(x)), x, y), lambda b: ((b[1],), {}, b[2])),
    "another key": (lambda x, y: {"image": x, "target": y}, lambda b: ((), {"x": b["image"]}, b["target"])),
    "an item that forward does not take": (
        lambda x, y: {"x": x, "path": ["a"] * len(x), "label": y},
        lambda b: ((b["x"],), {}, b["label"]),
    ),
    "soft labels": (
        lambda x, y: (x, 0.9 * torch.nn.functional.one_hot(y, 4) + 0.025),
        lambda b: ((b[0],), {}, b[1].argmax(dim=1)),
    ),
    "no labels": (lambda x, y: (x, ["a"] * len(x)), lambda b: ((b[0],), {}, None)),
}


@pytest.mark.parametrize("case", BATCH_FNS)
def test_any_other_batch_goes_through_batch_fn_and_the_error_without_it_names_it(case, net):
    images, labels = torch.randn(23, 3, 8, 8), torch.arange(23) % 4
    pack, batch_fn = BATCH_FNS[case]
    with pytest.raises((TypeError, ValueError), match=r"batch_fn=lambda batch: \("):
        extract(net, [pack(images, labels)])
    got, expected = extract(net, [pack(images, labels)], batch_fn=batch_fn), extract(net, [(images, labels)])
    np.testing.assert_allclose(got.logits, expected.logits, atol=1e-6)
    if case == "no labels":
        assert got.labels is None
    else:
        np.testing.assert_array_equal(got.labels, labels)


class TakesOneDict(nn.Module):
    """A text classifier whose forward takes one dict."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.hidden, self.out = nn.Embedding(50, 16), nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        mask = inputs["attention_mask"][..., None].float()
        pooled = (self.embedding(inputs["ids"]) * mask).sum(dim=1) / mask.sum(dim=1)
        return self.out(self.hidden(pooled).relu())


def test_a_classifier_whose_forward_takes_a_dict_is_read_and_calibrated():
    ids, mask, labels = padded_texts()
    model = TakesOneDict()
    batch = {"inputs": {"ids": ids, "attention_mask": mask}, "labels": labels}

    def batch_fn(batch):
        return (batch["inputs"],), {}, batch["labels"]

    layers = ["embedding", "hidden", "logits"]
    got = extract(model, [batch], layers, batch_fn=batch_fn)
    np.testing.assert_allclose(got.logits, model(batch["inputs"]).detach(), atol=1e-6)
    np.testing.assert_array_equal(got.labels, labels)
    counted = model.embedding(ids[:, :4]).mean(dim=1).detach()
    np.testing.assert_allclose(got.features["embedding"], counted, atol=1e-6, err_msg="padding must not count")
    assert select_layers(model, batch, batch_fn=batch_fn)[-1] == "logits"
    calibrated = calibrate(model, [batch], [batch] * 5, method="dac", layers=layers, k=2, batch_fn=batch_fn)
    with torch.inference_mode():
        assert torch.equal(calibrated(batch["inputs"]).argmax(1), model(batch["inputs"]).argmax(1))


def test_what_batch_fn_returns_is_checked(net):
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 4
    for wrong in (lambda b: b, lambda b: (b[0], {}, b[1]), lambda b: ((b[0],), b[1]), lambda b: None):
        with pytest.raises(TypeError, match=r"batch_fn must return \(args, kwargs, labels\)"):
            extract(net, [(images, labels)], batch_fn=wrong)


class Text(nn.Module):
    """A small text classifier that averages over the unmasked tokens."""

    def __init__(self):
        super().__init__()
        self.embedding, self.body, self.out = nn.Embedding(50, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, input_ids, attention_mask=None):
        states = self.body(self.embedding(input_ids))
        weights = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.out((states * weights[..., None]).sum(1) / weights.sum(1, keepdim=True))


@pytest.fixture
def text():
    torch.manual_seed(0)
    return Text()


def padded_texts():
    ids = torch.randint(1, 50, (8, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[:, 4:] = 0
    return ids, mask, torch.arange(8) % 3


def test_a_mappings_items_go_to_forward_by_name_in_any_order(text):
    ids, mask, labels = padded_texts()
    expected = text(ids, mask).detach()
    batch = {"attention_mask": mask, "input_ids": ids, "labels": labels}
    for model in (text, torch.compile(text, backend="eager"), nn.DataParallel(text)):
        got = extract(model, [batch], "logits")
        np.testing.assert_allclose(got.logits, expected, atol=1e-6)
        np.testing.assert_array_equal(got.labels, labels)


def test_a_batch_that_does_not_fit_forward_is_an_error_that_shows_batch_fn(text, net):
    ids, mask, labels = padded_texts()
    images, targets = torch.zeros(3, 3, 8, 8), torch.arange(3)
    for model, batch, named in (
        (
            text,
            {"ids": ids, "attention_mask": mask, "labels": labels},
            "['input_ids', 'attention_mask'], but the batch has ['ids', ",
        ),
        (text, {"input_ids": ids, "idx": targets, "labels": labels}, "but the batch has ['input_ids', 'idx']"),
        (net, {"image": images, "label": targets}, "takes ['x'], but the batch has ['image']"),
        (net, ({"image": images}, targets), "takes ['x'], but the batch has ['image']"),
        (net, {"x": images, "y": targets}, "takes ['x'], but the batch has ['x', 'y']"),
        (net, {"labels": targets}, "takes ['x'], but the batch has []"),
        (net, {"x": images, "label": targets, "labels": targets}, "both 'labels' and 'label'"),
        (net, (images, targets, targets), "got tuple of 3 items"),
        (net, [(images, targets, targets)], "got tuple of 3 items"),
    ):
        with pytest.raises(TypeError, match=rf"{re.escape(named)}.*batch_fn=lambda batch: \(\(batch\['image'\],\), "):
            extract(model, [batch])


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x)


class Scaled(Plain):
    def forward(self, x, scale, **others):
        return self.out(x * scale)


X, Y = torch.randn(6, 4), torch.arange(6) % 3


def test_forward_may_take_any_names():
    got = extract(Scaled(), [{"x": X, "scale": 1.0, "path": ["a"] * 6, "label": Y}], "logits")
    np.testing.assert_array_equal(got.labels, Y)


def test_a_batch_fn_that_raises_stop_iteration_ends_no_data(net):
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 4
    rows = iter([((images,), {}, labels)])
    with pytest.raises(RuntimeError, match="StopIteration"):
        extract(net, [0, 1], batch_fn=lambda batch: next(rows))
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(map(partial(split_batch, model=net, batch_fn=lambda _: next(rows)), [0, 1]))


def test_an_argument_may_be_a_namedtuple():
    class Takes(Plain):
        def forward(self, pair):
            return self.out(pair.x * pair.scale)

    pair, model = namedtuple("Pair", "x scale")(X, X), Takes()
    got = extract(model, [(pair, Y)], "logits", batch_fn=lambda batch: ((batch[0],), {}, batch[1]))
    np.testing.assert_allclose(got.logits, model(pair).detach(), atol=1e-6)


def test_a_packed_sequence_is_one_argument_with_a_row_per_sequence():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.hidden, self.out = nn.GRU(4, 8), nn.Linear(8, 5), nn.Linear(5, 3)

        def forward(self, packed, scale=1.0):
            return self.out(self.hidden(self.rnn(packed)[1][-1] * scale).relu())

    model, labels, scale = Recurrent(), torch.arange(9) % 3, torch.rand(9, 8)
    sequences = [torch.randn(length, 4) for length in (6, 3, 2, 5, 4, 6, 1, 2, 2)]
    packed = nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    for batch, expected in (
        ((packed, labels), model(packed)),
        ({"packed": packed, "scale": scale, "labels": labels}, model(packed, scale)),
    ):
        got = extract(model, [batch], ["hidden", "logits"])
        np.testing.assert_allclose(got.logits, expected.detach(), atol=1e-6)
        np.testing.assert_array_equal(got.labels, labels)
    assert extract(model, [packed], "logits").labels is None


def test_padding_changes_no_feature_however_the_mask_is_given(text):
    ids, mask, labels = padded_texts()
    short = extract(text, [((ids[:, :4], mask[:, :4]), labels)], ["embedding", "body", "logits"])
    for batch in (
        ((ids, mask), labels),
        ((ids, mask.bool()), labels),
        ({"attention_mask": mask, "input_ids": ids}, labels),
        {"attention_mask": mask, "input_ids": ids, "labels": labels},
    ):
        got = extract(text, [batch], ["embedding", "body", "logits"])
        for layer in short.layers:
            np.testing.assert_allclose(got.features[layer], short.features[layer], atol=1e-6)
    compiled = extract(torch.compile(text, backend="eager"), [((ids, mask), labels)], ["_orig_mod.body"])
    np.testing.assert_allclose(compiled.features["_orig_mod.body"], short.features["body"], atol=1e-6)


def test_padding_that_no_mask_marks_is_warned_of(text):
    ids, _, labels = padded_texts()
    lengths = torch.tensor([6, 3, 5, 6, 2, 4, 6, 6])
    padded = torch.where(torch.arange(6) < lengths[:, None], ids, 0)
    for given in (padded, padded.flip(1)):
        with pytest.warns(CalibrationWarning, match="look padded with 0, but there is no mask") as caught:
            extract(text, [(given, labels)], ["body", "logits"])
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extract(text, [(padded, labels)], "logits")
        extract(text, [(ids, labels)])
        extract(text, [{"input_ids": padded, "attention_mask": (padded > 0).long(), "labels": labels}])
        table = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(24, 3))
        extract(table, [(torch.tensor([[1, 0, 2, 0, 0, 0], [0, 3, 1, 2, 0, 0], [2, 0, 0, 1, 0, 1]]), labels[:3])])


def test_a_tokenizers_mask_under_a_short_name_counts_and_one_that_may_mark_padding_is_warned_of():
    class Short(Text):
        def forward(self, ids, mask):
            return super().forward(ids, mask.long())

    torch.manual_seed(0)
    model = Short()
    ids, mask, labels = padded_texts()
    states = model.body(model.embedding(ids)).detach()
    for batch in (((ids, mask), labels), {"mask": mask, "ids": ids}):
        got = extract(model, [batch], ["body"]).features["body"]
        np.testing.assert_allclose(got, states[:, :4].mean(dim=1), atol=1e-6)
    with pytest.warns(CalibrationWarning, match="'mask', which may mark the tokens or the padding.*attention_mask"):
        got = extract(model, [((ids, mask.bool()), labels)], ["body"]).features["body"]
    np.testing.assert_allclose(got, states.mean(dim=1), atol=1e-6)


class Masked(nn.Module):
    """A text classifier with a mask of unknown polarity, whose layer may see the tokens in another form."""

    def __init__(self, change):
        super().__init__()
        self.change, self.embedding, self.head = change, nn.Embedding(50, 8), nn.Linear(8, 3)
        self.enc = nn.Linear(8, 8)

    def forward(self, tokens, mask, spans=None):
        states = self.enc(self.change(self.embedding(tokens)))
        return self.head(states.flatten(1, -2).mean(dim=1) if states.shape[0] == len(tokens) else states.mean(dim=0))


@pytest.mark.parametrize("case", ["time first", "a prepended token", "another table of integers first"])
def test_a_mask_of_unknown_polarity_is_warned_of_whatever_form_the_layers_and_tables_have(case):
    changes = {
        "time first": lambda states: states.transpose(0, 1),
        "a prepended token": lambda states: torch.cat([states[:, :1], states], dim=1),
    }
    ids, mask, labels = padded_texts()
    first = {"spans": torch.zeros(len(ids), 3).long()} if case == "another table of integers first" else {}
    batch = {**first, "tokens": ids, "mask": mask.bool(), "labels": labels}
    with pytest.warns(CalibrationWarning, match="'mask', which may mark the tokens or the padding"):
        extract(Masked(changes.get(case, lambda states: states)), [batch], {"enc": None, "logits": None})


def test_a_padding_mask_is_the_reverse_of_an_attention_mask():
    class Padded(Text):
        def forward(self, words, src_key_padding_mask):
            return super().forward(words, 1 - (src_key_padding_mask != 0).long())

    torch.manual_seed(0)
    model = Padded()
    ids, mask, labels = padded_texts()
    expected = model.body(model.embedding(ids[:, :4])).mean(dim=1).detach()
    added = torch.zeros(mask.shape).masked_fill(mask == 0, float("-inf"))
    for batch in (
        ((ids, mask == 0), labels),
        ((ids, added), labels),
        {"words": ids, "src_key_padding_mask": mask == 0},
    ):
        got = extract(model, [batch], ["body"]).features["body"]
        np.testing.assert_allclose(got, expected, atol=1e-6)


class Encoder(nn.Module):
    """torch's encoder, whose layers return nested tensors if there is a padding mask."""

    def __init__(self, nested=True):
        super().__init__()
        self.embedding = nn.Embedding(50, 32, padding_idx=0)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested)
        self.out = nn.Linear(32, 3)

    def forward(self, input_ids, attention_mask):
        states = self.encoder(self.embedding(input_ids), src_key_padding_mask=attention_mask == 0)
        weights = attention_mask[..., None].float()
        return self.out((states * weights).sum(1) / weights.sum(1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_averaged_over_their_own_tokens():
    torch.manual_seed(0)
    nested, plain = Encoder(), Encoder(nested=False)
    plain.load_state_dict(nested.state_dict())
    ids, mask, labels = padded_texts()
    mask[0, 2:] = 0
    kinds = []
    handle = nested.encoder.layers[1].register_forward_hook(lambda _, __, output: kinds.append(output.is_nested))
    got = extract(nested, [((ids, mask), labels)])
    handle.remove()
    assert kinds == [True, True], "else this tests nothing"
    expected = extract(plain, [((ids, mask), labels)])
    blocks = [f"encoder.layers.{number}" for number in range(3)]
    assert got.layers == expected.layers == ("embedding", *blocks, "logits")
    for layer in got.layers:
        np.testing.assert_allclose(got.features[layer], expected.features[layer], atol=1e-5)
    with torch.inference_mode():
        np.testing.assert_allclose(got.logits, nested.eval()(ids, mask), atol=1e-6)


def test_a_model_of_two_inputs_is_given_both():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3)

        def forward(self, x, scale):
            return self.out(x * scale)

    x, scale, labels = torch.randn(6, 4), torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    model = Two()
    for batch in ({"x": x, "scale": scale, "labels": labels}, ((x, scale), labels)):
        got = extract(model, [batch], "logits")
        np.testing.assert_allclose(got.logits, model(x, scale).detach(), atol=1e-6)
        np.testing.assert_array_equal(got.labels, labels)


def test_a_wrapper_of_the_users_own_is_given_all_that_its_forward_takes():
    class Scaled(nn.Module):
        """Keeps the classifier under the name that DataParallel uses, and takes one input more."""

        def __init__(self, classifier):
            super().__init__()
            self.module = classifier

        def forward(self, *inputs):
            return self.module(inputs[0] * inputs[1])

    model = Scaled(nn.Linear(4, 3))
    x, scale, labels = torch.randn(6, 4), torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    got = extract(model, [((x, scale), labels)], "logits")
    np.testing.assert_allclose(got.logits, model(x, scale).detach(), atol=1e-6)
    np.testing.assert_array_equal(got.labels, labels)


@pytest.mark.parametrize("wrapped", [lambda model: model, nn.DataParallel])
def test_inputs_that_a_hook_makes_one_of_are_all_given_to_it(wrapped):
    model = nn.Linear(4, 3)
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0] * inputs[1],))
    x, scale, labels = torch.randn(6, 4), torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = model(x, scale).detach()
    got = extract(wrapped(model), [((x, scale), labels)], "logits")
    np.testing.assert_allclose(got.logits, expected, atol=1e-6)
    np.testing.assert_array_equal(got.labels, labels)


def test_a_tuple_of_three_items_is_never_guessed_at(net):
    images, labels, numbers = torch.randn(8, 3, 8, 8), torch.arange(8) % 4, torch.arange(8)
    for batch in (
        (images, labels, numbers),
        (images, numbers, labels),
        (images, labels, torch.rand(8)),
        [images, labels, ["a path"] * 8],
        ((images,), numbers, labels),
        ({"x": images}, labels, numbers),
    ):
        with pytest.raises(TypeError, match=r"a tuple \(inputs, labels\).*of 3 items.*batch_fn=lambda batch: "):
            extract(net, [batch])
    with pytest.raises(TypeError, match="of 0 items"):
        extract(net, [()])


def test_two_inputs_of_which_one_is_integers_are_given_as_a_pair_or_by_batch_fn():
    class Packed(Text):
        def forward(self, words, lengths):
            return super().forward(words, (torch.arange(words.shape[1]) < lengths[:, None]).long())

    ids, mask, labels = padded_texts()
    lengths = mask.sum(dim=1)
    torch.manual_seed(0)
    model = Packed()
    for batch, batch_fn in (
        (((ids, lengths), labels), None),
        ((ids, lengths, labels), lambda batch: (batch[:2], {}, batch[2])),
    ):
        got = extract(model, [batch], "logits", batch_fn=batch_fn)
        np.testing.assert_allclose(got.logits, model(ids, lengths).detach(), atol=1e-6)
        np.testing.assert_array_equal(got.labels, labels)


class Samples(torch.utils.data.IterableDataset):
    def __init__(self, images, labels):
        self.samples = list(zip(images, labels, strict=True))

    def __iter__(self):
        return iter(self.samples)


def test_a_list_of_batches_with_one_axis_is_a_loader():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3))
    assert len(extract(model, [torch.arange(5), torch.arange(3)], "logits")) == 8


def test_what_is_no_loader_or_no_classifier_is_named_for_what_it_is(net):
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 4
    with pytest.raises(TypeError, match=r"Expected a loader of batches, got one batch.*\[\(inputs, labels\)\]"):
        extract(net, (images, labels))
    with pytest.raises(TypeError, match=r"Expected a loader of batches, got one batch.*\[\(inputs, labels\)\]"):
        extract(net, [images, labels])
    with pytest.raises(ValueError, match=r"got shape \(\).*yields single samples, wrap it: DataLoader"):
        extract(net, Samples(images, labels))
    with pytest.raises(TypeError, match=r"got a TensorDataset, which yields single samples. Wrap it: DataLoader"):
        extract(net, torch.utils.data.TensorDataset(images, labels))
    with pytest.raises(TypeError, match=r"must be an nn\.Module, got function"):
        extract(lambda x: x, [(images, labels)])
    with pytest.raises(TypeError, match=r"Expected a loader of batches, got NoneType. Pass a DataLoader"):
        extract(net, None)


def test_labels_that_cannot_be_class_labels_are_an_error_that_names_batch_fn(net):
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 4
    soft = torch.rand(8, 4).softmax(dim=1)
    for wrong, message in (
        (soft, "labels of shape .* must be one-hot"),
        (torch.randn(8, 5), "labels must have shape"),
        (torch.rand(8), "labels must be integers"),
        (100 + torch.arange(8), "labels must lie in 0 ... 3"),
        (labels[:7], r"one row per sample: got shape \(7,\) for 8 samples"),
        (labels[0], r"one row per sample: got shape \(\)"),
        (["cat"] * 8, "labels must be integers, got list of <U3"),
        (labels.numpy() + 0.5j, "labels must be integers, got ndarray of complex128"),
    ):
        for batch in ((images, wrong), {"x": images, "label": wrong}):
            with pytest.raises((TypeError, ValueError), match=rf"{message}.*batch_fn"):
                extract(net, [batch])
