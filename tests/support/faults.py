"""A disk that fails: every write, fsync and rename of the package can be made to fail in turn."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import unseen.atomic
from unseen.errors import UnseenError

FULL, KILL, INTERRUPT = "full disk", "kill", "interrupt"
POINTS = ("open", "write", "fsync", "replace", "unlink")


class Killed(BaseException):
    """The process ended here: nothing that comes after reaches the disk."""


@cache
def dead_process() -> int:
    """Return the number of a process that has ended."""
    return int(subprocess.check_output([sys.executable, "-c", "import os; print(os.getpid())"]))


class FaultyOS:
    """`os` as `unseen.atomic` calls it, with one call that fails.

    After a kill all other calls fail too; after an interrupt (Ctrl-C) the process cleans up.
    """

    def __init__(self, at: int | None = None, fault: str = FULL) -> None:
        self.at, self.fault, self.calls, self.killed = at, fault, 0, False

    def __getattr__(self, name: str):
        call = getattr(os, name)
        if name not in POINTS:
            return call

        def counted(*args, **options):
            self.calls += 1
            if self.calls == self.at and name == "write":
                call(args[0], args[1][: len(args[1]) // 2])
            self.killed |= self.fault == KILL and self.calls == self.at
            if self.killed:
                raise Killed(f"{name}, call {self.calls}")
            if self.calls == self.at and self.fault == INTERRUPT:
                raise KeyboardInterrupt
            if self.calls == self.at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return None if name == "fsync" else call(*args, **options)  # it takes most of the time

        return counted

    def getpid(self) -> int:
        return dead_process() if self.fault == KILL else os.getpid()


@contextmanager
def faulty(at: int | None = None, fault: str = FULL) -> Iterator[FaultyOS]:
    """Make the call `at` fail, counted from 1; None counts the calls."""
    disk, before = FaultyOS(at, fault), unseen.atomic.os
    unseen.atomic.os = disk
    try:
        yield disk
    finally:
        unseen.atomic.os = before


def count_calls(act: Callable[[], object]) -> int:
    """Return how many calls of `os` can fail."""
    with faulty() as disk:
        act()
    return disk.calls


def fail_at(at: int, fault: str, act: Callable[[], object]) -> bool:
    """Run `act` with a fault; return whether it came to an end nevertheless."""
    with faulty(at, fault):
        try:
            act()
        except (Killed, KeyboardInterrupt, UnseenError):
            return False
    return True
