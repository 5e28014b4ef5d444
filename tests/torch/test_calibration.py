"""calibrate: the calibrated model, the automatic choices, and the errors and warnings."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from densecal.density.defaults import choose_bank_size, choose_k  # noqa: E402
from densecal.errors import CalibrationWarning  # noqa: E402
from densecal.metrics import expected_calibration_error  # noqa: E402
from densecal.torch import CalibratedModel, calibrate  # noqa: E402
from densecal.torch.loaders import bank_loader  # noqa: E402
from densecal.torch.training_data import BankOptions  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::densecal.errors.CalibrationWarning")


def loader(part, **options):
    return DataLoader(TensorDataset(*part), batch_size=128, **options)


def hooked(model):
    return sum(len(module._forward_hooks) for module in model.modules())


def test_three_lines_give_a_model_that_is_better_calibrated_and_as_accurate(trained, tmp_path):
    classifier, train, (images, labels) = copy.deepcopy(trained)
    with torch.no_grad():  # Strongly overconfident, so that the gain is not due to chance.
        classifier[-1].weight *= 4
        classifier[-1].bias *= 4
    # These "images" are noise, and perturbed noise is not informative, so use the paper's fit.
    model = calibrate(classifier, loader(train), loader((images[:400], labels[:400])), perturb=False)
    with torch.inference_mode():
        probabilities = model(images[400:])
        plain = classifier(images[400:]).softmax(dim=1)
    model.save(tmp_path / "model.densecal")
    assert torch.equal(probabilities.argmax(1), plain.argmax(1))
    before, after = (expected_calibration_error(given, labels[400:]) for given in (plain, probabilities))
    assert after < before / 2
    assert isinstance(CalibratedModel.load(tmp_path / "model.densecal", classifier), CalibratedModel)


@pytest.mark.parametrize("method", ["ts", "spl", "dac", "dac+irm", "dac+spl", "dac+vs"])
def test_every_kind_of_method_can_be_calibrated(trained, method):
    classifier, train, val = trained
    model = calibrate(classifier, loader(train), loader(val), method=method)
    with torch.inference_mode():
        got = model(val[0][:50])
    np.testing.assert_allclose(got.sum(dim=1), 1, atol=1e-5)
    assert model.choices["method"] == method


def test_a_method_without_dac_needs_no_training_data(trained):
    classifier, _, val = trained
    model = calibrate(classifier, None, loader(val), method="ets")
    assert model.layers == () and hooked(classifier) == 0
    with pytest.raises(ValueError, match=r"'dac\+ets' measures distances.*train_loader must not be None"):
        calibrate(classifier, None, loader(val))


def test_a_model_in_training_mode_is_calibrated_as_if_it_were_not_and_serves_at_once(trained):
    classifier, train, val = trained
    before = {name: value.clone() for name, value in classifier.state_dict().items()}
    expected = calibrate(classifier, loader(train), loader(val), method="dac")
    classifier.train()
    got = calibrate(classifier, loader(train), loader(val), method="dac")
    np.testing.assert_array_equal(got.calibrator.weights_, expected.calibrator.weights_)
    assert not any(module.training for module in got.modules()), "a calibrated model is in evaluation mode"
    with torch.inference_mode():
        assert torch.equal(got(val[0][:5]), expected(val[0][:5]))
    assert got.classifier is classifier
    assert all(torch.equal(value, before[name]) for name, value in classifier.state_dict().items())


def test_it_says_what_it_chose(trained, caplog):
    classifier, train, val = trained
    with caplog.at_level(logging.INFO, logger="densecal"):
        model = calibrate(classifier, loader(train), loader(val), bank_size=600)
    assert model.choices["bank"] == "600 training samples, k = 10 (auto)"
    assert model.choices["layers"] == "3, 6, 10, logits"
    assert "600 training samples, k = 10" in caplog.text
    assert "600 training samples, k = 10" in repr(model)


def test_a_calibrated_model_that_is_thrown_away_leaves_the_classifier_without_hooks(trained, measured):
    classifier = trained[0]
    model = CalibratedModel(classifier, measured[0], measured[1])
    assert hooked(classifier) == 3
    del model
    assert hooked(classifier) == 0


def test_k_and_layers_can_be_given(trained):
    classifier, train, val = trained
    model = calibrate(classifier, loader(train), loader(val), method="dac", layers=["6"], k=3)
    assert model.choices["layers"] == "6" and "k = 3" in model.choices["bank"]


def test_k_follows_the_paper_and_stays_sensible_between_its_cases():
    assert [choose_k(45_000, 10), choose_k(45_000, 100), choose_k(12_811, 1000)] == [50, 200, 10]
    assert [choose_k(50_000, 10), choose_k(9_000, 10), choose_k(6, 2)] == [50, 10, 6]
    for classes in (2, 10, 100, 1000):
        chosen = [choose_k(samples, classes) for samples in (5, 50, 500, 5_000, 50_000, 500_000)]
        assert chosen == sorted(chosen)
        assert all(1 <= k <= samples for k, samples in zip(chosen, (5, 50, 500, 5_000, 50_000, 500_000), strict=True))


def test_the_bank_takes_all_of_a_small_set_and_one_per_cent_of_a_large_one():
    assert choose_bank_size(50_000, "auto") == 50_000
    assert choose_bank_size(1_281_167, "auto") == 12_811
    assert choose_bank_size(60_000, "auto") == 12_500
    assert choose_bank_size(60_000, None) == 60_000
    assert [choose_bank_size(1000, size) for size in (0.1, 1, 1.0)] == [100, 1, 1000]
    with pytest.raises(ValueError, match="bank_size must lie in 1 ... 60, .* got 70"):
        choose_bank_size(60, 70)
    with pytest.raises(TypeError, match="bank_size must be 'auto'"):
        choose_bank_size(60, "half")


def test_a_small_bank_reads_only_the_samples_that_it_keeps(trained):
    _, train, _ = trained
    chosen, size = bank_loader(loader(train, shuffle=True), keep_rows(100).choose_size, seed=0)
    batches = list(chosen)
    assert size == 100 and sum(len(labels) for _, labels in batches) == 100
    again = [images for images, _ in bank_loader(loader(train), keep_rows(100).choose_size, seed=0)[0]]
    assert torch.equal(torch.cat([images for images, _ in batches]), torch.cat(again)), "drawn by the seed alone"


def keep_rows(bank_size):
    return BankOptions(None, 1, bank_size, seed=0)


def rows_read(source, bank=None):
    """The rows that the bank's loader reads, and the number that it reports."""
    chosen, size = bank_loader(source, keep_rows(bank).choose_size, seed=0)
    return sorted(torch.cat([batch[0] for batch in chosen]).tolist()), size


