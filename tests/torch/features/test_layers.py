"""Which layers are chosen: the paper's for the paper's classifiers, a well-spread set for any other."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from torch import nn  # noqa: E402

from densecal.torch import Layout, extract, select_layers  # noqa: E402
from densecal.torch.features.layers import layouts_of, select_from, trace  # noqa: E402
from densecal.torch.features.paper_layers import PAPER_LAYERS  # noqa: E402
from reproduction.classifiers import CLASSIFIERS  # noqa: E402

models = torchvision.models


def images(size, count=2):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def widths(model, example, layers):
    return [array.shape[1] for array in extract(model, [example], layers).features.values()]


PAPER_WIDTHS = {
    "c10-resnet18": [64, 64, 128, 256, 512, 10],
    "c10-vgg16": [64, 128, 256, 512, 512, 10],
    "c10-densenet121": [64, 128, 256, 512, 1024, 10],
    "c100-resnet18": [64, 64, 128, 256, 512, 100],
    "c100-vgg16": [64, 128, 256, 512, 512, 100],
    "c100-densenet121": [64, 128, 256, 512, 1024, 100],
    "img-resnet152": [64, 256, 512, 1024, 2048, 1000],
    "img-densenet169": [64, 128, 256, 640, 1664, 1000],
    "img-xception": [64, 128, 256, *[728] * 9, 1024, 2048, 1000],
    "img-bit-m": [64, *[256] * 3, *[512] * 4, *[1024] * 23, *[2048] * 3, 2048, 1000],
    "img-resnext-wsl": [64, 256, 512, 1024, 2048, 1000],
    "img-vit-b": [*[768] * 13, 1000],
}


@pytest.mark.parametrize("name", PAPER_WIDTHS)
def test_the_papers_classifiers_have_the_published_layers_and_widths(name):
    with torch.device("meta"):
        model = CLASSIFIERS[name].build()
    model = model.to_empty(device="cpu")
    for tensor in [*model.parameters(), *model.buffers()]:
        nn.init.constant_(tensor, 0.01) if tensor.is_floating_point() else tensor.zero_()
    # Small images keep the test fast; only ViT needs its original size.
    size = 224 if name == "img-vit-b" else 96 if name == "img-xception" else 32
    traced = trace(model, images(size, 1))
    chosen = select_from(traced, model, "paper")
    assert chosen == (*PAPER_LAYERS[name], "logits")
    found = {call.name: call.pooled.shape[1] for call in traced.calls if call.pooled is not None}
    assert [found.get(layer, traced.logits.shape[1]) for layer in chosen] == PAPER_WIDTHS[name]


def test_a_network_that_the_paper_has_not_is_not_taken_for_one_that_it_has():
    with pytest.raises(ValueError, match=r"Sequential is not recognised.*c10-resnet18.*layers='auto'"):
        select_layers(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), torch.zeros(1, 3, 2, 2), "paper")
    for deeper in (models.vgg19, models.vgg19_bn):
        with pytest.raises(ValueError, match=r"VGG is not recognised.*features"):
            select_layers(deeper(), images(32), "paper")


def test_a_deeper_relative_of_the_papers_classifier_is_not_read_half_way():
    timm = pytest.importorskip("timm")
    size = {"img_size": 32, "patch_size": 16, "embed_dim": 32, "num_heads": 2, "num_classes": 5}
    deep, right = (timm.models.VisionTransformer(depth=depth, **size) for depth in (24, 12))
    with pytest.raises(ValueError, match=r"VisionTransformer is not recognised.*blocks\.12.*layers='auto'"):
        select_layers(deep, images(32), "paper")
    assert len(select_layers(right, images(32), "paper")) == 14


def test_a_fifth_stage_is_not_left_out_of_the_papers_layers():
    deeper = models.resnet18()
    deeper.layer5 = nn.Sequential(nn.Identity())
    with pytest.raises(ValueError, match=r"ResNet is not recognised.*layer5"):
        select_layers(deeper, images(32), "paper")


AUTOMATIC = {
    "resnet18": (models.resnet18, 32, ["maxpool", "layer1", "layer2", "layer3", "layer4"]),
    "vgg11": (models.vgg11, 32, [*[f"features.{i}" for i in (2, 5, 10, 15, 20)], "classifier.5"]),
    "densenet121": (
        models.densenet121,
        32,
        ["features.pool0", *[f"features.denseblock{i}" for i in (1, 2, 3, 4)], "features.norm5"],
    ),
    "convnext_tiny": (
        models.convnext_tiny,
        32,
        ["features.0", "features.1", "features.3", "features.5", "features.7", "classifier.1"],
    ),
    "swin_t": (
        models.swin_t,
        64,
        ["features.0", "features.1", "features.3", "features.5", "features.7", "flatten"],
    ),
    "efficientnet_b0": (models.efficientnet_b0, 64, [*[f"features.{i}" for i in range(8)], "classifier.0"]),
    "mobilenet_v3_small": (
        models.mobilenet_v3_small,
        64,
        [*[f"features.{i}" for i in (0, 1, 3, 6, 8, 11)], "classifier.2"],
    ),
}


@pytest.mark.parametrize("name", AUTOMATIC)
def test_the_automatic_choice_is_the_stem_every_stage_the_penultimate_layer_and_the_logits(name):
    build, size, expected = AUTOMATIC[name]
    assert select_layers(build(), images(size)) == (*expected, "logits")


def test_blocks_that_each_have_a_shape_of_their_own_give_the_end_of_every_resolution():
    stages = [[Cat(8 + 4 * number, 4) for number in range(10)] for _ in range(3)]
    shrink = [nn.Sequential(nn.Conv2d(48, 8, 1), nn.AvgPool2d(2)) for _ in stages]
    parts = [part for stage, last in zip(stages, shrink, strict=True) for part in (nn.Sequential(*stage), last)]
    model = Spatial(*parts[:-1], channels=48)
    assert select_layers(model, images(16)) == ("stem", "blocks.0", "blocks.2", "blocks.4", "logits")
    flat = Spatial(*[Cat(8 + 4 * number, 4) for number in range(40)], channels=168)
    assert len(select_layers(flat, images(4))) == 26


def test_swin_is_pooled_over_its_height_and_width_though_its_channels_come_last():
    model = models.swin_t()
    assert widths(model, images(64), ["features.1", "features.7"]) == [96, 768]


def test_channels_are_found_even_where_every_side_is_as_long():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2))
    example = images(8)
    features = extract(model, [example], ["1"]).features["1"]
    torch.testing.assert_close(torch.from_numpy(features), model[:2](example).mean(dim=(2, 3)).detach())

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.out = nn.Linear(3, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.out(self.mix(x.permute(0, 2, 3, 1)).mean(dim=(1, 2)))

    model = Last()
    features = extract(model, [example], ["mix"]).features["mix"]
    expected = model.mix(example.permute(0, 2, 3, 1)).mean(dim=(1, 2)).detach()
    torch.testing.assert_close(torch.from_numpy(features), expected)


class Cat(nn.Module):
    """A block that adds its output to the channels, as in DenseNet."""

    def __init__(self, channels, growth):
        super().__init__()
        self.mix, self.conv = nn.Conv2d(channels, growth, 1), nn.Conv2d(growth, growth, 3, padding=1)

    def forward(self, x):
        return torch.cat([self.conv(self.mix(x).relu()), x], dim=1)


class Excited(nn.Module):
    """A block of a convolution and squeeze-and-excitation."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.squeeze = nn.Conv2d(channels, channels, 3, padding=1), nn.Linear(channels, channels)

    def forward(self, x):
        found = self.conv(x)
        return found * self.squeeze(found.mean(dim=(2, 3))).sigmoid()[:, :, None, None]


