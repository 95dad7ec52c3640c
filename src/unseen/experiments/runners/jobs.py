"""Jobs, and the loop that runs them. A job that crashes does not stop the others."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from unseen.experiments.runners.call import BUSY

POLL = 0.5  # seconds between calls of `watch`
UNKNOWN_CAPACITY = 16  # jobs at a time of a cluster that does not say
ELSEWHERE: Final = "running elsewhere"
ACTIVE: Final = ("queued", "running")
State = Literal["waiting", "queued", "running", "running elsewhere", "done", "failed"]


@dataclass(frozen=True)
class Ending:
    """How the process of a job ended."""

    code: int | None  # its exit code; None if its worker or its node was lost
    reason: str


@dataclass
class Job:
    """A function call for a process of its own, with a log file for everything it prints."""

    label: str
    function: Callable[..., None]
    arguments: tuple[Any, ...]
    log: Path
    succeeded: Callable[[], bool]  # called after exit code 0: are the job's results complete?
    state: State = "waiting"
    message: str = ""  # why it failed, or waits
    held: Callable[[], bool] = lambda: False  # does another process work on the results?
    handle: Any = None  # of the runner that has started it
    lost: int = 0  # workers that were lost under it

    def end(self, ending: Ending, retries: int) -> None:
        """Update the state after the end of the job's process."""
        if ending.code in (0, None) and self.succeeded():
            self.state, self.message = "done", ""
        elif ending.code == BUSY:
            self.state = ELSEWHERE
        elif ending.code is None and self.lost < retries:
            self.lost += 1
            self.state = "waiting"
            self.message = f"{ending.reason}; resumes, retry {self.lost} of {retries}"
        else:
            self.state, self.message = "failed", self._last_line(ending.reason)

    def follow_holder(self) -> None:
        """Wait for another process that works on the results; take over if it ends early."""
        if self.held():
            self.state, self.message = ELSEWHERE, "waiting for the process that works on it"
        elif self.state == ELSEWHERE:
            self.state, self.message = "done" if self.succeeded() else "waiting", ""

    def _last_line(self, reason: str) -> str:
        with contextlib.suppress(OSError):
            lines = [line for line in self.log.read_text().splitlines() if line.strip()]
            if lines:
                return f"{lines[-1].strip()} ({reason}, {self.log})"
        return reason


class Runner(ABC):
    """Starts jobs somewhere and reports their end. A context manager that releases what it uses."""

    slots: float = float("inf")  # jobs to submit at a time
    retries: int = 0  # how often a job that has lost its worker is started again

    @abstractmethod
    def start(self, jobs: Sequence[Job]) -> None:
        """Start or queue the jobs, and set their handles and states."""

    @abstractmethod
    def ending(self, job: Job) -> Ending | None:
        """Return how a job ended; None while it is active."""

    @abstractmethod
    def stop(self, job: Job) -> None:
        """End a job that is active."""

    def capacity(self) -> int:
        """Return how many jobs run at a time, as far as is known."""
        return int(self.slots) if self.slots < float("inf") else UNKNOWN_CAPACITY

    def wait(self, jobs: Sequence[Job], seconds: float) -> None:
        """Wait until one of the jobs may have ended, at most so long."""
        time.sleep(seconds)

    def close(self) -> None:  # noqa: B027  (most runners have nothing to release)
        """Release what the runner uses."""

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_jobs(
    jobs: Sequence[Job], runner: Runner, watch: Callable[[], None] = lambda: None
) -> dict[str, str]:
    """Run the waiting jobs and return the messages of those that failed.

    Jobs that another process works on are waited for, and taken over if it is killed. `watch` is
    called at every poll, for a progress display.
    """
    try:
        while True:
            for job in jobs:
                if job.state in ("waiting", ELSEWHERE):
                    job.follow_holder()
                elif job.state in ACTIVE and (ending := runner.ending(job)) is not None:
                    job.end(ending, runner.retries)
            free = runner.slots - sum(job.state in ACTIVE for job in jobs)
            waiting = [job for job in jobs if job.state == "waiting"]
            chosen = waiting[: int(max(0, min(free, len(waiting))))]
            if chosen:
                runner.start(chosen)
            watch()
            if all(job.state in ("done", "failed") for job in jobs):
                return {job.label: job.message for job in jobs if job.state == "failed"}
            runner.wait([job for job in jobs if job.state in ACTIVE], POLL)
    finally:
        for job in jobs:
            if job.state in ACTIVE:
                runner.stop(job)
