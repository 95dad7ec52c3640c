"""What a person sees while something long runs: a live line on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_EVERY = 15.0  # seconds between lines where there is no terminal


class TrainingProgress:
    """Step, numbers to watch, speed and time left."""

    def __init__(self, label: str, total: int, done: int = 0, quiet: bool = False) -> None:
        self.label, self.total, self.first, self.quiet = label, total, done, quiet
        self.live: Progress | None = None
        if not quiet and sys.stderr.isatty():
            columns = (
                TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[watched]}"), TimeRemainingColumn(),
            )  # fmt: skip
            self.live = Progress(*columns, console=Console(stderr=True))

    def __enter__(self) -> TrainingProgress:
        self.started = self.said = time.monotonic()
        if self.live is not None:
            self.live.start()
            self.bar = self.live.add_task(self.label, total=self.total, completed=self.first, watched="")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def at(self, step: int, watched: Mapping[str, float]) -> None:
        """Say that `step` steps are done; cheap enough to be called at every one."""
        if self.quiet:
            return
        now = time.monotonic()
        last = step >= self.total
        if self.live is None and now - self.said < PLAIN_EVERY and not last:
            return
        speed = (step - self.first) / max(now - self.started, 1e-9)
        numbers = "  ".join(f"{name} {value:.3f}" for name, value in watched.items())
        if self.live is not None:
            self.live.update(self.bar, completed=step, watched=f"{numbers}  {speed:.1f}/s")
            return
        self.said = now
        left = (self.total - step) / max(speed, 1e-9)
        print(f"{self.label}: step {step}/{self.total}  {numbers}  {speed:.1f}/s  {left:.0f} s left", file=sys.stderr)
