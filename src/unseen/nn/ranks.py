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

Weigh = Callable[[Tensor], float | Tensor]  # the sum of the weights by which targets count


class Ranks:
    """One process that has the whole batch."""

    rank, size = 0, 1
    divided = False  # whether a step sees some rows of the batch only
    weighted = False  # whether rows count differently, as with labels that are ignored
    counts_elsewhere = False  # whether a label of the whole batch counts, if not one of the own

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

    def balance(self, weigh: Weigh, y: Tensor) -> float | Tensor:
        """Return the factor that turns a mean over the own rows into a part of the global mean.

        The mean is weighted, as by labels that count; y are the own targets.
        """
        return 1.0

    def regrouped(self, own: int, whole: int) -> float:
        """Return the factor of a mean over `own` of `whole` items that are no longer the rows.

        Processes need none: they count them in `balance`.
        """
        return 1.0

    def most_rows(self, own: int) -> int:
        """Return the largest number of rows that a process has, given the own number."""
        return own

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

    divided = True

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
        if rest:
            return sample(rows)
        own = self.take(sample(repeats * self.total))
        return own.clone() if repeats == 1 else own  # a view would keep all rows in memory

    def part_of(self, t: Tensor) -> Tensor:
        first, last = (len(t) * row // self.total for row in (self.offset, self.offset + self.own))
        return t[first:last]