NUMBERED = TensorDataset(torch.arange(100))


@pytest.mark.parametrize("bank", [None, "auto", 30, 0.5])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_bank_is_drawn_from_what_the_loaders_sampler_gives_and_from_nothing_else(bank, drop_last):
    train = SubsetRandomSampler(range(0, 100, 2))
    rows, size = rows_read(DataLoader(NUMBERED, 8, sampler=train, drop_last=drop_last), bank)
    assert size == len(rows) == len(set(rows)) == {30: 30, 0.5: 25}.get(bank, 50)
    assert set(rows) <= set(range(0, 100, 2))


def test_samplers_of_every_kind_are_asked_and_each_sample_is_read_once():
    class Own:
        def __iter__(self):
            yield from torch.tensor([5, 5, 9, 13])

    class ByLength:
        def __iter__(self):
            yield from ([1, 2, 3], [3, 40, 41, 42], [7])

    half = DistributedSampler(NUMBERED, num_replicas=2, rank=0, shuffle=False)
    assert rows_read(DataLoader(NUMBERED, 8, sampler=half))[0] == list(range(0, 100, 2))
    assert rows_read(DataLoader(NUMBERED, 8, sampler=Own()))[0] == [5, 9, 13]
    assert rows_read(DataLoader(NUMBERED, 8, sampler=iter([4, 2])))[0] == [2, 4]
    assert rows_read(DataLoader(NUMBERED, batch_sampler=ByLength()))[0] == [1, 2, 3, 7, 40, 41, 42]
    rest = BatchSampler(SequentialSampler(range(10)), 4, drop_last=True)
    assert rows_read(DataLoader(NUMBERED, batch_sampler=rest))[0] == list(range(10))
    weighted = WeightedRandomSampler([1.0] * 10 + [0.0] * 90, 60)
    rows, size = rows_read(DataLoader(NUMBERED, 8, sampler=weighted))
    assert size == len(rows) == len(set(rows)) and max(rows) < 10
    by_length = bank_loader(DataLoader(NUMBERED, batch_sampler=ByLength()), keep_rows(None).choose_size, 0)[0]
    grouped = [batch[0].tolist() for batch in by_length]
    assert grouped == [[1, 2, 3], [40, 41, 42], [7]], "batch grouping is preserved"


