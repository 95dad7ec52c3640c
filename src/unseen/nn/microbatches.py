"""A batch whose parts are in memory one after the other, within one step.

With n_i of the n samples in part i, the gradients of the parts' mean losses add up to that of the
batch:

    g = sum_i  n_i / n  g_i

A part sees random numbers, random masks and weights of labels as the whole batch does (`ranks()`).
Only BatchNorm differs: it normalizes each part by itself, as in any accumulation of gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.functional.meta import InnerStep, inner_step, step_along, vector_product
from unseen.nn.batch import Batch
from unseen.nn.objectives import Objective
from unseen.nn.ranks import Ranks, RowShare, Weigh, ranks, shared_by
from unseen.nn.synchronized import synchronized

Result = TypeVar("Result")


class Part(NamedTuple):
    """Some samples of a batch; the first two fields are those of `Batch`."""

    x: tuple[Tensor, ...]
    y: Tensor
    share: float  # of the samples of the batch
    number: int  # of the part, from 0

    @property
    def batch(self) -> Batch:
        return Batch(self.x, self.y)


class Microbatches:
    """The parts of one batch.

    Args:
        size: samples in a part at most; None for one part.
        weighted: whether samples count differently in the mean loss, as with ignored labels.
        counts: whether a label of the batch counts.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        size: int | None = None,
        weighted: bool = False,
        counts: bool = False,
    ) -> None:
        self.model, self.batch, self.outer = model, batch, ranks()
        if isinstance(self.outer, Microbatch):  # a part is not divided again
            size = None
        self.weighted = weighted or self.outer.weighted
        self.counts = counts or self.outer.counts_elsewhere
        # Views of the rows that a process has, behind each other: a part has rows of one view,
        # since those of two are no neighbours in the whole batch.
        self.views = len(batch.y) // self.outer.own if _has_given(self.outer, batch) else 1
        rows = len(batch.y) // self.views
        most = self.outer.most_rows(rows)
        parts = 1 if size is None else -(-most // size)
        if parts > rows:
            raise UnseenError(
                f"a process has {rows} samples of this batch, and another one has {most}: they "
                f"cannot all be divided into {parts} microbatches; choose a batch size that the "
                "number of processes divides"
            )
        bounds = [rows * i // parts for i in range(parts)]
        starts = [rows * view + first for view in range(self.views) for first in bounds]
        if size is None:
            starts = [0]
        self.slices = [slice(a, b) for a, b in itertools.pairwise([*starts, len(batch.y)])]
        self.known: Tensor | None = None  # rows of the batch that a part asks for
        self.start: dict[str, Any] = {}  # random state of the last `map`

    def __len__(self) -> int:
        return len(self.slices)

    def map(self, act: Callable[[Part], Result]) -> list[Result]:
        """Call act on every part, from the same random state."""
        if len(self) == 1:
            return [act(Part(*self.batch, 1.0, 0))]
        results = []
        self.start = start = _random_state(self.batch.y.device)
        for number, rows in enumerate(self.slices):
            _set_random_state(start, self.batch.y.device)
            part = Part(*self.batch.rows(rows), self._share(rows), number)
            with shared_by(Microbatch(self, rows)):
                results.append(act(part))
        return results

    def average(self, act: Callable[[Part], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Call act on every part; return the mean over samples of the scalars it returns."""
        total: dict[str, Tensor] = {}
        for rows, logs in zip(self.slices, self.map(act), strict=True):
            for name, value in logs.items():
                value = value.detach() if len(self) == 1 else self._share(rows) * value.detach()
                total[name] = total[name] + value if name in total else value
        return total

    def again(
        self, act: Callable[[Part], Result], start: Mapping[str, Any] | None = None
    ) -> list[Result]:
        """Repeat a `map` from its random state, or take the next one in advance.

        Buffers and random state are restored.
        """
        device = self.batch.y.device
        before, buffers = _random_state(device), [b.clone() for b in self.model.buffers()]
        if start is not None:
            _set_random_state(start, device)
        results = self.map(act)
        _set_random_state(before, device)
        for buffer, value in zip(self.model.buffers(), buffers, strict=True):
            buffer.data.copy_(value)
        return results

    @contextmanager
    def knowing(self, rows: Tensor | None) -> Iterator[None]:
        """Let a part ask for these rows of the whole batch, of which it has computed its own."""
        self.known = rows
        try:
            yield
        finally:
            self.known = None

    def _share(self, rows: slice) -> float:
        samples: int = rows.stop - rows.start
        return samples / len(self.batch.y)


class Microbatch(RowShare):
    """One part, as a step sees it: some of the rows that its process has."""

    def __init__(self, whole: Microbatches, rows: slice) -> None:
        outer, offset, total = whole.outer, rows.start, len(whole.batch.y)
        if isinstance(outer, RowShare):
            view, first = divmod(rows.start, total // whole.views)
            offset = view * outer.total + outer.offset + first
            total = whole.views * outer.total
        super().__init__(offset, rows.stop - rows.start, total)
        self.whole, self.rows = whole, rows
        self.rank, self.size, self.weighted = outer.rank, outer.size, whole.weighted
        self.counts_elsewhere = whole.counts

    def sum(self, t: Tensor) -> Tensor:
        return self.whole.outer.sum(t)

    def everywhere(self, flag: bool) -> bool:
        return self.whole.outer.everywhere(flag)

    def gather(self, t: Tensor) -> Tensor:
        whole, rows = self.whole, self.rows
        for known in (*whole.batch.x, whole.batch.y):
            own = known[rows]
            if own.data_ptr() == t.data_ptr() and own.shape == t.shape and own.dtype == t.dtype:
                return whole.outer.gather(known)
        if whole.known is None or whole.known[rows].shape != t.shape:
            raise UnseenError(
                "this step compares all samples of a batch: leave out microbatch, or choose a "
                "smaller batch size"
            )
        before, after = whole.known[: rows.start], whole.known[rows.stop :]
        return whole.outer.gather(torch.cat([before, t, after]))

    def regrouped(self, own: int, whole: int) -> float:
        return own * self.total / (whole * self.own)

    def balance(self, weigh: Weigh, y: Tensor) -> float | Tensor:
        whole = self.whole
        repeats = len(y) / self.own  # y may be repeated for each draw
        own, all_rows = weigh(y) / repeats, weigh(whole.batch.y)
        within = own * len(whole.batch.y) / (all_rows * self.own) if all_rows else 0.0
        return within * whole.outer.balance(weigh, whole.batch.y)


class DividesBatches:
    """Divides the batches of a method's step into as many samples as the training loop says."""

    model: nn.Module
    objective: Objective
    name: ClassVar[str]
    regroups_samples: ClassVar[bool]
    _microbatch: int | None = None
    _has_divided = False  # whether the last step asked for microbatches

    def microbatches(self, batch: Batch) -> Microbatches:
        """Return the parts of a batch; one part unless the training loop has set `microbatch`."""
        self._has_divided = True
        size, objective = self._microbatch, self.objective
        if size is None:
            return Microbatches(self.model, batch)
        ignored = batch.y == objective.ignore
        weighted = objective.class_weights is not None or bool(ignored.any())
        if self.regroups_samples and (weighted or ranks().size > 1):
            raise UnseenError(
                f"{self.name} regroups the samples of a batch, which microbatch divides in one "
                "process only, and without ignored labels and class weights: leave microbatch out, "
                "and choose a smaller batch size"
            )
        return Microbatches(self.model, batch, size, weighted, not bool(ignored.all()))

    @contextmanager
    def dividing(self, size: int) -> Iterator[None]:
        """Divide batches into parts of at most this size while the context is open."""
        self._microbatch, self._has_divided = size, False
        alone = nullcontext() if ranks().divided else synchronized(self.model, norm=False)
        try:
            with alone:
                yield
        finally:
            self._microbatch = None
        if not self._has_divided:
            raise UnseenError(
                f"{self.name} does not divide its batches, which microbatch needs: compute the "
                "gradients of step by self.microbatches(batch).average(...), as unseen.ERM does, "
                "or leave microbatch out"
            )


def inner_step_of(
    parts: Microbatches,
    loss: Callable[[Part], Tensor],
    params: Mapping[str, Tensor],
    alpha: float,
    second_order: bool,
    scale: float = 1.0,
) -> tuple[Tensor, InnerStep]:
    """Return the mean loss over the parts and the step on it (Eq. 4); see `inner_step`.

    Of several parts no graph is kept: the second order computes each part's gradient again.
    """
    params = dict(params)
    leaves = list(params.values())
    average = parts.outer.average
    if len(parts) == 1:
        (value,) = parts.map(loss)
        return value.detach(), inner_step(value, params, alpha, second_order, scale, average)
    total: list[Tensor | None] = [None] * len(leaves)

    def descend(part: Part) -> dict[str, Tensor]:
        value = loss(part)
        grads = torch.autograd.grad(part.share * scale * value, leaves, allow_unused=True)
        add_to(total, [None if g is None else g / scale for g in grads])
        return {"loss": value}

    def hessian_product(v: Mapping[str, Tensor]) -> list[Tensor | None]:
        products: list[Tensor | None] = [None] * len(leaves)

        def multiply(part: Part) -> None:
            grads = torch.autograd.grad(
                part.share * loss(part), leaves, create_graph=True, allow_unused=True
            )
            add_to(products, vector_product(dict(zip(params, grads, strict=True)), v, leaves))

        parts.again(multiply, start)
        return products

    value, start = parts.average(descend)["loss"], parts.start
    inner = step_along(total, params, alpha, second_order, average)
    inner.hessian_product = hessian_product
    return value, inner


def _has_given(outer: Ranks, batch: Batch) -> TypeGuard[RowShare]:
    """Return whether a batch has all rows of a process, once or in several views."""
    return isinstance(outer, RowShare) and len(batch.y) % outer.own == 0


def add_to(total: list[Tensor | None], values: Sequence[Tensor | None]) -> None:
    """Add values to the entries of a list, in which None stands for zero."""
    for i, value in enumerate(values):
        known = total[i]
        if value is not None:
            total[i] = value if known is None else known + value


def _random_state(device: torch.device) -> dict[str, Any]:
    state = {"cpu": torch.get_rng_state()}
    return {**state, "cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def _set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
