"""The paper's training recipes for CIFAR."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reproduction.classifiers import find_classifier

CIFAR10_SCHEDULE = ((100, 0.01), (50, 0.005), (30, 0.001), (20, 0.0001))
CIFAR100_SCHEDULE = ((60, 0.01), (60, 0.002), (40, 0.0004), (40, 0.00008))


@dataclass(frozen=True)
class Recipe:
    """Training recipe: phases of (epochs, learning rate), zero padding before the random crop, and SGD parameters.

    The paper gives the schedules and the augmentation (random crop and flip). It does not give the batch size, the
    momentum or the weight decay; 128, 0.9 and 5e-4 are usual for these networks.
    """

    schedule: tuple[tuple[int, float], ...] = CIFAR10_SCHEDULE
    batch: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4
    padding: int = 4
    seed: int = 0

    @property
    def epochs(self) -> int:
        return sum(epochs for epochs, _ in self.schedule)

    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        for epochs, rate in self.schedule:
            if epoch < epochs:
                return rate
            epoch -= epochs
        return self.schedule[-1][1]

    def shortened(self, epochs: int) -> Recipe:
        """Return the same schedule over fewer (or more) epochs, each phase in proportion."""
        ends, total = [], 0
        for length, _ in self.schedule:
            total += length
            ends.append(round(total * epochs / self.epochs))
        lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        phases = zip(lengths, (rate for _, rate in self.schedule), strict=True)
        return replace(self, schedule=tuple((length, rate) for length, rate in phases if length))


def recipe_of(classifier: str) -> Recipe:
    """Return the paper's recipe for one of its CIFAR classifiers."""
    found = find_classifier(classifier)
    if found.dataset == "imagenet":
        raise ValueError(f"{classifier} has no recipe; its weights are published: {found.weights}.")
    return Recipe(schedule=CIFAR10_SCHEDULE if found.dataset == "cifar10" else CIFAR100_SCHEDULE)