def test_a_sampler_that_never_ends_is_asked_for_one_epoch():
    class Endless:
        """Yields the even rows forever."""

        def __iter__(self):
            while True:
                yield from range(0, 100, 2)

    class Sized(Endless):
        def __len__(self):
            return 50

    class InBatches(Endless):
        def __iter__(self):
            yield from ([row, row + 2] for row in super().__iter__() if row % 4 == 0)

    class SizedInBatches(InBatches):
        def __len__(self):
            return 25

    class Understated(SequentialSampler):
        def __len__(self):
            return 10

    assert rows_read(DataLoader(NUMBERED, 8, sampler=Understated(NUMBERED)))[0] == list(range(100))
    often = WeightedRandomSampler([1.0] + [1e-3] * 99, 4000, generator=torch.Generator().manual_seed(0))
    assert rows_read(DataLoader(NUMBERED, 8, sampler=often))[1] > 80, "an epoch may be longer than the data set"
    even = list(range(0, 100, 2))
    for sampler in (Endless(), Sized()):
        assert rows_read(DataLoader(NUMBERED, 8, sampler=sampler)) == (even, 50)
    for sampler in (InBatches(), SizedInBatches()):
        assert rows_read(DataLoader(NUMBERED, batch_sampler=sampler)) == (even, 50)


def test_a_train_and_validation_split_by_samplers_keeps_validation_samples_out_of_the_bank(trained):
    classifier, (images, labels), _ = trained
    whole = TensorDataset(images, labels)
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0)).tolist()
    train, val = (DataLoader(whole, 64, sampler=SubsetRandomSampler(part)) for part in (order[:600], order[600:]))
    dropping = DataLoader(whole, 64, sampler=SubsetRandomSampler(order[:600]), drop_last=True)
    expected = calibrate(classifier, train, val, method="dac", k=1, perturb=False)
    got = calibrate(classifier, dropping, val, method="dac", k=1, perturb=False)
    assert got.choices["bank"] == expected.choices["bank"] == "600 training samples, k = 1"
    np.testing.assert_allclose(got.calibrator.weights_, expected.calibrator.weights_, atol=1e-3)


def test_a_loader_without_a_set_behind_it_is_read_whole_and_drawn_from(trained):
    classifier, train, val = trained

    class Stream(IterableDataset):
        def __iter__(self):
            yield from zip(*train, strict=True)

    for source in ([train], DataLoader(Stream(), batch_size=100)):
        model = calibrate(classifier, source, loader(val), method="dac", bank_size=300)
        assert model.choices["bank"].startswith("300 training samples")


def shifted_copy(val, strength=0.3):
    return [(val[0] + strength * torch.randn(val[0].shape, generator=torch.Generator().manual_seed(0)), val[1])]


