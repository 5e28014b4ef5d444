"""Train a network with all images on the device and one CUDA graph per step.

The networks are small, so launching the kernels takes longer than running them. On a GPU, one step (augment, forward,
backward, update) is captured once and replayed. The learning rate, the order of the images and their crops are read
from device memory, so a single capture suffices. On a CPU the same step runs eagerly.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from reproduction.classifiers import Pixels
from reproduction.training.recipes import Recipe


class Trainer:
    """Train one network in place, on the device of the images.

    Images are uint8 of shape (n_samples, height, width, 3). The weights are float32 (see `weights`). The network
    computes with copies of type ``dtype``, by default bfloat16 on a GPU and float32 on a CPU; batch norm uses float32.
    """

    def __init__(
        self,
        network: nn.Module,
        images: Tensor,
        labels: Tensor,
        recipe: Recipe,
        *,
        pixels: Pixels,
        dtype: torch.dtype | None = None,
    ) -> None:
        device = images.device
        self.recipe, self.device, self.labels = recipe, device, labels
        self.dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
        self.size = images.shape[1:3]
        pad = recipe.padding
        self.padded = functional.pad(images, (0, 0, pad, pad, pad, pad))
        # (pixel / 255 - mean) / std in one multiplication and one addition
        mean, std = (torch.tensor(values, device=device) for values in pixels)
        self.scale, self.shift = 1 / (255 * std), -mean / std
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self.seconds = 0.0
        self.network = network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._prepare_weights()
        self._prepare_order(len(labels))

    @property
    def epoch(self) -> int:
        return len(self.losses)

    @property
    def steps(self) -> int:
        """Batches per epoch; the remaining images of each shuffle, too few for a batch, are not used."""
        return len(self.labels) // self.recipe.batch

    def _prepare_weights(self) -> None:
        names, parameters = zip(*self.network.named_parameters(), strict=True)
        self.names = list(names)
        self.masters = [parameter.detach().float().clone() for parameter in parameters]
        for module in self.network.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.to(self.dtype)
        self.working = list(self.network.parameters())
        for master in self.masters:
            # The fused update requires gradients of the same strides.
            master.grad = torch.zeros_like(master)
        self.rate = torch.tensor(self.recipe.learning_rate(0), device=self.device)
        recipe = self.recipe
        self.optimizer = torch.optim.SGD(
            self.masters, lr=self.rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=True
        )

    def _prepare_order(self, count: int) -> None:
        device, batch = self.device, self.recipe.batch
        if count < batch:
            raise ValueError(f"images must fill a batch of {batch}, got {count}; use a recipe with a smaller batch")
        self.generator = torch.Generator(device)
        self.order = torch.arange(count, device=device)
        self.offset = torch.zeros(count, 2, dtype=torch.long, device=device)
        self.flip = torch.zeros(count, dtype=torch.bool, device=device)
        self.first = torch.arange(batch, device=device)
        self.cursor = self.first.clone()
        self.rows, self.columns = (torch.arange(n, device=device) for n in self.size)
        self.loss_sum = torch.zeros((), device=device)
        self.correct = torch.zeros((), dtype=torch.long, device=device)

    def _shuffle(self) -> None:
        """Draw the epoch's order, crops and flips; they depend only on the seed and the epoch."""
        count = len(self.order)
        self.generator.manual_seed(1_000_003 * self.recipe.seed + self.epoch)
        self.order.copy_(torch.randperm(count, generator=self.generator, device=self.device))
        reach = 2 * self.recipe.padding + 1
        self.offset.copy_(torch.randint(reach, (count, 2), generator=self.generator, device=self.device))
        self.flip.copy_(torch.rand(count, generator=self.generator, device=self.device) < 0.5)
        self._rewind()

    def _rewind(self) -> None:
        self.cursor.copy_(self.first)
        self.loss_sum.zero_()
        self.correct.zero_()

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Return the next batch, cropped from the padded images and randomly flipped in one gather."""
        chosen, offset = self.order[self.cursor], self.offset[self.cursor]
        flipped = self.flip[self.cursor, None]
        rows = offset[:, :1] + self.rows
        columns = offset[:, 1:] + torch.where(flipped, self.columns.flip(0), self.columns)
        pixels = self.padded[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
        return self.normalise(pixels), self.labels[chosen]

    def normalise(self, pixels: Tensor) -> Tensor:
        """Return uint8 images of shape (n_samples, height, width, 3) as input of the network."""
        # Images are stored channels last, so the permuted view is also channels last.
        return (pixels.float() * self.scale + self.shift).permute(0, 3, 1, 2).to(self.dtype)

    def step(self) -> None:
        """Run one step (augment, forward, backward, update) without waiting for the device."""
        self.network.zero_grad(set_to_none=True)
        images, labels = self._batch()
        logits = self.network(images).float()
        loss = functional.cross_entropy(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            gradients = [parameter.grad for parameter in self.working]
            torch._foreach_copy_([master.grad for master in self.masters], gradients)
            self.optimizer.step()
            torch._foreach_copy_(self.working, self.masters)
            self.loss_sum += loss.detach()
            self.correct += (logits.argmax(1) == labels).sum()
            self.cursor += self.recipe.batch

    def capture(self) -> None:
        """Record one step as a CUDA graph without changing weights or statistics. Does nothing on a CPU."""
        if self.stream is None or self.graph is not None:
            return
        # Detach: a clone with a gradient would bind the gradient nodes of the weights to the stream outside the graph.
        before = [tensor.detach().clone() for tensor in self._mutable()]
        momenta = [momentum.clone() for momentum in self._momenta()]
        self.network.train()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for _ in range(4):  # cuDNN selects kernels and the optimizer allocates buffers outside the graph
                self._rewind()
                self.step()
            self._rewind()
        torch.cuda.synchronize(self.device)
        self.network.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.step()
        self.graph = graph
        with torch.no_grad():
            for tensor, value in zip(self._mutable(), before, strict=True):
                tensor.copy_(value)
            for index, momentum in enumerate(self._momenta()):
                # A zeroed momentum makes the next update equal to a first one.
                momentum.copy_(momenta[index]) if momenta else momentum.zero_()
        torch.cuda.synchronize(self.device)

    def _mutable(self) -> list[Tensor]:
        return [*self.masters, *self.working, *self.network.buffers()]

    def _momenta(self) -> list[Tensor]:
        if not self.optimizer.state:
            return []
        return [self.optimizer.state[master]["momentum_buffer"] for master in self.masters]

    def train_epoch(self) -> float:
        """Train one epoch and return its mean loss."""
        start = time.perf_counter()
        with torch.cuda.stream(self.stream):  # does nothing on a CPU
            self.network.train()
            self._shuffle()
            self.rate.fill_(self.recipe.learning_rate(self.epoch))
            one_step = self.graph.replay if self.graph is not None else self.step
            for _ in range(self.steps):
                one_step()
            loss = float(self.loss_sum) / self.steps
            accuracy = int(self.correct) / (self.steps * self.recipe.batch)
        if not math.isfinite(loss):
            raise FloatingPointError(f"loss is {loss} in epoch {self.epoch}: lower the learning rate")
        self.losses.append(loss)
        self.accuracies.append(accuracy)
        self.seconds += time.perf_counter() - start
        return loss

    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        return float((self.logits(images).argmax(1) == labels).double().mean())

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        with torch.cuda.stream(self.stream):  # does nothing on a CPU
            self.network.eval()
            found = torch.cat([self.network(self.normalise(pixels)).float() for pixels in torch.split(images, 1000)])
            self.network.train()
        self._wait()
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return the network's state in float32 on the CPU."""
        self._wait()
        parameters = dict(zip(self.names, self.masters, strict=True))
        state = {**parameters, **dict(self.network.named_buffers())}
        return {name: state[name].detach().to("cpu", copy=True).contiguous() for name in self.network.state_dict()}

    def checkpoint(self) -> dict[str, Tensor]:
        momenta = self._momenta() or [torch.zeros_like(master) for master in self.masters]
        extra = {
            f"momentum/{name}": momentum.detach().to("cpu", copy=True).contiguous()
            for name, momentum in zip(self.names, momenta, strict=True)
        }
        for name in ("losses", "accuracies", "seconds"):
            extra[f"history/{name}"] = torch.tensor(getattr(self, name), dtype=torch.float64)
        return {**self.weights(), **extra}

    @torch.no_grad()
    def resume(self, checkpoint: dict[str, Tensor]) -> None:
        """Continue from a checkpoint; call it before or after `capture`."""
        for name, master, parameter in zip(self.names, self.masters, self.working, strict=True):
            master.copy_(checkpoint[name])
            parameter.copy_(master)
            momentum = self.optimizer.state[master].setdefault("momentum_buffer", torch.zeros_like(master))
            momentum.copy_(checkpoint[f"momentum/{name}"])
        for name, buffer in self.network.named_buffers():
            buffer.copy_(checkpoint[name])
        for name in ("losses", "accuracies", "seconds"):
            setattr(self, name, checkpoint[f"history/{name}"].tolist())
        self._wait()

    def _wait(self) -> None:
        if self.stream is not None:
            torch.cuda.synchronize(self.device)

    def metadata(self) -> dict[str, Any]:
        return {
            "recipe": asdict(self.recipe),
            "epochs": self.epoch,
            "steps_per_epoch": self.steps,
            "seconds": round(self.seconds, 2),
            "dtype": str(self.dtype).removeprefix("torch."),
            "cuda_graph": self.graph is not None,
            "losses": [round(loss, 5) for loss in self.losses],
            "train_accuracies": [round(accuracy, 5) for accuracy in self.accuracies],
        }
