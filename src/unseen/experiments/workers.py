"""Run jobs in worker processes of one thread each. A job that crashes does not stop the others."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Literal

from unseen.checks import check_int
from unseen.errors import UnseenError
from unseen.files import FolderBusy
from unseen.training.machine import keep_freed_memory

POLL = 0.5  # seconds between calls of `watch`
BUSY = 75  # exit code of a worker whose folder another process holds (EX_TEMPFAIL)
ELSEWHERE: Final = "running elsewhere"

# OMP_NUM_THREADS is read when torch is imported. PYTHONSAFEPATH keeps a worker from importing
# modules that happen to lie in the current folder.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}


@dataclass
class Job:
    """A function call for a process of its own, with a log file for everything it prints."""

    label: str
    function: Callable[..., None]
    arguments: tuple[Any, ...]
    log: Path
    succeeded: Callable[[], bool]  # called after exit code 0: are the job's results complete?
    state: Literal["waiting", "running", "running elsewhere", "done", "failed"] = "waiting"
    message: str = ""  # why it failed
    process: BaseProcess | None = None
    held: Callable[[], bool] = lambda: False  # does another process work on the results?

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        context = _context([self.function.__module__])
        with _worker_environment():
            call = (self.function, self.arguments, self.log, dict(os.environ))
            self.process = context.Process(target=_run_in_worker, args=call, daemon=True)
            self.process.start()
        self.state = "running"

    def check(self) -> None:
        """Update the state of a job whose process, here or elsewhere, has ended."""
        if self.state in ("waiting", ELSEWHERE):
            if self.held():
                self.state, self.message = ELSEWHERE, "waiting for the process that works on it"
            elif self.state == ELSEWHERE:
                self.state, self.message = "done" if self.succeeded() else "waiting", ""
            return
        if self.state != "running" or self.process is None or self.process.is_alive():
            return
        self.process.join()
        if self.process.exitcode == 0 and self.succeeded():
            self.state = "done"
        elif self.process.exitcode == BUSY:
            self.state = ELSEWHERE
        else:
            self.state, self.message = "failed", self._last_line()

    def _last_line(self) -> str:
        code = None if self.process is None else self.process.exitcode
        killed = code is not None and code < 0
        reason = f"killed by signal {-code}" if killed and code is not None else f"exit {code}"
        with contextlib.suppress(OSError):
            lines = [line for line in self.log.read_text().splitlines() if line.strip()]
            if lines:
                return f"{lines[-1].strip()} ({reason}, {self.log})"
        return reason


def run_jobs(
    jobs: Sequence[Job], workers: int, watch: Callable[[], None] = lambda: None
) -> dict[str, str]:
    """Run the waiting jobs, at most `workers` at a time; return the messages of those that failed.

    Jobs that another process works on are waited for, and taken over if it is killed. `watch` is
    called at every poll, for a progress display.
    """
    check_int("workers", workers, 1)
    try:
        while True:
            for job in jobs:
                job.check()
            free = workers - sum(job.state == "running" for job in jobs)
            for job in [job for job in jobs if job.state == "waiting"][: max(free, 0)]:
                job.start()
            watch()
            if all(job.state in ("done", "failed") for job in jobs):
                return {job.label: job.message for job in jobs if job.state == "failed"}
            running = [j.process.sentinel for j in jobs if j.state == "running" and j.process]
            connection.wait(running, POLL)
    finally:
        for job in jobs:
            if job.process is not None and job.process.is_alive():
                job.process.terminate()


def _context(modules: list[str]) -> Any:
    """Return the start method of workers: a new interpreter, or its fork.

    Where there is a fork server, torch is imported once and not by every worker.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*modules, "torch._dynamo"])  # optimizers import it, 3 s
    return context


@contextlib.contextmanager
def _worker_environment() -> Iterator[None]:
    """Set the environment that a spawned process inherits, and restore this process's own."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run_in_worker(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    log: Path,
    environment: dict[str, str],
) -> None:
    import torch

    os.environ.clear()
    os.environ.update(environment)  # a fork server keeps the environment that it was started in
    torch.set_num_threads(1)
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with (
        log.open("w", buffering=1) as file,
        contextlib.redirect_stderr(file),
        contextlib.redirect_stdout(file),
    ):
        try:
            function(*arguments)
        except FolderBusy as error:
            print(f"waiting: {error}", file=sys.stderr)
            raise SystemExit(BUSY) from None
        except UnseenError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None


def _end_with_parent() -> None:
    """Exit when the parent dies: a restarted grid must not share folders with old workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
