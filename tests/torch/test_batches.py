"""What a loader may give: every usual form of a batch is understood, and one that could be misread is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from densecal.errors import CalibrationWarning  # noqa: E402
from densecal.torch import extract  # noqa: E402


def test_batches_may_be_images_tuples_with_extras_lists_or_dicts(net):
    images, labels = torch.randn(23, 3, 8, 8), torch.arange(23) % 4
    expected = extract(net, [(images, labels)])
    for batch in (
        [images, labels],
        (images, labels, torch.rand(23)),
        (images, labels, ["a path"] * 23),
        (images, labels[:, None]),
        (images, labels.numpy()),
        (images, labels.numpy().astype(np.uint8)),
        (images, labels.tolist()),
        (images, list(labels)),
        {"image": images, "label": labels[:, None].numpy()},
        {"x": images, "y": labels.tolist()},
        ({"x": images}, labels.tolist()),
        {"image": images, "label": labels},
        {"x": images, "targets": labels},
        (images, torch.nn.functional.one_hot(labels, 4)),
    ):
        got = extract(net, [batch])
        np.testing.assert_allclose(got.logits, expected.logits, atol=1e-6)
        np.testing.assert_array_equal(got.labels, expected.labels)
    assert extract(net, [images]).labels is None
    assert extract(net, [(images,)]).labels is None


class Text(nn.Module):
    """A small text classifier that averages over the tokens that its mask counts."""

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


def test_a_dicts_items_go_to_forward_by_name_in_whatever_order_and_the_unknown_ones_are_left_out(text):
    ids, mask, labels = padded_texts()
    expected = text(ids, mask).detach()
    batch = {"attention_mask": mask, "input_ids": ids, "idx": torch.arange(8), "labels": labels}
    for model in (text, torch.compile(text, backend="eager"), nn.DataParallel(text)):
        with pytest.warns(CalibrationWarning, match=r"forward does not take \['idx'\].*left out"):
            got = extract(model, [batch], "logits")
        np.testing.assert_allclose(got.logits, expected, atol=1e-6)
        np.testing.assert_array_equal(got.labels, labels)


def test_a_dict_that_does_not_fit_forward_is_refused_and_not_passed_by_position(text, net):
    ids, mask, labels = padded_texts()
    with pytest.raises(ValueError, match=r"forward needs \['input_ids'\].*a dict of \['ids', 'attention_mask'"):
        extract(text, [{"ids": ids, "attention_mask": mask, "labels": labels}])
    with pytest.raises(ValueError, match=r"takes \['x'\], none of which the batch has.*\['image', 'index', 'label'\]"):
        extract(net, [{"image": torch.zeros(3, 3, 8, 8), "index": torch.arange(3), "label": torch.arange(3)}])
    with pytest.warns(CalibrationWarning, match=r"\['path'\]"):
        got = extract(net, [{"path": ["a", "b", "c"], "image": torch.zeros(3, 3, 8, 8), "label": torch.arange(3)}])
    assert got.labels.tolist() == [0, 1, 2]


def test_padding_changes_no_feature_however_the_mask_is_given(text):
    ids, mask, labels = padded_texts()
    short = extract(text, [(ids[:, :4], mask[:, :4], labels)], ["embedding", "body", "logits"])
    for batch in (
        (ids, mask, labels),
        ((ids, mask), labels),
        ((ids, mask.bool()), labels),
        {"attention_mask": mask, "input_ids": ids, "labels": labels},
    ):
        got = extract(text, [batch], ["embedding", "body", "logits"])
        for layer in short.layers:
            np.testing.assert_allclose(got.features[layer], short.features[layer], atol=1e-6)
    compiled = extract(torch.compile(text, backend="eager"), [(ids, mask, labels)], ["_orig_mod.body"])
    np.testing.assert_allclose(compiled.features["_orig_mod.body"], short.features["body"], atol=1e-6)


def test_padding_that_no_mask_marks_is_warned_of(text):
    ids, _, labels = padded_texts()
    lengths = torch.tensor([6, 3, 5, 6, 2, 4, 6, 6])
    padded = torch.where(torch.arange(6) < lengths[:, None], ids, 0)
    for given in (padded, padded.flip(1)):
        with pytest.warns(CalibrationWarning, match="look padded with 0, and no mask says so"):
            extract(text, [(given, labels)], ["body", "logits"])
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
    for batch in ((ids, mask, labels), {"mask": mask, "ids": ids}):
        got = extract(model, [batch], ["body"]).features["body"]
        np.testing.assert_allclose(got, states[:, :4].mean(dim=1), atol=1e-6)
    with pytest.warns(CalibrationWarning, match="'mask', which may mark the tokens or the padding.*attention_mask"):
        got = extract(model, [(ids, mask.bool(), labels)], ["body"]).features["body"]
    np.testing.assert_allclose(got, states.mean(dim=1), atol=1e-6)


def test_a_padding_mask_is_the_reverse_of_an_attention_mask():
    class Padded(Text):
        def forward(self, words, src_key_padding_mask):
            return super().forward(words, 1 - (src_key_padding_mask != 0).long())

    torch.manual_seed(0)
    model = Padded()
    ids, mask, labels = padded_texts()
    expected = model.body(model.embedding(ids[:, :4])).mean(dim=1).detach()
    added = torch.zeros(mask.shape).masked_fill(mask == 0, float("-inf"))
    for batch in ((ids, mask == 0, labels), (ids, added, labels), {"words": ids, "src_key_padding_mask": mask == 0}):
        got = extract(model, [batch], ["body"]).features["body"]
        np.testing.assert_allclose(got, expected, atol=1e-6)


class Encoder(nn.Module):
    """The stock encoder, whose layers give nested tensors when a padding mask is there."""

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
    got = extract(nested, [(ids, mask, labels)])
    handle.remove()
    assert kinds == [True, True], "else this tests nothing"
    expected = extract(plain, [(ids, mask, labels)])
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
    for batch in ((x, scale, labels), {"x": x, "scale": scale, "labels": labels}, ((x, scale), labels)):
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
    got = extract(model, [(x, scale, labels)], "logits")
    np.testing.assert_allclose(got.logits, model(x, scale).detach(), atol=1e-6)
    np.testing.assert_array_equal(got.labels, labels)


@pytest.mark.parametrize("wrapped", [lambda model: model, nn.DataParallel])
def test_inputs_that_a_hook_makes_one_of_are_all_given_to_it(wrapped):
    model = nn.Linear(4, 3)
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0] * inputs[1],))
    x, scale, labels = torch.randn(6, 4), torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = model(x, scale).detach()
    for batch in ((x, scale, labels), ((x, scale), labels)):
        got = extract(wrapped(model), [batch], "logits")
        np.testing.assert_allclose(got.logits, expected, atol=1e-6)
        np.testing.assert_array_equal(got.labels, labels)


@pytest.mark.parametrize("size", [1, 4, 20])
def test_the_samples_own_numbers_after_the_labels_are_no_second_labels(net, size):
    images, numbers = torch.randn(20, 3, 8, 8), torch.arange(20)
    labels = torch.randint(4, (20,), generator=torch.Generator().manual_seed(0))
    shuffled = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    expected = extract(net, [(images, labels)])
    for given in (numbers, shuffled, shuffled + 90, 2 * numbers, (shuffled - 10) * 2**40):
        for pack in (
            lambda x, y, number: (x, y, number),
            lambda x, y, number: (x, y, number.tolist()),
            lambda x, y, number: ((x,), y, number),
            lambda x, y, number: ({"x": x}, y, number),
        ):
            batches = [
                pack(*parts) for parts in zip(*(part.split(size) for part in (images, labels, given)), strict=True)
            ]
            got = extract(net, batches)
            np.testing.assert_array_equal(got.labels, labels)
            np.testing.assert_allclose(got.logits, expected.logits, atol=1e-5)


def test_labels_that_could_be_two_items_are_refused_and_the_items_named(net):
    images, labels, numbers = torch.randn(8, 3, 8, 8), torch.arange(8) % 4, torch.arange(8)
    domain = torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])
    for batch in (
        (images, numbers, labels),
        (images, domain, labels),
        (images, labels, domain),
        (images, domain, labels.tolist()),
        ((images,), domain, labels),
        (images, nn.functional.one_hot(domain), nn.functional.one_hot(labels)),
        # Labels that are not to count, and labels in the order of the classes.
        (images, domain, torch.where(labels == 1, 255, labels)),
        (images, domain, torch.where(labels == 1, -1, labels)),
        (images[:4], domain[:4], labels[:4]),
        (images, domain, labels.to(torch.uint8)),
        (images, domain[:, None] == torch.arange(2), labels[:, None] == torch.arange(4)),
    ):
        with pytest.raises(ValueError, match=r"items 1 and 2 of a batch could both be its labels.*a dict"):
            extract(net, [batch])
    got = extract(net, [{"x": images, "labels": labels}, (images, labels)])
    np.testing.assert_array_equal(got.labels, torch.cat([labels, labels]))


def test_whole_numbers_that_forward_needs_are_an_input_and_not_the_labels():
    class Packed(Text):
        def forward(self, words, lengths):
            return super().forward(words, (torch.arange(words.shape[1]) < lengths[:, None]).long())

    class MayBePacked(Packed):
        def forward(self, words, lengths=None):
            return super().forward(words, torch.tensor([6]) if lengths is None else lengths)

    ids, mask, labels = padded_texts()
    lengths = mask.sum(dim=1)
    torch.manual_seed(0)
    model = Packed()
    got = extract(model, [(ids, lengths, labels)], "logits")
    np.testing.assert_allclose(got.logits, model(ids, lengths).detach(), atol=1e-6)
    np.testing.assert_array_equal(got.labels, labels)
    with pytest.raises(ValueError, match="items 1 and 2 of a batch could both be its labels"):
        extract(MayBePacked(), [(ids, lengths, labels)], "logits")


def test_what_is_no_loader_or_no_classifier_is_named_for_what_it_is(net):
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 4
    with pytest.raises(TypeError, match=r"This is one batch, not a loader.*\[\(inputs, labels\)\]"):
        extract(net, (images, labels))
    with pytest.raises(TypeError, match=r"a TensorDataset single samples: wrap it, DataLoader"):
        extract(net, torch.utils.data.TensorDataset(images, labels))
    with pytest.raises(TypeError, match=r"must be an nn\.Module, got function"):
        extract(lambda x: x, [(images, labels)])


def test_soft_labels_and_items_that_are_neither_inputs_nor_labels_are_refused_in_words_about_labels(net):
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 4
    soft = torch.rand(8, 4).softmax(dim=1)
    with pytest.raises(ValueError, match=r"Item 1 of a batch looks like soft labels.*argmax"):
        extract(net, [(images, soft)])
    with pytest.raises(ValueError, match="labels of shape .* must be one-hot"):
        extract(net, [{"x": images, "labels": soft}])
    with pytest.raises(TypeError, match=r"Item 1 of a batch \(torch.float32 of shape \(8, 5\)\) is neither an input"):
        extract(net, [(images, torch.randn(8, 5), labels)])
    with pytest.raises(TypeError, match=r"Item 1 of a batch \(torch.int64 of shape \(7,\)\) is neither .* nor labels"):
        extract(net, [(images, labels[:7])])
    with pytest.raises(TypeError, match=r"Item 1 of a batch \(list\) is neither an input.* nor labels"):
        extract(net, [(images, ["cat"] * 8)])
    with pytest.raises(TypeError, match=r"The batch's 'label' must be one integer a sample.*got list"):
        extract(net, [{"x": images, "label": ["cat"] * 8}])