def test_with_shifted_data_the_bank_has_centres_and_reads_the_training_data_once(trained):
    classifier, train, val = trained
    reads = []

    def batches():
        for start in range(0, len(train[0]), 100):
            reads.append(start)
            yield train[0][start : start + 100]

    model = calibrate(classifier, batches(), loader(val), shifted=[shifted_copy(val)], progress=False)
    assert model.choices["bank"] == "120 centres (auto)"
    assert reads == list(range(0, len(train[0]), 100))
    again = calibrate(classifier, [train], loader(val), shifted=[shifted_copy(val)], centres=120, progress=False)
    torch.testing.assert_close(again(val[0]), model(val[0]))
    by_rows = calibrate(classifier, [train], loader(val), shifted=[shifted_copy(val)], bank_size=300, progress=False)
    assert by_rows.choices["bank"].startswith("300 training samples, k = ")
    for options in ({"centres": 30, "k": 3}, {"centres": 30, "bank_size": 300}):
        with pytest.raises(ValueError, match="not both|counts training samples"):
            calibrate(classifier, [train], loader(val), progress=False, **options)


def test_a_validation_loader_without_labels_is_refused(trained):
    classifier, train, val = trained
    with pytest.raises(ValueError, match=r"val_loader yields no labels, but the fit needs them.*batch_fn"):
        calibrate(classifier, loader(train), [val[0]])
    assert hooked(classifier) == 0


def test_training_labels_are_not_needed(trained):
    classifier, train, val = trained
    model = calibrate(classifier, [train[0]], loader(val), method="dac")
    assert model.choices["bank"].startswith("1,200")


def never():
    raise AssertionError("the data were read")
    yield


def test_a_wrong_method_costs_nothing(trained):
    for method, perturb, message in (
        ("dac+etz", "auto", "Did you mean 'ets'"),
        ("", "auto", "Unknown calibration method ''"),
        ("ts+dac", False, "DAC must be the first stage"),
        ("dac+dac", False, "DAC must be the first stage"),
        ("dac-shift", False, r"'dac-shift' is fitted on shifted data: pass shifted=, or perturb=True"),
        ("dac", True, "val_loader several times, but it is an iterator"),
    ):
        with pytest.raises(ValueError, match=message):
            calibrate(trained[0], never(), never(), method=method, perturb=perturb)


def test_what_is_no_loader_is_found_before_the_data_are_read(trained):
    model, train, val = trained
    for shifted in ([val], val, [{"input": val[0], "labels": val[1]}], 5, [None]):
        with pytest.raises(TypeError, match=r"a DataLoader or a list of loaders, \[\[\(inputs, labels\)\]\]"):
            calibrate(model, never(), never(), shifted=shifted)
    with pytest.raises(TypeError, match="got one batch"):
        calibrate(model, train, never())
    with pytest.raises(TypeError, match="got NoneType"):
        calibrate(model, never(), None)


def test_one_tensor_of_inputs_is_no_loader(trained, measured):
    served = CalibratedModel(trained[0], measured[0], measured[1])
    with pytest.raises(TypeError, match="Expected a loader of batches, got one batch"):
        served.estimate_accuracy(trained[2][0])


def test_empty_loaders_are_named(trained):
    classifier, train, val = trained
    with pytest.raises(ValueError, match="train_loader yielded no batches"):
        calibrate(classifier, [], loader(val))
    with pytest.raises(ValueError, match="val_loader yielded no batches"):
        calibrate(classifier, loader(train), [])


def test_nan_activations_stop_the_fit(trained):
    classifier, train, (images, labels) = trained
    bad = images.clone()
    bad[3] = float("inf")
    with pytest.raises(ValueError, match="NaN or infinite activations in batch 0"):
        calibrate(classifier, loader(train), loader((bad, labels)))
    assert hooked(classifier) == 0


def test_when_no_layer_helps_it_says_so_and_serves_a_plain_temperature():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    x = torch.randn(900, 8)
    with torch.no_grad():
        # Labels drawn from the classifier's own probabilities: it is calibrated at any distance.
        labels = torch.distributions.Categorical(logits=model(x) / 0.5).sample()
    with pytest.warns(CalibrationWarning, match="does not use the distances"):
        calibrated = calibrate(model, [x[:300]], [(x[300:], labels[300:])], method="dac", layers=["1"])
    assert calibrated.layers == () or float(calibrated.head.temperature.weights_.max()) < 0.05