class PermutedBack(nn.Module):
    """A block with its channels last inside and first outside, as in ConvNeXt."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.mix = nn.Conv2d(channels, channels, 3, padding=1), nn.Linear(channels, channels)

    def forward(self, x):
        return x + self.mix(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Patches(nn.Module):
    """Patches with their channels last, as in Swin."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, channels, 2, stride=2), nn.LayerNorm(channels)

    def forward(self, x):
        return self.norm(self.conv(x).permute(0, 2, 3, 1))


class Spatial(nn.Module):
    """A convolutional stem, whose activation is no module, two blocks and a head."""

    def __init__(self, *blocks, channels=8):
        super().__init__()
        self.stem, self.blocks, self.out = nn.Conv2d(3, 8, 1), nn.Sequential(*blocks), nn.Linear(channels, 2)

    def forward(self, x):
        return self.out(self.blocks(self.stem(x).relu()).mean(dim=(2, 3)))


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize(
    ("blocks", "channels"),
    [
        ([Cat(8, 8), Cat(16, 8)], 24),
        ([Cat(8, 4), Cat(12, 8), nn.ReLU(), nn.Dropout2d()], 20),
        ([Cat(8, 8), nn.MaxPool2d(2), nn.Conv2d(16, 4, 1), nn.BatchNorm2d(4), nn.AvgPool2d(2)], 4),
        ([Excited(8), Excited(8)], 8),
        ([PermutedBack(8), PermutedBack(8)], 8),
    ],
    ids=["dense", "inception", "pooled", "excited", "permuted back"],
)
def test_convolutions_have_their_channels_first_whatever_the_width_of_the_map(size, blocks, channels):
    model, example = Spatial(*blocks, channels=channels).eval(), images(size)
    outer = [f"blocks.{number}" for number in range(len(blocks))]
    features = extract(model, [example], outer).features
    values = model.stem(example).relu()
    for name, block in zip(outer, model.blocks, strict=True):
        values = block(values)
        torch.testing.assert_close(torch.from_numpy(features[name]), values.mean(dim=(2, 3)).detach())


