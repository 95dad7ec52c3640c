"""What a person sees while something long runs: a live line on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


class RunState(NamedTuple):
    """How one run of a grid stands."""

    label: str
    state: str  # waiting, running, done, failed
    step: int
    steps: int
    said: str


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


class GridProgress:
    """How every run of a grid stands: a live table on a terminal, one line per change elsewhere."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.title, self.quiet = title, quiet
        self.states: dict[str, str] = {}
        self.first: dict[str, tuple[float, int]] = {}  # when a run was first seen running, and its step then
        self.pace: dict[str, float] = {}  # seconds a step, by what a run's label says before its seed
        self.live = Live(console=Console(stderr=True), refresh_per_second=2) if not quiet and sys.stderr.isatty() else None

    def __enter__(self) -> GridProgress:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def at(self, runs: Sequence[RunState]) -> None:
        """Show how the runs stand now."""
        if self.quiet:
            return
        left = self._seconds_left(runs)
        counted = {state: sum(run.state == state for run in runs) for state in ("done", "running", "waiting", "failed")}
        headline = f"{self.title}: " + ", ".join(f"{n} {state}" for state, n in counted.items() if n)
        headline += f", about {left / 60:.0f} min left" if left is not None else ""
        if self.live is not None:
            self.live.update(self._table(headline, runs))
            return
        for run in runs:
            if self.states.get(run.label, "waiting") != run.state:
                print(f"{run.label}: {run.state} {run.step}/{run.steps} {run.said}".rstrip(), file=sys.stderr)
                print(headline, file=sys.stderr, flush=True)
            self.states[run.label] = run.state

    def _table(self, headline: str, runs: Sequence[RunState]) -> Table:
        table = Table(title=headline, title_justify="left")
        for name in ("run", "state", "step", "s/step", ""):
            table.add_column(name, justify="right" if name in ("step", "s/step") else "left")
        done = [run for run in runs if run.state == "done"][-5:]  # more would not fit a screen
        for run in [*done, *(run for run in runs if run.state in ("failed", "running"))]:
            pace = self.pace.get(run.label.rsplit(" seed ", 1)[0])
            table.add_row(run.label, run.state, f"{run.step}/{run.steps}", f"{pace:.2f}" if pace else "", run.said)
        return table

    def _seconds_left(self, runs: Sequence[RunState]) -> float | None:
        now, busy = time.monotonic(), sum(run.state == "running" for run in runs)
        for run in runs:
            if run.state == "running":
                since, step = self.first.setdefault(run.label, (now, run.step))
                if run.step > step:
                    self.pace[run.label.rsplit(" seed ", 1)[0]] = (now - since) / (run.step - step)
        if not self.pace or not busy:
            return None
        usual = sum(self.pace.values()) / len(self.pace)
        todo = [run for run in runs if run.state in ("waiting", "running")]
        paces = [self.pace.get(run.label.rsplit(" seed ", 1)[0], usual) for run in todo]
        return sum((run.steps - run.step) * pace for run, pace in zip(todo, paces, strict=True)) / busy
