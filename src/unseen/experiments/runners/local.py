"""Run jobs in processes of this machine, one thread each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from unseen.checks import check_int
from unseen.experiments.runners.call import call_with_log
from unseen.experiments.runners.jobs import Ending, Job, Runner

# OMP_NUM_THREADS is read when torch is imported. PYTHONSAFEPATH keeps a worker from importing
# modules that happen to lie in the current folder.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}


class LocalRunner(Runner):
    """A process for each job, at most `workers` at a time; they end with this process."""

    def __init__(self, workers: int = 2) -> None:
        self.slots = check_int("workers", workers, 1)

    def start(self, jobs: Sequence[Job]) -> None:
        context = _context([job.function.__module__ for job in jobs])
        for job in jobs:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with _worker_environment():
                call = (job.function, job.arguments, job.log, dict(os.environ))
                # No daemon: a worker that decodes files has processes of its own.
                job.handle = context.Process(target=_run_in_worker, args=call)
                job.handle.start()
            job.state = "running"

    def ending(self, job: Job) -> Ending | None:
        if job.handle.is_alive():
            return None
        job.handle.join()
        code = job.handle.exitcode
        return Ending(code, f"killed by signal {-code}" if code < 0 else f"exit {code}")

    def wait(self, jobs: Sequence[Job], seconds: float) -> None:
        connection.wait([job.handle.sentinel for job in jobs], seconds)

    def stop(self, job: Job) -> None:
        if job.handle.is_alive():
            job.handle.terminate()


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
    os.environ.clear()
    os.environ.update(environment)  # a fork server keeps the environment that it was started in
    threading.Thread(target=_end_with_parent, daemon=True).start()
    raise SystemExit(call_with_log(function, arguments, log))


def _end_with_parent() -> None:
    """Exit when the parent dies: a restarted grid must not share folders with old workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
