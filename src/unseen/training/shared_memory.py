"""Sums over the processes of one machine, by memory that all of them see.

Each process writes its values into a slot of its own. When all have done so, each adds up a piece
of all slots, in the order of the processes, and then takes the pieces of all: the same bits
everywhere. There are two sets of slots, used in turn: a process writes into a set again only after
all have met in the sum between, so all have read it.

The memory has no name in the file system, so a process that is killed leaves nothing behind.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BOOT = Path("/proc/sys/kernel/random/boot_id")
PAGE = 4096

FromAll = Callable[[Any], list[Any]]  # what each process has given, in their order


class SharedSlots:
    """Memory with slots of `nbytes` for each of several processes.

    Args:
        memory: two sets of `size` slots.
        meet: return when all processes have called it; raise if one is lost.
    """

    def __init__(
        self, memory: mmap.mmap, nbytes: int, rank: int, size: int, meet: Callable[[], None]
    ) -> None:
        self.nbytes, self.rank, self.meet = nbytes, rank, meet
        self.sets = torch.frombuffer(memory, dtype=torch.uint8).view(2, size, -1)
        self.turn = 0

    def slot(self, count: int, dtype: torch.dtype) -> Tensor:
        """Return the own slot of the next sum, to be filled."""
        return self._slots(count, dtype)[self.rank]

    def sum(self, count: int, dtype: torch.dtype) -> Tensor:
        """Return the sum of the slots of all processes."""
        slots = self._slots(count, dtype)
        first, last = (count * rank // len(slots) for rank in (self.rank, self.rank + 1))
        self.meet()
        total = slots[0, first:last]
        for slot in slots[1:]:
            total += slot[first:last]
        self.meet()
        self.turn = 1 - self.turn
        return slots[0].clone()

    def _slots(self, count: int, dtype: torch.dtype) -> Tensor:
        return self.sets[self.turn].view(dtype)[:, :count]


def open_slots(
    nbytes: int, rank: int, from_all: FromAll, meet: Callable[[], None]
) -> SharedSlots | None:
    """Return slots of the processes; None, in all, where they cannot share so much memory."""
    machines = from_all(_machine())
    if machines[0] is None or len(set(machines)) > 1:
        return None
    nbytes = -(-nbytes // PAGE) * PAGE
    whole = 2 * len(machines) * nbytes
    made = _make(whole) if rank == 0 else None
    opened: mmap.mmap | None = None
    try:
        place = from_all(None if made is None else _place(made))[0]
        opened = None if place is None else _open(place, whole)
        if not all(from_all(opened is not None)):
            return None
    finally:
        if made is not None:
            os.close(made)
    assert opened is not None
    return SharedSlots(opened, nbytes, rank, len(machines), meet)


def _machine() -> tuple[str, str] | None:
    """Return what names this machine, or None if its processes cannot share memory this way."""
    if not hasattr(os, "memfd_create") or not BOOT.exists():
        return None
    return socket.gethostname(), BOOT.read_text()


def _make(nbytes: int) -> int | None:
    """Return a descriptor of new memory, all of which is there; None if there is too little."""
    made = os.memfd_create("unseen")
    try:
        os.posix_fallocate(made, 0, nbytes)
    except OSError:
        os.close(made)
        return None
    return made


def _place(made: int) -> tuple[str, int, int]:
    found = os.fstat(made)
    return f"/proc/{os.getpid()}/fd/{made}", found.st_dev, found.st_ino


def _open(place: tuple[str, int, int], nbytes: int) -> mmap.mmap | None:
    """Map memory of another process; None if it is not there, as in another container."""
    path, *expected = place
    try:
        opened = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        found = os.fstat(opened)
        if [found.st_dev, found.st_ino] != expected or found.st_size != nbytes:
            return None
        return mmap.mmap(opened, nbytes)
    except OSError:
        return None
    finally:
        os.close(opened)
