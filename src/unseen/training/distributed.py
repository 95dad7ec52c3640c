"""Several processes train one model: what they exchange in a step.

Each process has its rows of the batch and computes the gradients of their mean loss. Averages over
the processes, weighted by rows, are those of the whole batch:

    g  = average of the inner gradients                 before the fast weights
    v  = average of the outer gradients with respect to theta*      second order only
    the gradients at an optimizer's step                v, or v - alpha H v with the H of the rows

DistributedDataParallel and FSDP average in hooks of the backward pass and have no second order.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from unseen.api import Batch, Method
from unseen.errors import UnseenError
from unseen.nn.ranks import ALONE, Ranks, RowShare, Weigh, shared_by
from unseen.nn.synchronized import normalizes_batches, synchronized
from unseen.training.shared_memory import SharedSlots, open_slots

log = logging.getLogger("unseen")

Result = TypeVar("Result")

CHECK_EVERY = 100  # steps between two looks whether the weights are still the same


class Processes(RowShare):
    """The processes of torch's default group; their rows are set before every step."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = device
        self.counts = [1] * self.size  # rows of each process
        self.slots: SharedSlots | None = None  # for gradients, on one machine
        self.on_one_machine = True  # until it is known
        self.bytes_averaged = 0
        self.averaged: set[int] = set()  # optimizers whose gradients are averaged in this step
        self.steps = 0

    # ---- rows

    def set_rows(self, counts: Sequence[int]) -> None:
        """Set how many rows of the batch each process has."""
        self.counts = list(counts)
        self.offset, self.own = sum(self.counts[: self.rank]), self.counts[self.rank]
        self.total = sum(self.counts)

    def divide(self, rows: int) -> None:
        """Divide the rows of a batch as evenly as possible."""
        if rows < self.size:
            raise UnseenError(
                f"a batch of {rows} cannot be divided over {self.size} processes: use a larger "
                "batch size, or drop_last=True"
            )
        bounds = [rows * rank // self.size for rank in range(self.size + 1)]
        self.set_rows([b - a for a, b in itertools.pairwise(bounds)])

    # ---- what a step asks for

    def average(
        self, values: Sequence[Tensor | None], like: Sequence[Tensor]
    ) -> list[Tensor | None]:
        if not like:
            return list(values)
        # One buffer, and behind it for each tensor in how many processes it is there.
        dtype = torch.float64 if any(t.dtype == torch.float64 for t in like) else torch.float32
        sizes, device = [*(t.numel() for t in like), len(like)], like[0].device
        count = sum(sizes)
        slots = self.shared_slots(count * dtype.itemsize, device)
        own = slots.slot(count, dtype) if slots else torch.empty(count, dtype=dtype, device=device)
        *parts, present = own.split(sizes)
        for part, value in zip(parts, values, strict=True):
            if value is None:
                part.zero_()
            else:
                torch.mul(value.reshape(-1), self.own / self.total, out=part)
        present.copy_(torch.tensor([float(value is not None) for value in values]))
        if slots:
            total = slots.sum(count, dtype)
        else:
            self.all_reduce(total := own)
        self.bytes_averaged += total.nbytes
        *parts, present = total.split(sizes)
        return [
            part.view(t.shape).to(t.dtype) if there else None
            for part, t, there in zip(parts, like, present.tolist(), strict=True)
        ]

    def shared_slots(self, nbytes: int, device: torch.device) -> SharedSlots | None:
        """Return memory that all processes see; None if they are not on one machine."""
        if device.type != "cpu" or not self.on_one_machine:
            return None
        if self.slots is None or self.slots.nbytes < nbytes:
            self.slots = open_slots(nbytes, self.rank, self.from_all, self.meet)
            self.on_one_machine = self.slots is not None
        return self.slots

    def average_gradients(self, optimizer: Optimizer, *_: Any) -> None:
        if id(optimizer) in self.averaged:
            return
        self.averaged.add(id(optimizer))
        held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        for p, grad in zip(held, self.average([p.grad for p in held], held), strict=True):
            p.grad = grad

    def sum(self, t: Tensor) -> Tensor:
        return _Sum.apply(t, self)  # type: ignore[no-any-return, no-untyped-call]

    def gather(self, t: Tensor) -> Tensor:
        own = t.unflatten(0, (len(t) // self.own, self.own)).transpose(0, 1)  # rows, repeats
        padded = own.detach().new_zeros((max(self.counts), *own.shape[1:]))
        padded[: self.own] = own.detach()
        parts = [torch.empty_like(padded) for _ in self.counts]
        with _explained():
            dist.all_gather(parts, padded)
        rows = [part[:count] for part, count in zip(parts, self.counts, strict=True)]
        rows[self.rank] = own
        return torch.cat(rows).transpose(0, 1).flatten(0, 1)

    def most_rows(self, own: int) -> int:
        return max(self.counts)

    def balance(self, weigh: Weigh, y: Tensor) -> float | Tensor:
        own = torch.as_tensor(weigh(y), dtype=torch.float64, device=self.device)
        total = own.clone()
        self.all_reduce(total)
        return float(own * self.total / (total * self.own))

    def everywhere(self, flag: bool) -> bool:
        return all(bool(value) for (value,) in self.exchange(float(flag)))

    # ---- around a step

    @contextmanager
    def sharing(self, net: Method, batch: Batch) -> Iterator[None]:
        """Share the step on this batch."""
        if not self.steps:  # layers that are found, and what is measured of them, once
            net.prepare(batch)
            self.share_weights(net)
        ignored = batch.y == net.ignore_label
        random = float(torch.get_rng_state().sum())
        seen = self.exchange(float(ignored.any()), float(not ignored.all()), random)
        if len({state for *_, state in seen}) > 1:  # a model that draws by itself, on uneven rows
            self.share_random_state()
        # Once a label was ignored, it may be so in samples that a method has kept.
        self.weighted |= any(flag for flag, *_ in seen) or net.regroups_samples
        self.counts_elsewhere = any(flag for _, flag, _ in seen)
        self.weighted |= net.objective.class_weights is not None
        if len(set(self.counts)) > 1 and normalizes_batches(net.model):
            raise UnseenError(
                f"the processes have {', '.join(map(str, self.counts))} samples of this batch: "
                "with BatchNorm all need the same number; choose a batch size that is divisible "
                f"by {self.size}, and drop_last=True"
            )
        self.averaged.clear()
        with shared_by(self), synchronized(net.model):
            yield
        # Layers that draw by themselves draw more for more rows; the loader may shuffle next.
        if len(set(self.counts)) > 1 or net.regroups_samples:
            self.share_random_state()
        self.steps += 1
        if self.steps == 1 or self.steps % CHECK_EVERY == 0:
            self.check_same_weights(net)

    def average_logs(self, logs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the logs of the whole batch."""
        values = torch.stack([v.detach().double().reshape(()) for v in logs.values()])
        values = values.to(self.device) * (self.own / self.total)
        self.all_reduce(values)
        return dict(zip(logs, values, strict=True))

    def check_same_weights(self, net: nn.Module) -> None:
        """Raise if the processes have come apart."""
        sums = torch.stack([p.detach().double().sum() for p in net.parameters()])
        rounded = self.exchange(float(sums.sum()), float(sums.abs().sum()))
        scale = max(abs(b) for _, b in rounded) + 1.0
        values = [a for a, _ in rounded]
        if not max(values) - min(values) <= 1e-9 * scale:  # also if one is not a number
            raise UnseenError(
                "the weights of the processes differ: a step must update them through "
                "self.apply_gradients(optimizer), with optimizers that optimizers() returns, and "
                "random numbers must come from torch's global generator"
            )

    # ---- exchanges

    def all_reduce(self, t: Tensor) -> None:
        """Add the tensors of all processes, in place."""
        with _explained():
            dist.all_reduce(t)

    def meet(self) -> None:
        """Wait until all processes are here."""
        self.all_reduce(torch.zeros(1, device=self.device))

    def exchange(self, *values: float) -> list[list[float]]:
        """Return the numbers of every process."""
        own = torch.tensor(values, dtype=torch.float64, device=self.device)
        parts = [torch.empty_like(own) for _ in range(self.size)]
        with _explained():
            dist.all_gather(parts, own)
        return [part.tolist() for part in parts]

    def from_leader(self, act: Callable[[], Result]) -> Result:
        """Return what the function gives in process 0; its error is one in every process."""
        box: list[Any] = [None, None]
        failure: UnseenError | None = None
        if self.leads:
            try:
                box[0] = act()
            except UnseenError as error:
                failure, box[1] = error, str(error)
        with _explained():
            dist.broadcast_object_list(box, 0)
        if failure is not None:
            raise failure
        if box[1] is not None:
            raise UnseenError(f"process 0: {box[1]}")
        result: Result = box[0]
        return result

    def from_all(self, value: Any) -> list[Any]:
        """Return what each process has."""
        values: list[Any] = [None] * self.size
        with _explained():
            dist.all_gather_object(values, value)
        return values

    def share_random_state(self) -> None:
        """Give every process the random state of process 0."""
        on_gpu = self.device.type == "cuda"
        torch.set_rng_state(self.from_leader(torch.get_rng_state))
        if on_gpu:
            state = self.from_leader(lambda: torch.cuda.get_rng_state(self.device))
            torch.cuda.set_rng_state(state, self.device)

    def start(self, net: nn.Module, settings: dict[str, Any]) -> None:
        """Raise unless all were called alike; share the weights and random state of process 0."""
        for rank, other in enumerate(self.from_all(settings)):
            if other != settings:
                name = next(n for n in settings if settings[n] != other.get(n))
                raise UnseenError(
                    f"{name} is {settings[name]} in process {self.rank} and {other.get(name)} in "
                    f"process {rank}: call all processes alike"
                )
        self.share_random_state()
        self.share_weights(net)

    @torch.no_grad()
    def share_weights(self, net: nn.Module) -> None:
        """Give every process the weights and buffers of process 0."""
        shapes = {name: tuple(t.shape) for name, t in net.state_dict().items()}
        for rank, other in enumerate(self.from_all(shapes)):
            if other != shapes:
                name = next(n for n in {**shapes, **other} if shapes.get(n) != other.get(n))
                raise UnseenError(
                    f"{name} is {shapes.get(name, 'absent')} in process {self.rank} and "
                    f"{other.get(name, 'absent')} in process {rank}: build the same model in all"
                )
        for t in net.state_dict().values():
            value = t.detach().contiguous()
            with _explained():
                dist.broadcast(value, 0)
            t.copy_(value)


class _Sum(torch.autograd.Function):
    """Add over processes. The gradient of the sum of all losses is the sum of all gradients."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        total = t.contiguous().clone()
        processes.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _Sum.apply(gradient, ctx.processes), None  # type: ignore[no-untyped-call]


class LostProcess(UnseenError):
    """Another process has ended, or does not answer."""


@contextmanager
def _explained() -> Iterator[None]:
    """Explain the failure of an exchange."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).strip().splitlines()[0][:200]
        raise LostProcess(
            "another process of this training has ended or does not answer; its own message names "
            "the cause. Start all processes again with --resume (in Python resume=True) to go on "
            f"from the last checkpoint ({text})"
        ) from error


def join(device: torch.device) -> Ranks:
    """Return the processes of the initialised group, or this process alone."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return Processes(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "TORCHELASTIC_RUN_ID" in os.environ:
        log.warning(
            "torchrun started %s processes, but torch.distributed is not initialised: this one "
            "trains alone; call torch.distributed.init_process_group() first",
            os.environ["WORLD_SIZE"],
        )
    return ALONE
