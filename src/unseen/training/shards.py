"""Who has which samples of a loader, where several processes train one model.

A loader that gives the same batch to every process is divided here: a process takes its rows of
each batch. A loader that gives other samples to every process, as with a DistributedSampler, was
divided by its user: the batch is what all processes have together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data.distributed import DistributedSampler

from unseen.api import Batch
from unseen.detection.sampling import loader_length
from unseen.errors import UnseenError
from unseen.nn.batch import batches_from
from unseen.nn.inputs import Inputs
from unseen.nn.ranks import Ranks, shared_by
from unseen.training.distributed import Processes

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


class Shards:
    """Gives each process its rows of the batches of one loader, and notices mistakes."""

    def __init__(self, loader: Iterable[Any], processes: Ranks, name: str = "loader") -> None:
        self.loader, self.processes, self.name = loader, processes, name
        self.divided_by_user: bool | None = None  # not known before the first batch

    def own_rows(self, batch: Batch) -> Batch:
        """Return the rows of this process, and set those of every one."""
        if not isinstance(self.processes, Processes):
            return batch
        rows = self._exchange(batch)
        if self.divided_by_user:
            self.processes.set_rows(rows)
            return batch
        self.processes.divide(len(batch.y))
        first = self.processes.offset
        return batch.rows(slice(first, first + self.processes.own))

    def _exchange(self, batch: Batch) -> list[int]:
        """Compare the batches of the processes; return how many rows each of them has."""
        assert isinstance(self.processes, Processes)
        seen = self.processes.exchange(float(len(batch.y)), *fingerprint(batch))
        kinds = {tuple(numbers) for numbers in seen}
        if self.divided_by_user is None:
            self.divided_by_user = len(kinds) > 1
            if len(kinds) == 1 and has_distributed_sampler(self.loader):
                raise UnseenError(
                    f"all {self.processes.size} processes were given the same samples of "
                    f"{self.name}, though its sampler divides them: is the rank of the "
                    "DistributedSampler that of the process?"
                )
            if 1 < len(kinds) < self.processes.size:
                raise UnseenError(
                    f"some processes were given the same samples of {self.name} and some were "
                    "not: give all the same loader, or each its own part of the data"
                )
        if not self.divided_by_user and len(kinds) > 1:
            raise UnseenError(
                f"{self.name} gave the same batches to all processes, and now other ones: take "
                "its random numbers from torch's global generator, or divide it with a "
                "DistributedSampler"
            )
        return [int(numbers[0]) for numbers in seen]

    def set_epoch(self, epoch: int) -> None:
        """Tell a DistributedSampler the epoch, without which every epoch has the same order."""
        sampler = getattr(self.loader, "sampler", None)
        if isinstance(self.processes, Processes) and isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)

    def whole(self) -> Iterable[Any]:
        """Return all batches, the same in every process, for statistics."""
        return WholeBatches(self) if isinstance(self.processes, Processes) else self.loader

    def kept(self) -> Iterable[Any]:
        """Return all batches in a form that one process can iterate later, without the others."""
        if not isinstance(self.processes, Processes):
            return self.loader
        with torch.random.fork_rng(devices=[]):  # a loader that shuffles draws its order
            first = next(iter(self.whole()), None)
            undivided = first is None or not self.divided_by_user
            return self.loader if undivided else list(self.whole())


def own_batches(
    batches: Iterable[Batch], source: Shards, device: torch.device, views: Callable[[Batch], Batch]
) -> Iterator[Batch]:
    """Yield the rows of this process, augmented."""
    for batch in batches:
        own = source.own_rows(batch).to(device)
        with shared_by(source.processes):
            own = views(own)
        yield own


class WholeBatches:
    """The batches of a loader; those of a divided one are put together."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        if loader_length(shards.loader) is None:
            raise UnseenError(
                f"{shards.name} has no length, which several processes need: give a DataLoader or "
                "a list of batches"
            )

    def __len__(self) -> int:
        length = loader_length(self.shards.loader)
        assert length is not None
        return length

    def __iter__(self) -> Iterator[Batch]:
        shards, processes = self.shards, self.shards.processes
        assert isinstance(processes, Processes)
        batches = batches_from(shards.loader, shards.name)
        if shards.divided_by_user is False:
            yield from batches
            return
        while True:
            own = next(batches, None)
            parts = [b for b in processes.from_all(None if own is None else own.to("cpu")) if b]
            if not parts:
                return
            if shards.divided_by_user is None:
                shards.divided_by_user = len({fingerprint(b) for b in parts}) > 1
            if not shards.divided_by_user:
                yield parts[0]
                yield from batches
                return
            yield from joined(parts)


def joined(parts: list[Batch]) -> list[Batch]:
    """Return one batch of all rows; the parts themselves if their shapes differ."""
    shapes = {tuple(t.shape[1:] for t in (*part.x, part.y)) for part in parts}
    if len(shapes) > 1:  # sequences of another length
        return parts
    columns = zip(*(part.x for part in parts), strict=True)
    x = Inputs.like(parts[0].x, [torch.cat(column) for column in columns])
    return [Batch(x, torch.cat([part.y for part in parts]))]


def fingerprint(batch: Batch) -> tuple[float, float]:
    """Return numbers that are equal for equal batches, and hardly ever for others."""

    def summed(t: Tensor) -> int:
        # Of the bits, as integers: a sum of floats may differ in its last digit between machines.
        kind = INTEGERS[t.element_size()]
        rows = t.detach().reshape(len(t), -1).contiguous().view(kind).sum(1, dtype=torch.int64)
        return int((rows * torch.arange(1, len(t) + 1, device=t.device)).sum()) % 2**53

    return float(sum(map(summed, batch.x)) % 2**53), float(summed(batch.y))


def has_distributed_sampler(loader: Any) -> bool:
    """Return whether a DataLoader's sampler divides the data set."""
    return isinstance(getattr(loader, "sampler", None), DistributedSampler)
