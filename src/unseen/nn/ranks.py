"""The processes that train one model together, as a step sees them.

A step works on the rows of its own process. Where the whole batch matters, it asks `ranks()`.
Alone, which is the default, each answer is the argument itself. Training installs another object
for the length of a step (training/distributed.py), and so do microbatches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor
from torch.optim import Optimizer


class Ranks:
    """One process that has the whole batch."""

    rank, size = 0, 1
    weighted = False  # whether rows count differently, as with labels that are ignored

    @property
    def leads(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def average(
        self, values: Sequence[Tensor | None], like: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Average gradients over the processes, each weighted by its rows.

        `like` has the shapes, also of gradients that only other processes have.
        """
        return list(values)

    def average_gradients(self, optimizer: Optimizer) -> None:
        """Average the gradients of an optimizer's parameters, once in a step."""

    def sum(self, t: Tensor) -> Tensor:
        """Add the tensors of all processes; it can be differentiated twice."""
        return t

    def gather(self, t: Tensor) -> Tensor:
        """Return the rows of all processes, in order; the gradient is that of the own rows."""
        return t

    def take(self, t: Tensor) -> Tensor:
        """Return the own rows of a tensor with the rows of the whole batch."""
        return t

    def draw(self, sample: Callable[[int], Tensor], rows: int) -> Tensor:
        """Draw sample(n) with n rows for the whole batch and return the own ones.

        Random numbers then do not depend on how a batch is divided. The rows may repeat the batch.
        """
        return sample(rows)

    def part_of(self, t: Tensor) -> Tensor:
        """Return the own part of items that belong to no row, divided as the rows are."""
        return t

    def balance(self, weight: float | Tensor) -> float | Tensor:
        """Return the factor that turns a mean over the own rows into a part of the global mean.

        The mean is weighted, as by labels that count; `weight` is the sum of the own weights.
        """
        return 1.0

    def everywhere(self, flag: bool) -> bool:
        """Return whether the flag is true in every process."""
        return flag


ALONE = Ranks()
_current: list[Ranks] = [ALONE]


def ranks() -> Ranks:
    """Return the processes that share this step."""
    return _current[-1]


def on_whole_batch(act: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
    """Return the own rows of act(t), for a function that draws random numbers by itself."""
    return ranks().take(act(ranks().gather(t)))


@contextmanager
def shared_by(processes: Ranks) -> Iterator[None]:
    """Share the steps that are taken while the context is open."""
    _current.append(processes)
    try:
        yield
    finally:
        _current.pop()


class RowShare(Ranks):
    """A process, or a microbatch, that has the rows offset to offset + own of a batch."""

    def __init__(self, offset: int = 0, own: int = 1, total: int = 1) -> None:
        self.offset, self.own, self.total = offset, own, total

    def take(self, t: Tensor) -> Tensor:
        repeats = len(t) // self.total  # views of the batch, or draws, behind each other
        whole = t.reshape(repeats, self.total, *t.shape[1:])
        kept = whole[:, self.offset : self.offset + self.own]
        return kept[0] if repeats == 1 else kept.flatten(0, 1)

    def draw(self, sample: Callable[[int], Tensor], rows: int) -> Tensor:
        repeats, rest = divmod(rows, self.own)
        # A probe has other rows than the batch.
        return sample(rows) if rest else self.take(sample(repeats * self.total))

    def part_of(self, t: Tensor) -> Tensor:
        first, last = (len(t) * row // self.total for row in (self.offset, self.offset + self.own))
        return t[first:last]