def test_channels_that_were_permuted_to_the_end_are_found_there_whatever_the_width_of_the_map():
    for size in (16, 32):
        model = nn.Sequential(Patches(8), nn.Tanh(), nn.Linear(8, 16), nn.Flatten(1, 2), nn.GELU())
        model.append(nn.Flatten()).append(nn.Linear(16 * (size // 2) ** 2, 2))
        example = images(size)
        features = extract(model, [example], ["0", "1", "2", "3", "4"]).features
        values = example
        for name, block in zip(features, model, strict=False):
            values = block(values)
            expected = values.flatten(1, -2).mean(dim=1).detach()
            torch.testing.assert_close(torch.from_numpy(features[name]), expected)


@pytest.mark.parametrize("length", [6, 12])
def test_a_bidirectional_lstm_is_pooled_over_time_whatever_the_length(length):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.out = nn.Embedding(30, 8), nn.Linear(12, 3)
            self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)

        def forward(self, words):
            return self.out(self.lstm(self.embedding(words))[0].mean(dim=1))

    model, words = Both(), torch.randint(30, (8, length), generator=torch.Generator().manual_seed(0))
    expected = model.lstm(model.embedding(words))[0].mean(dim=1).detach()
    torch.testing.assert_close(torch.from_numpy(extract(model, [words], ["lstm"]).features["lstm"]), expected)


@pytest.mark.parametrize("n_tokens", [8, 16])
def test_tokens_are_averaged_even_if_there_were_as_many_as_there_are_channels_now(n_tokens):
    class Merged(nn.Module):
        """Blocks of tokens whose number is reduced between them, as in a pyramid vision transformer."""

        def __init__(self):
            super().__init__()
            self.one, self.two = (nn.Sequential(nn.Tanh(), nn.Linear(width, width)) for width in (6, 16))
            self.out = nn.Linear(16, 2)

        def merge(self, x):
            return self.one(x).unflatten(1, (-1, 4)).flatten(2)[..., :16]

        def forward(self, x):
            return self.out(self.two(self.merge(x)).mean(dim=1))

    model, tokens = Merged(), torch.randn(3, n_tokens, 6, generator=torch.Generator().manual_seed(0))
    got = extract(model, [tokens], ["two.0", "two"]).features
    merged = model.merge(tokens).detach()
    torch.testing.assert_close(torch.from_numpy(got["two.0"]), merged.tanh().mean(dim=1))
    torch.testing.assert_close(torch.from_numpy(got["two"]), model.two(merged).mean(dim=1).detach())


@pytest.mark.parametrize("length", [16, 20])
def test_a_convolution_over_time_has_its_channels_first(length):
    model = nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten())
    model.append(nn.Linear(8 * length, 2))
    series = torch.randn(5, 4, length, generator=torch.Generator().manual_seed(0))
    features = extract(model, [series], ["1", "2"]).features
    for end, name in enumerate(features, 2):
        expected = model[:end](series).mean(dim=2).detach()
        torch.testing.assert_close(torch.from_numpy(features[name]), expected)


class Unknown(nn.Module):
    def forward(self, x):
        return x * 2


def test_a_channel_axis_that_no_module_tells_is_a_guess_that_the_user_can_correct():
    model, example = nn.Sequential(Unknown(), nn.Flatten(), nn.Linear(48, 2)), images(4)
    with pytest.warns(UserWarning, match=r"'0' returned .* \(2, 3, 4, 4\).*Layout\(channels='first'.*Layout\('last'\)"):
        assert extract(model, [example], ["0"]).features["0"].shape == (2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = extract(model, [example], {"0": Layout("last"), "logits": None}).features
    assert {name: values.shape for name, values in chosen.items()} == {"0": (2, 4), "logits": (2, 2)}
    with pytest.raises(TypeError, match=r"names to a Layout or None, got 'last' for '0'"):
        extract(model, [example], {"0": "last"})


def test_a_hugging_face_vit_gives_its_embeddings_every_block_and_the_norm():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8
    )
    model = transformers.ViTForImageClassification(config)
    chosen = select_layers(model, {"pixel_values": images(16)})
    assert len(chosen) == 6 and chosen[0] == "vit.embeddings" and chosen[-2:] == ("vit.layernorm", "logits")
    assert widths(model, {"pixel_values": images(16)}, chosen) == [16] * 5 + [2]


def test_a_text_classifier_is_pooled_over_its_tokens_and_not_over_padding():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=40
    )
    model = transformers.BertForSequenceClassification(config)
    words = torch.randint(1, 40, (2, 5), generator=torch.Generator().manual_seed(0))
    short = {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": torch.tensor([0, 1])}
    padding = torch.zeros(2, 4, dtype=torch.long)
    padded = {
        "input_ids": torch.cat([words, padding], dim=1),
        "attention_mask": torch.cat([torch.ones_like(words), padding], dim=1),
        "labels": torch.tensor([0, 1]),
    }
    chosen = select_layers(model, short)
    assert chosen[0] == "bert.embeddings" and "bert.encoder.layer.1" in chosen
    one, other = extract(model, [short], chosen), extract(model, [padded], chosen)
    for layer in chosen:
        torch.testing.assert_close(
            torch.from_numpy(one.features[layer]), torch.from_numpy(other.features[layer]), atol=1e-5, rtol=1e-4
        )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.out = nn.Linear(12, 3)

    def forward(self, words):
        return {"logits": self.out(self.lstm(self.embedding(words))[0].mean(dim=1))}


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.out = nn.Linear(8, 3)

    def forward(self, words):
        return self.out(self.encoder(self.embedding(words).transpose(0, 1)).mean(dim=0))


def test_recurrent_and_time_first_models_are_pooled_over_time():
    words = torch.randint(30, (4, 7), generator=torch.Generator().manual_seed(0))
    assert select_layers(Recurrent(), words) == ("embedding", "lstm", "logits")
    assert widths(Recurrent(), words, "auto") == [8, 12, 3]
    model = TimeFirst().eval()
    chosen = select_layers(model, words)
    assert chosen == ("embedding", "encoder.layers.0", "encoder.layers.1", "encoder.layers.2", "logits")
    pooled = extract(model, [words], chosen).features["encoder.layers.2"]
    expected = model.encoder(model.embedding(words).transpose(0, 1)).mean(dim=0).detach()
    torch.testing.assert_close(torch.from_numpy(pooled), expected, atol=1e-5, rtol=1e-4)


def test_a_time_first_text_as_long_as_the_traced_example_is_pooled_over_its_tokens():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.lstm, self.out = nn.Embedding(30, 8), nn.LSTM(8, 6), nn.Linear(6, 3)

        def forward(self, words):
            return self.out(self.lstm(self.embedding(words).transpose(0, 1))[0].mean(dim=0))

    torch.manual_seed(0)
    model = Late()
    for length in (2, 3, 5):
        words = torch.randint(30, (8, length), generator=torch.Generator().manual_seed(0))
        got = extract(model, [words], "all").features["lstm"]
        expected = model.lstm(model.embedding(words).transpose(0, 1))[0].mean(dim=0).detach()
        torch.testing.assert_close(torch.from_numpy(got), expected, atol=1e-6, rtol=1e-5)


def test_a_plain_perceptron_gives_each_hidden_layer_after_its_activation():
    mlp = nn.Sequential(nn.Linear(4, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3))
    assert select_layers(mlp, torch.zeros(2, 4)) == ("2", "4", "logits")


def test_names_do_not_matter_and_neither_does_the_order_of_definition():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 3), nn.Linear(5, 6), nn.Linear(4, 5)

        def forward(self, x):
            return self.a(self.b(self.c(x).relu()).relu())

    assert select_layers(Backwards(), torch.zeros(2, 4)) == ("c", "b", "logits")