def test_an_iterator_of_images_loses_the_perturbed_copies_and_is_told_of():
    images, labels = torch.rand(40, 3, 8, 8), torch.arange(40) % 3
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    with pytest.warns(CalibrationWarning, match="val_loader is an iterator, which can be read only once") as caught:
        model = calibrate(network, [(images, labels)], iter([(images, labels)]), k=3, progress=False)
    assert {one.filename for one in caught if one.category is CalibrationWarning} == {__file__}
    assert model.choices["method"] == "dac+ets"


def test_a_single_loader_of_shifted_data_needs_no_list():
    torch.manual_seed(0)
    inputs = torch.randn(300, 4)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    labels = network(inputs).argmax(dim=1)
    labels[:60] = 2
    shifted = DataLoader(TensorDataset(inputs + 0.5 * torch.randn(300, 4), labels), batch_size=20)
    model = calibrate(network, [(inputs, labels)], [(inputs, labels)], shifted=shifted, k=3, progress=False)
    assert "on 300 shifted and 300 clean samples; on clean data ECE" in model.choices["shift fit"]


def test_choices_say_whether_the_model_was_fitted_for_shift(trained):
    model, train, val = trained
    clean = calibrate(model, [train], [val], method="dac", k=10, progress=False)
    assert clean.choices["shift fit"] == f"no: fitted on {len(val[1])} clean samples only"
    other_labels = (val[0] + torch.randn_like(val[0]), val[1].flip(0))
    with pytest.warns(CalibrationWarning, match="no better than chance") as told:
        fallen_back = calibrate(model, [train], [val], shifted=[[other_labels]] * 9, k=10, progress=False)
    assert fallen_back.choices["shift fit"].startswith("no: rejected after a fit on")
    assert not any("Fit it to stay calibrated under shift" in str(one.message) for one in told), "which was just tried"


def test_a_train_loader_that_prepares_its_images_otherwise_is_noticed(trained):
    model, (images, labels), val = trained
    with pytest.warns(CalibrationWarning, match=r"% on train_loader and .*preprocess inputs in the same way"):
        calibrate(model, [(-images, labels)], [val], method="dac", k=10, progress=False)


@pytest.mark.parametrize("options", [{"method": "ts"}, {"perturb": False}, {}])
def test_labels_of_other_samples_are_noticed_once(trained, options):
    classifier, train, (images, labels) = trained
    wrong = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    with pytest.warns(CalibrationWarning) as caught:
        calibrate(classifier, [train], [(images, wrong)], progress=False, **options)
    messages = [str(one.message) for one in caught]
    chance = [text for text in messages if text.startswith("On the validation set the classifier is no better than")]
    assert len(chance) == 1 and "Check that the labels belong to these samples" in chance[0]
    assert not any("larger validation set" in text for text in messages)


def test_classes_that_validation_data_lack_are_named(trained):
    classifier, _, (images, labels) = trained
    with pytest.warns(CalibrationWarning, match="Class 2 is not in the validation set"):
        calibrate(classifier, None, [(images[labels != 2], labels[labels != 2])], method="ts", progress=False)


@pytest.mark.parametrize("value", [-1e4, torch.finfo(torch.float32).min])
def test_validation_samples_with_the_label_of_a_masked_class_are_noticed(trained, value):
    classifier, train, (images, labels) = trained

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.classifier = classifier

        def forward(self, images):
            return self.classifier(images).index_fill(1, torch.tensor([2]), value)

    expected = f"{int((labels == 2).sum())} of {len(labels)} validation samples have the label of a masked class"
    with pytest.warns(CalibrationWarning, match=expected):
        calibrate(Masked().eval(), [train], [(images, labels)], progress=False)


def test_a_bank_of_a_few_samples_and_a_scripted_classifier_are_pointed_out(trained):
    classifier, train, val = trained
    with pytest.warns(CalibrationWarning, match="The bank is made of 8 training samples, fewer than 100"):
        calibrate(classifier, [train[0][:8]], loader(val), method="dac", progress=False)
    with pytest.raises(TypeError, match="Pass the eager module"):
        calibrate(torch.jit.trace(classifier, val[0][:2]), [train[0]], loader(val), progress=False)
