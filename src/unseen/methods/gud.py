"""Generalizing to unseen domains via adversarial data augmentation (Volpi et al., NeurIPS 2018).

    x+ = argmax over x of  L(theta; x, y) - gamma mean (z - z0)^2      in a round
    min over theta of      L(theta; S, S+_1, ..., S+_k)               in every step

z is the embedding of x, z0 that of the sample where the ascent starts. Differences from the paper
are listed in docs/methods/gud.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.batch import gather_batch, take_batch
from unseen.nn.hooks import captured, evaluating, scratch_buffers
from unseen.nn.inputs import Inputs, describe_tensors
from unseen.nn.ranks import ranks


def ascend(objective: Callable[[Tensor], Tensor], x: Tensor, steps: int, rate: float) -> Tensor:
    """Ascend objective(x), of shape (N,), by gradient steps on x; samples are independent."""
    for _ in range(steps):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(x).sum(), x)
        x = torch.add(x.detach(), gradient, alpha=rate)
    return x


class Pool:
    """Fictitious domains of `capacity` samples each, on the CPU; only complete ones are sampled."""

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
        """Add samples to the incomplete domain; those beyond its capacity are dropped."""
        room = self.capacity - len(self) % self.capacity
        # Contiguous, as a pool read from a checkpoint is: the layout changes bits.
        x, y = x[:room].detach().cpu().contiguous(), y[:room].cpu()
        self.x = x if self.x is None else torch.cat([self.x, x])
        self.y = y if self.y is None else torch.cat([self.y, y])

    def sample(self, n: int, newest: bool = False) -> Batch:
        """Draw n samples from all complete domains, or from the newest one."""
        return self.rows(self.draw_rows(n, newest))

    def draw_rows(self, n: int, newest: bool = False) -> Tensor:
        """Draw the rows of n samples."""
        first = (self.domains - 1) * self.capacity * newest
        return torch.randint(first, self.domains * self.capacity, (n,))

    def rows(self, rows: Tensor) -> Batch:
        """Return some of the samples."""
        assert self.x is not None and self.y is not None
        return Batch((self.x[rows],), self.y[rows])

    def mix(self, source: Batch) -> Batch:
        """Return a batch of the same size, with equal parts of source and complete domains."""
        if not self.domains:
            return source
        size = len(source.y)
        part = max(1, size // (self.domains + 1))
        rows = torch.randperm(size)[:part].to(source.y.device)
        other = self.sample(size - part).to(source.y.device)
        return Batch(
            (torch.cat([source.x[0][rows], other.x[0]]),), torch.cat([source.y[rows], other.y])
        )


class GUD(ERM):
    """Train on the source and on adversarial samples that stay close in the embedding."""

    name = "gud"
    summary = "trains on the source and on adversarial samples, added in rounds"
    paper = (
        "Volpi et al., Generalizing to Unseen Domains via Adversarial Data Augmentation, "
        "NeurIPS 2018"
    )

    needs_embedding = True

    def __init__(
        self,
        model: nn.Module,
        *,
        rounds: int = 3,
        every: int = 100,
        capacity: int = 1000,
        ascent_steps: int = 15,
        ascent_lr: float = 1 / 32,  # the release: 1.0 on the mean over a batch of 32
        gamma: float = 1.0,
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.rounds = check_int("rounds", rounds, 0)
        self.every = check_int("every", every, 1)
        self.capacity = check_int("capacity", capacity, 1)
        self.ascent_steps = check_int("ascent_steps", ascent_steps, 1)
        self.ascent_lr = check_positive("ascent_lr", ascent_lr)
        self.gamma = check_number("gamma", gamma, 0)
        self.pool = Pool(capacity)

    def warnings(self, steps: int) -> list[str]:
        if not self.rounds or int(self.steps_done) + steps > self.every:
            return []
        return [f"{steps} steps end before the first round (every={self.every}): this is ERM"]

    def training_samples(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        mixed = self.mix(batch)
        return mixed, self.augment(mixed) if self.in_round() else {}

    def mix(self, source: Batch) -> Batch:
        """Return samples of the source and of the complete domains, prepared for the model."""
        self._check_input(source.x)
        mixed = take_batch(self.pool.mix(gather_batch(source))) if self.pool.domains else source
        return Batch(self._ready(mixed.x), mixed.y)

    def sample_domains(self, n: int) -> Batch:
        """Draw n samples from all complete domains, for each process its own."""
        rows = ranks().draw(self.pool.draw_rows, n)
        return self.pool.rows(rows).to(self.device)

    def in_round(self) -> bool:
        """Return whether this step adds to a fictitious domain."""
        return self.pool.domains < self.rounds and int(self.steps_done) >= self.every * (
            self.pool.domains + 1
        )

    def augment(self, start: Batch) -> dict[str, Tensor]:
        """Add adversarial versions of the samples, with their labels, to the pool."""
        parts = self.microbatches(start)
        x = torch.cat(parts.map(lambda part: self.adversarial(part.batch)))
        self.pool.add(ranks().gather(x), ranks().gather(start.y))
        return {"transport": (x - start.x[0]).flatten(1).norm(dim=1).mean()}

    def adversarial(self, start: Batch) -> Tensor:
        """Return the samples after the ascent; weights and BatchNorm statistics are unchanged."""
        # Eval mode, as in M-ADA's release: Dropout would move z, BatchNorm would couple samples.
        with evaluating(self.model), self.full_precision():
            return ascend(
                self.ascent_objective(start), start.x[0], self.ascent_steps, self.ascent_lr
            )

    def ascent_objective(self, start: Batch) -> Callable[[Tensor], Tensor]:
        """Return the function that samples ascend from `start`, (N, ...) -> (N,)."""
        frozen = {
            **{name: p.detach() for name, p in self.model.named_parameters()},
            **scratch_buffers(self.model),
        }
        with torch.no_grad():
            logits, start_z = self._forward(frozen, start.x)
        self.objective.check(logits, start.y)

        def objective(x: Tensor) -> Tensor:
            logits, z = self._forward(frozen, Inputs.like(start.x, [x]))
            distance = (z - start_z).square().flatten(1).mean(1)
            return self.objective.per_sample(logits, start.y) - self.gamma * distance

        return objective

    def _forward(self, frozen: dict[str, Tensor], x: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        assert self.embedding is not None
        with captured(self.model, (self.embedding,)) as outputs:
            logits = self.logits(x, frozen)
        return logits, outputs[self.embedding]

    def _check_input(self, x: tuple[Tensor, ...]) -> None:
        if len(x) != 1 or not x[0].is_floating_point():
            raise UnseenError(
                f"{self.name} perturbs its input: expected one float input (N, ...), "
                f"got {describe_tensors(x)}"
            )

    def extra_state(self) -> dict[str, Tensor]:
        if self.pool.x is None or self.pool.y is None:
            return {}
        return {"pool/x": self.pool.x, "pool/y": self.pool.y}

    def load_extra_state(self, state: dict[str, Tensor]) -> None:
        self.pool.x, self.pool.y = state.get("pool/x"), state.get("pool/y")