def test_all_takes_every_tensor_once_and_leaves_out_what_runs_twice():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.act, self.out = nn.Linear(4, 5), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2)

        def forward(self, x):
            return self.out(self.act(self.two(self.act(self.one(x)))))

    assert select_layers(Shared(), torch.zeros(2, 4), "all") == ("one", "two", "logits")
    with pytest.raises(ValueError, match=r"'act' ran 2 times in one forward pass.*modules around it"):
        select_layers(Shared(), torch.zeros(2, 4), ["act"])


def test_logits_alone_and_a_list_of_ones_own_are_taken_as_they_are():
    model = models.resnet18()
    assert select_layers(model, images(32), "logits") == ("logits",)
    assert select_layers(model, images(32), ["logits", "layer4", "layer1.0.conv1"]) == (
        "layer1.0.conv1",
        "layer4",
        "logits",
    )


def test_an_unknown_name_is_answered_with_close_matches():
    with pytest.raises(ValueError, match=r"no layer 'layer5'\. Close matches: .*layer4"):
        select_layers(models.resnet18(), images(32), ["layer5"])
    with pytest.raises(ValueError, match=r"must be 'auto', 'paper', 'all', 'logits' or a list of names, got 'layer4'"):
        select_layers(models.resnet18(), images(32), "layer4")
    with pytest.raises(ValueError, match="empty list"):
        select_layers(models.resnet18(), images(32), [])
    with pytest.raises(ValueError, match="more than once"):
        select_layers(models.resnet18(), images(32), ["layer1", "layer1"])


def test_a_layer_that_did_not_run_or_cannot_be_pooled_says_so():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.flat, self.out = nn.Linear(4, 4), nn.Flatten(0), nn.Linear(4, 2)

        def forward(self, x):
            return self.out(self.flat(x).view(-1, 4))

    with pytest.raises(ValueError, match="'unused' did not run"):
        select_layers(Odd(), torch.zeros(3, 4), ["unused"])
    with pytest.raises(ValueError, match="'flat' returned an output of shape"):
        select_layers(Odd(), torch.zeros(3, 4), ["flat"])


def test_tracing_leaves_no_hook_and_the_modes_as_they_were_even_when_it_fails():
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(), nn.Linear(5, 2))
    model[1].eval()
    trace(model, torch.zeros(2, 4))
    with pytest.raises(RuntimeError):
        trace(model, torch.zeros(2, 3))
    assert [module.training for module in model.modules()] == [True, True, False, True]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_layouts_come_for_the_layers_and_not_for_the_logits():
    model = models.resnet18()
    found = layouts_of(trace(model, images(32)), ["layer1", "logits"], {})
    assert list(found) == ["layer1"] and found["layer1"].channels == "first"
