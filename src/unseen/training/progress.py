"""Progress on stderr: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column, Table


class RunState(NamedTuple):
    """State of one run of a grid."""

    label: str
    state: str  # waiting, queued, running, running elsewhere, done, pruned, failed
    step: int
    steps: int
    message: str


def kind_of(run: RunState) -> str:
    """Return the label without its seed: runs of one kind are equally fast."""
    return run.label.rsplit(" seed ", 1)[0]


STATES = ("done", "pruned", "running", "running elsewhere", "queued", "waiting", "failed")
PLAIN_EVERY = 15.0  # seconds between lines without a terminal
GRID_EVERY = 60.0  # the same for a grid, which prints a line for each run
BAR_FROM = 110  # columns; a narrower terminal has no room for the bar


def format_metrics(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())


class TrainingProgress:
    """Step, metrics, speed and time left of one training."""

    def __init__(
        self, label: str, total: int, done: int = 0, quiet: bool = False, unit: str = "step"
    ) -> None:
        self.label, self.total, self.first, self.quiet = label, total, done, quiet
        self.unit = unit
        self.metrics: dict[str, float] = {}
        self.live: Progress | None = None
        if not quiet and sys.stderr.isatty():
            console = Console(stderr=True)
            bar = (BarColumn(20),) if console.width >= BAR_FROM else ()
            title = Column(no_wrap=True, overflow="ellipsis")
            fields = {"step": 5, "numbers": 10, "speed": 5, "left": 7}  # with their widths
            columns = (
                TextColumn("[bold]{task.description}", table_column=title),
                *bar,
                *(
                    TextColumn(
                        f"{{task.fields[{name}]}}",
                        table_column=Column(no_wrap=True, min_width=width),
                    )
                    for name, width in fields.items()
                ),
            )
            self.live = Progress(*columns, console=console, expand=False)

    def __enter__(self) -> TrainingProgress:
        self.started = self.printed = time.monotonic()
        if self.live is not None:
            self.live.start()
            waiting: dict[str, Any] = {
                "step": f"{self.first}/{self.total}",
                "numbers": "",
                "speed": "",
                "left": "",
            }
            self.bar = self.live.add_task(
                self.label, total=self.total, completed=self.first, **waiting
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def show(self, step: int) -> None:
        """Show `metrics` after `step` steps; cheap enough for every step."""
        if self.quiet:
            return
        now = time.monotonic()
        last = step >= self.total
        if self.live is None and now - self.printed < PLAIN_EVERY and not last:
            return
        speed = (step - self.first) / max(now - self.started, 1e-9)
        count, pace = f"{step}/{self.total}", f"{speed:.1f}/s"
        left = f"{format_seconds((self.total - step) / speed)} left" if speed > 0 else ""
        metrics = format_metrics(self.metrics)
        if self.live is not None:
            self.live.update(
                self.bar, completed=step, step=count, numbers=metrics, speed=pace, left=left
            )
            return
        self.printed = now
        line = f"{self.label}: {self.unit} {count}  {metrics}  {pace}  {left}"
        print(line.rstrip(), file=sys.stderr, flush=True)


def format_seconds(seconds: float) -> str:
    """Format a duration: 40 s, 12:05, 3:20:00."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class GridProgress:
    """State of every run of a grid: a live table on a terminal, else one line per change."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.title, self.quiet = title, quiet
        self.states: dict[str, str] = {}
        self.printed = time.monotonic()
        # By label: the time at which a run was first running, and its step then.
        self.first: dict[str, tuple[float, int]] = {}
        self.pace: dict[str, float] = {}  # seconds per step, by kind of run
        self.live = (
            Live(console=Console(stderr=True), refresh_per_second=2)
            if not quiet and sys.stderr.isatty()
            else None
        )

    def __enter__(self) -> GridProgress:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def show(self, runs: Sequence[RunState]) -> None:
        """Show the current state of the runs."""
        if self.quiet:
            return
        left = self._seconds_left(runs)
        counts = {state: sum(run.state == state for run in runs) for state in STATES}
        headline = f"{self.title}: " + ", ".join(f"{n} {state}" for state, n in counts.items() if n)
        headline += f", about {format_seconds(left)} left" if left is not None else ""
        if self.live is not None:
            self.live.update(self._table(headline, runs))
            return
        due = time.monotonic() - self.printed >= GRID_EVERY
        news = [
            run
            for run in runs
            if self.states.get(run.label, "waiting") != run.state
            or (due and run.state == "running")
        ]
        for run in news:
            pace = (
                f"  {self.pace[kind]:.2f} s/step"
                if run.state == "running" and (kind := kind_of(run)) in self.pace
                else ""
            )
            print(
                f"{run.label}: {run.state} {run.step}/{run.steps} {run.message}{pace}".rstrip(),
                file=sys.stderr,
            )
        if news:
            print(headline, file=sys.stderr, flush=True)
        if due:
            self.printed = time.monotonic()
        self.states = {run.label: run.state for run in runs}

    def _table(self, headline: str, runs: Sequence[RunState]) -> Table:
        table = Table(title=headline, title_justify="left")
        for name in ("run", "state", "step", "s/step", ""):
            table.add_column(name, justify="right" if name in ("step", "s/step") else "left")
        done = [run for run in runs if run.state == "done"][-5:]  # more would not fit a screen
        ahead = ("done", "waiting", "queued")
        for run in [*done, *(run for run in runs if run.state not in ahead)]:
            pace = self.pace.get(kind_of(run))
            table.add_row(
                run.label,
                run.state,
                f"{run.step}/{run.steps}",
                f"{pace:.2f}" if pace else "",
                run.message,
            )
        return table

    def _seconds_left(self, runs: Sequence[RunState]) -> float | None:
        now, busy = time.monotonic(), sum(run.state == "running" for run in runs)
        for run in runs:
            if run.state == "running":
                since, step = self.first.setdefault(run.label, (now, run.step))
                if run.step > step:
                    self.pace[kind_of(run)] = (now - since) / (run.step - step)
        if not self.pace or not busy:
            return None
        usual = sum(self.pace.values()) / len(self.pace)
        todo = [run for run in runs if run.state in ("waiting", "queued", "running")]
        paces = [self.pace.get(kind_of(run), usual) for run in todo]
        return (
            sum((run.steps - run.step) * pace for run, pace in zip(todo, paces, strict=True)) / busy
        )
