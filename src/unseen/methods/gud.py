"""Generalizing to unseen domains via adversarial data augmentation (Volpi et al., NeurIPS 2018).

    x+ = argmax over x of  L(theta; x, y) - gamma mean (z - z0)^2      in a round, from samples of all there is
    min over theta of      L(theta; S, S+_1, ..., S+_k)               in every step

z is the embedding of x, z0 that of the sample the climb starts from. docs/methods/gud.md says where this differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.api import Batch, check_targets
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.hooks import captured, evaluating, scratch_buffers


def ascend(objective: Callable[[Tensor], Tensor], x: Tensor, steps: int, rate: float) -> Tensor:
    """x after plain gradient steps, each sample up its own objective: objective(x) is (N,)."""
    for _ in range(steps):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(objective(x).sum(), x)
        x = torch.add(x.detach(), slope, alpha=rate)
    return x


def loss_per_sample(logits: Tensor, y: Tensor, ignore: int) -> Tensor:
    """Cross-entropy of each sample, the mean over its labels that count: (N,)."""
    each = F.cross_entropy(logits, y, ignore_index=ignore, reduction="none").reshape(len(y), -1)
    return each.sum(1) / (y != ignore).reshape(len(y), -1).sum(1).clamp(min=1)


class Pool:
    """Fictitious domains of `capacity` samples each, kept on the CPU; only whole ones are drawn from."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.x: Tensor | None = None
        self.y: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.y is None else len(self.y)

    @property
    def domains(self) -> int:
        return len(self) // self.capacity

    def add(self, x: Tensor, y: Tensor) -> None:
        """Keep the samples, as many as the domain under way has room for."""
        room = self.capacity - len(self) % self.capacity
        # One memory layout, whatever came: a pool read back from a checkpoint must give the same bits.
        x, y = x[:room].detach().cpu().contiguous(), y[:room].cpu()
        self.x = x if self.x is None else torch.cat([self.x, x])
        self.y = y if self.y is None else torch.cat([self.y, y])

    def drawn(self, n: int, newest: bool = False) -> Batch:
        """n random samples of all whole domains, or of the newest one."""
        assert self.x is not None and self.y is not None
        rows = torch.randint(
            (self.domains - 1) * self.capacity * newest, self.domains * self.capacity, (n,)
        )
        return Batch((self.x[rows],), self.y[rows])

    def mixed(self, source: Batch) -> Batch:
        """A batch of the size of the source's, to which every whole domain, the source among them, gives an equal share."""
        if not self.domains:
            return source
        size = len(source.y)
        kept = max(1, size // (self.domains + 1))
        rows, other = (
            torch.randperm(size)[:kept].to(source.y.device),
            self.drawn(size - kept).to(source.y.device),
        )
        return Batch(
            (torch.cat([source.x[0][rows], other.x[0]]),), torch.cat([source.y[rows], other.y])
        )


class GUD(ERM):
    """Training on the source and on samples of it that were moved to where the loss is high and the embedding near."""

    name = "gud"
    summary = "training on the source and on adversarial samples of it, added in rounds"
    paper = "Volpi et al., Generalizing to Unseen Domains via Adversarial Data Augmentation, NeurIPS 2018"

    def __init__(
        self,
        model: nn.Module,
        *,
        rounds: int = 3,
        every: int = 100,
        capacity: int = 1000,
        ascent_steps: int = 15,
        ascent_lr: float = 1 / 32,  # the release takes 1.0 on the mean over a batch of 32
        gamma: float = 1.0,
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        if self.embedding is None:
            raise UnseenError(
                f'{self.name} bounds its samples in the embedding: name the last hidden layer, embedding="..."'
            )
        self.rounds, self.every = check_int("rounds", rounds, 0), check_int("every", every, 1)
        self.capacity = check_int("capacity", capacity, 1)
        self.ascent_steps, self.ascent_lr = (
            check_int("ascent_steps", ascent_steps, 1),
            check_positive("ascent_lr", ascent_lr),
        )
        self.gamma = check_number("gamma", gamma, 0)
        self.pool = Pool(capacity)

    def warnings(self, steps: int) -> list[str]:
        if not self.rounds or steps > self.every:
            return []
        return [
            f"{steps} steps end before the first round (every={self.every}): this is plain training"
        ]

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        drawn = self.mixed(batch)
        logs = self.augment(drawn) if self.in_round() else {}
        return {"loss": self.source_loss(drawn), **logs}

    def mixed(self, source: Batch) -> Batch:
        """Samples of the source and of the fictitious domains there are, ready for the model."""
        self._check_input(source.x)
        drawn = self.pool.mixed(source)
        return Batch(self._ready(drawn.x), drawn.y)

    def in_round(self) -> bool:
        """Is a fictitious domain being filled at this step?"""
        return self.pool.domains < self.rounds and int(self.steps_done) >= self.every * (
            self.pool.domains + 1
        )

    def augment(self, start: Batch) -> dict[str, Tensor]:
        """Turn the samples adversarial and keep them, with their labels."""
        x = self.fictitious(start)
        self.pool.add(x, start.y)
        return {"transport": (x - start.x[0]).flatten(1).norm(dim=1).mean()}

    def fictitious(self, start: Batch) -> Tensor:
        """Where the samples end up; theta and BatchNorm stand still."""
        # In eval mode, as in M-ADA's release: Dropout would move z by itself, BatchNorm would tie the samples to each other.
        with evaluating(self.model):
            return ascend(self.objective(start), start.x[0], self.ascent_steps, self.ascent_lr)

    def objective(self, start: Batch) -> Callable[[Tensor], Tensor]:
        """What samples climb from that start on, (N, ...) -> (N,)."""
        frozen = {
            **{name: p.detach() for name, p in self.model.named_parameters()},
            **scratch_buffers(self.model),
        }
        with torch.no_grad():
            logits, start_z = self._seen(frozen, start.x[0])
        check_targets(logits, start.y, self.ignore_label)

        def gain(x: Tensor) -> Tensor:
            logits, z = self._seen(frozen, x)
            away = (z - start_z).square().flatten(1).mean(1)
            return loss_per_sample(logits, start.y, self.ignore_label) - self.gamma * away

        return gain

    def _seen(self, frozen: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        assert self.embedding is not None
        with captured(self.model, (self.embedding,)) as seen:
            logits = torch.func.functional_call(self.model, frozen, (x,))
        return logits, seen[self.embedding]

    def _check_input(self, x: tuple[Tensor, ...]) -> None:
        if len(x) != 1 or not x[0].is_floating_point():
            given = ", ".join(
                f"{tuple(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in x
            )
            raise UnseenError(
                f"{self.name} moves its input, so it needs one input of floats (N, ...); this model is given {given}"
            )

    def extra_state(self) -> dict[str, Tensor]:
        if self.pool.x is None or self.pool.y is None:
            return {}
        return {"pool/x": self.pool.x, "pool/y": self.pool.y}

    def load_extra_state(self, memory: dict[str, Tensor]) -> None:
        self.pool.x, self.pool.y = memory.get("pool/x"), memory.get("pool/y")
