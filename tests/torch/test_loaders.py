from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    random_split,
)

from densecal.errors import CalibrationWarning  # noqa: E402
from densecal.torch import calibrate  # noqa: E402
from densecal.torch.loaders import check_disjoint  # noqa: E402


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(300, 12, generator=generator), torch.arange(300) % 3)


def test_the_same_data_set_in_both_loaders_is_an_error(data):
    classifier = nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 3))
    batches = [data[:]]
    with pytest.raises(ValueError, match="train_loader and val_loader are the same object"):
        calibrate(classifier, batches, batches, method="dac")
    for method in ("dac", "ts"):
        with pytest.raises(ValueError, match="share 300 samples of one data set object.*random_split"):
            calibrate(classifier, DataLoader(data, 30, shuffle=True), DataLoader(data, 50), method=method)


def test_parts_of_one_data_set_may_not_overlap(data):
    train = DataLoader(Subset(data, range(200)), 32, shuffle=True)
    check_disjoint(train, DataLoader(Subset(Subset(data, range(150, 300)), range(60, 150)), 32))
    with pytest.raises(ValueError, match="share 50 samples"):
        check_disjoint(train, DataLoader(Subset(data, range(150, 300)), 32))
    check_disjoint(*(DataLoader(part, 16) for part in random_split(data, [200, 100])))
    check_disjoint(*(DataLoader(data, 16, sampler=SubsetRandomSampler(rows)) for rows in (range(100), range(100, 300))))
    check_disjoint(DataLoader(data, None, sampler=range(9)), DataLoader(data, None, sampler=range(9, 20)))


def test_samples_of_endless_samplers_and_of_named_samples_are_compared(data):
    class Endless:
        def __iter__(self):
            yield from itertools.cycle(range(100))

    class Named(Dataset):
        def __getitem__(self, name):
            return data[int(name[1:])]

        def __len__(self):
            return len(data)

    check_disjoint(DataLoader(data, 16, sampler=Endless()), DataLoader(data, 16, sampler=range(100, 300)))
    with pytest.raises(ValueError, match="share 1 samples"):
        check_disjoint(DataLoader(data, 16, sampler=Endless()), DataLoader(data, 16, sampler=range(99, 300)))
    named = Named()
    check_disjoint(DataLoader(named, 2, sampler=["a1", "a2"]), DataLoader(named, 2, sampler=["a3"]))
    with pytest.raises(ValueError, match="share 1 samples"):
        check_disjoint(DataLoader(named, 2, sampler=["a1", "a2"]), DataLoader(named, 2, sampler=["a2"]))


def test_one_stream_for_both_is_an_error():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from torch.zeros(3, 2)

    stream = Stream()
    with pytest.raises(ValueError, match="the same data set object"):
        check_disjoint(DataLoader(stream), DataLoader(stream))
    check_disjoint(DataLoader(stream), DataLoader(Stream()))


def test_copies_of_the_training_data_are_noticed_by_their_features(data):
    classifier = nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 3))
    loaders = [DataLoader(TensorDataset(*data[:]), 50) for _ in range(2)]
    with pytest.warns(
        CalibrationWarning, match="of the validation samples have the same features as a training sample"
    ):
        calibrate(classifier, *loaders, method="dac", k=5)


def test_the_loss_reaches_the_calibrator(data):
    classifier = nn.Linear(12, 3)
    model = calibrate(classifier, None, DataLoader(data, 50), method="ts", loss="brier")
    assert model.calibrator.loss == "brier"
    assert calibrate(classifier, None, DataLoader(data, 50), method="ts").calibrator.loss == "nll"
    with pytest.raises(ValueError, match="'irm' has no choice of loss"):
        calibrate(classifier, None, DataLoader(data, 50), method="irm", loss="nll")
