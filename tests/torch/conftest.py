from __future__ import annotations

import warnings

import numpy as np
import pytest


@pytest.fixture
def net():
    """A small convolutional classifier with everything that behaves differently in training."""
    torch = pytest.importorskip("torch")
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
            self.pool = nn.MaxPool2d(2)
            self.body = nn.Conv2d(6, 10, 3, padding=1)
            self.drop = nn.Dropout(0.5)
            self.out = nn.Linear(10, 4)

        def forward(self, x):
            x = torch.relu(self.body(self.pool(self.stem(x))))
            return self.out(self.drop(x.mean(dim=(2, 3))))

    torch.manual_seed(0)
    return Net()


@pytest.fixture
def data():
    """Images and labels for it."""
    torch = pytest.importorskip("torch")
    from torch.utils.data import TensorDataset

    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(23, 3, 8, 8, generator=generator), torch.arange(23) % 4)


@pytest.fixture
def hooks_on():
    """Counts the hooks on all modules of a model."""
    return lambda model: sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules())


@pytest.fixture(scope="session")
def trained():
    """A small trained classifier with its data: (model, train images and labels, validation images and labels)."""
    torch = pytest.importorskip("torch")
    from torch import nn

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(4, 3, 8, 8, generator=generator)

    def draw(count):
        labels = torch.randint(4, (count,), generator=generator)
        noise = torch.randn(count, 3, 8, 8, generator=generator)
        # Each image has its own noise level, so its distance from the others indicates its difficulty.
        amount = 1.5 + 6 * torch.rand(count, 1, 1, 1, generator=generator) ** 2
        return centres[labels] + amount * noise, labels

    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 32),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(32, 4),
    )
    images, labels = draw(1200)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
    return model.eval(), (images, labels), draw(800)


@pytest.fixture(scope="session")
def measured(trained):
    """A fitted dac+ets of that classifier whose every layer has a weight, with its layouts."""
    pytest.importorskip("torch")
    from densecal.calibrators.dac import DAC
    from densecal.calibrators.registry import Chain
    from densecal.calibrators.temperature import EnsembleTemperatureScaling
    from densecal.density.bank import FeatureBank
    from densecal.torch.extraction import Extraction

    model, train, val = trained
    extraction = Extraction(model, ["3", "6", "9", "logits"])
    outputs = [extraction.outputs([part], progress=False) for part in (train, val)]
    chain = Chain(DAC(FeatureBank(outputs[0].features, k=10)), EnsembleTemperatureScaling())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chain.fit(outputs[1].logits, outputs[1].labels, features=outputs[1].features)
    # The fitted weights depend on the data; the model must be correct for any weights.
    chain.stages[0].weights_ = np.array([0.4, 0.2, 0.3, 0.5])
    chain.stages[0].bias_ = 0.3
    return chain, extraction.layouts, outputs


@pytest.fixture(scope="session")
def shift_fitted(trained, measured):
    """A DAC of that classifier with centres, fitted with shifted images as well, every layer with a weight."""
    from densecal.calibrators.dac import DAC
    from densecal.density.bank import FeatureBank
    from densecal.torch import extract

    model, _, (images, labels) = trained
    train, val = measured[2]
    shifted = extract(model, [(2 * images, labels)], ["3", "6", "9", "logits"], progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dac = DAC(FeatureBank(train.features)).fit(val.logits, val.labels, features=val.features, shifted=shifted)
    dac.weights_ = dac.weights_ + 0.05
    return dac
