from __future__ import annotations

import math

import pytest

from reproduction.training.recipes import CIFAR10_SCHEDULE, CIFAR100_SCHEDULE, Recipe

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from reproduction.training.trainer import Trainer  # noqa: E402

MEAN, STD = PIXELS = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def make_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def make_data(count: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (count,), generator=generator)
    images = torch.randint(60, (count, 16, 16, 3), generator=generator, dtype=torch.uint8)
    images[torch.arange(count), :, :, labels] += 150
    return images, labels


def make_trainer(recipe: Recipe | None = None, **options) -> Trainer:
    recipe = recipe or Recipe(schedule=((8, 0.05),), batch=32)
    return Trainer(make_network(), *make_data(), recipe, pixels=PIXELS, **options)


def test_the_recipes_are_the_papers():
    rates = [Recipe().learning_rate(epoch) for epoch in (0, 99, 100, 149, 150, 179, 180, 199)]
    assert rates == [0.01, 0.01, 0.005, 0.005, 0.001, 0.001, 0.0001, 0.0001]
    assert Recipe(CIFAR10_SCHEDULE).epochs == Recipe(CIFAR100_SCHEDULE).epochs == 200
    decays = [Recipe(CIFAR100_SCHEDULE).learning_rate(epoch) for epoch in (59, 60, 120, 160)]
    assert decays == pytest.approx([0.01, 0.002, 0.0004, 0.00008])


def test_a_shortened_recipe_keeps_its_phases_in_proportion():
    assert Recipe().shortened(100).schedule == ((50, 0.01), (25, 0.005), (15, 0.001), (10, 0.0001))
    assert Recipe().shortened(1).epochs == 1


def test_training_learns():
    trainer = make_trainer()
    losses = [trainer.train_epoch() for _ in range(8)]
    assert losses[-1] < 0.7 * losses[0]
    assert trainer.accuracy(*make_data()) > 0.8


def test_bfloat16_trains_as_well_with_float32_weights():
    trainer = make_trainer(dtype=torch.bfloat16)
    losses = [trainer.train_epoch() for _ in range(8)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(value.dtype == torch.float32 for value in trainer.weights().values() if value.is_floating_point())


def test_one_step_is_torchs_own_sgd_step():
    trainer = make_trainer(Recipe(schedule=((1, 0.05),), batch=96, padding=0))
    reference = make_network()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    trainer._shuffle()
    for _ in range(2):
        trainer._rewind()
        images, labels = trainer._batch()
        optimizer.zero_grad()
        nn.functional.cross_entropy(reference(images), labels).backward()
        optimizer.step()
        trainer._rewind()
        trainer.step()
    wanted = reference.state_dict()
    for name, value in trainer.weights().items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-4, atol=1e-6)


def test_a_batch_is_a_crop_of_the_padded_image_flipped_or_not():
    trainer = make_trainer()
    trainer._shuffle()
    pixels, labels = trainer._batch()
    images, truth = make_data()
    for place in range(8):
        source, (top, left) = trainer.order[place], trainer.offset[place]
        assert labels[place] == truth[source]
        padded = nn.functional.pad(images[source], (0, 0, 4, 4, 4, 4))
        crop = padded[top : top + 16, left : left + 16]
        crop = crop.flip(1) if trainer.flip[place] else crop
        wanted = (crop / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
        torch.testing.assert_close(pixels[place], wanted.permute(2, 0, 1), rtol=1e-5, atol=1e-5)


def test_every_image_is_seen_once_an_epoch():
    trainer = make_trainer()
    trainer._shuffle()
    assert sorted(trainer.order.tolist()) == list(range(96))


def test_a_resumed_training_goes_on_as_if_it_had_not_stopped():
    whole, first, second = make_trainer(), make_trainer(), make_trainer()
    for _ in range(2):
        whole.train_epoch()
        first.train_epoch()
    second.resume(first.checkpoint())
    assert second.epoch == 2
    assert second.train_epoch() == pytest.approx(whole.train_epoch(), rel=1e-6)
    for name, value in whole.weights().items():
        torch.testing.assert_close(value, second.weights()[name])


def test_the_same_seed_gives_the_same_network_and_another_seed_another():
    first, same, other = make_trainer(), make_trainer(), make_trainer(Recipe(((8, 0.05),), batch=32, seed=1))
    losses = [trainer.train_epoch() for trainer in (first, same, other)]
    assert losses[0] == losses[1] != losses[2]


def test_a_loss_that_is_not_finite_stops_the_training_with_advice():
    trainer = make_trainer(Recipe(schedule=((1, 0.05),), batch=32))
    with torch.no_grad():
        trainer.working[-1].fill_(math.inf)
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        trainer.train_epoch()


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="must fill a batch of 128, got 96"):
        make_trainer(Recipe())


def test_metadata_say_how_it_was_trained():
    trainer = make_trainer()
    trainer.train_epoch()
    metadata = trainer.metadata()
    assert metadata["epochs"] == 1
    assert metadata["recipe"]["weight_decay"] == 5e-4
    assert not metadata["cuda_graph"]
