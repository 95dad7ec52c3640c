"""Worker processes: one job each; a crash or a kill fails that job alone."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch

from unseen import UnseenError
from unseen.experiments.runners.jobs import Job, run_jobs
from unseen.experiments.runners.local import LocalRunner
from unseen.files import is_locked, locked


def write(path: Path) -> None:
    print("working")
    settings = [os.environ["OMP_NUM_THREADS"], os.environ.get("MARK", ""), torch.get_num_threads()]
    path.write_text(" ".join(map(str, settings)))


def fail(error: Exception) -> None:
    raise error


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def make_job(tmp_path):
    def make(label, function, *arguments, succeeded=lambda: True):
        return Job(label, function, arguments, tmp_path / f"{label}.log", succeeded)

    return make


def test_failed_jobs_do_not_stop_the_others(make_job, tmp_path):
    jobs = [
        make_job("killed", kill),
        make_job("refused", fail, UnseenError("steps must be above 0")),
        make_job("crashed", fail, ValueError("a mistake")),
        make_job("incomplete", write, tmp_path / "x", succeeded=lambda: False),
        make_job("good", write, tmp_path / "good"),
    ]
    states = []
    failed = run_jobs(jobs, LocalRunner(2), lambda: states.append([job.state for job in jobs]))
    assert failed["killed"] == "killed by signal 9"
    assert "error: steps must be above 0 (exit 2, " in failed["refused"]
    assert "ValueError: a mistake (exit 1, " in failed["crashed"]
    assert failed.keys() == {"killed", "refused", "crashed", "incomplete"}
    assert jobs[-1].state == "done" and (tmp_path / "good.log").read_text() == "working\n"
    assert max(state.count("running") for state in states) <= 2 and states[0].count("waiting") == 3


def test_worker_has_one_thread_and_the_environment_of_its_parent(make_job, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("MARK", "here")
    assert run_jobs([make_job("good", write, tmp_path / "good")], LocalRunner(1)) == {}
    assert (tmp_path / "good").read_text() == "1 here 1"
    assert os.environ["OMP_NUM_THREADS"] == "2" and "PYTHONSAFEPATH" not in os.environ


def test_finished_jobs_are_not_started(make_job):
    job = make_job("finished", kill)
    job.state = "done"
    assert run_jobs([job], LocalRunner(1)) == {} and job.handle is None


def test_interruption_ends_the_workers(make_job):
    job = make_job("waits", wait_forever)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs([job], LocalRunner(1), interrupt)
    job.handle.join(10)
    assert not job.handle.is_alive()


def decode(path: Path) -> None:
    with ProcessPoolExecutor(1) as pool:
        path.write_text(str(pool.submit(abs, -3).result()))


def test_worker_may_start_processes_of_its_own(make_job, tmp_path):
    """Files of one's own are decoded by several processes."""
    job = make_job("decodes", decode, tmp_path / "sum")
    assert run_jobs([job], LocalRunner(1)) == {}
    assert (tmp_path / "sum").read_text() == "3"


def busy(folder: Path) -> None:
    with locked(folder):
        pass


def test_a_job_that_another_process_holds_is_waited_for_and_never_failed(make_job, tmp_path):
    """The other process finishes one result; it dies without the other, which is taken over."""
    for name in ("theirs", "orphan"):
        (tmp_path / name).mkdir()
    jobs = [
        make_job("theirs", kill, succeeded=(tmp_path / "theirs/done").exists),
        make_job(
            "orphan",
            write,
            tmp_path / "orphan/done",
            succeeded=(tmp_path / "orphan/done").exists,
        ),
        make_job("race", busy, tmp_path / "race"),  # the lock is taken when the worker runs
    ]
    for job in jobs[:2]:
        job.held = partial(is_locked, tmp_path / job.label)
    states = []

    def watch():
        states.append([job.state for job in jobs])
        if jobs[2].state == "running elsewhere" or len(states) > 40:
            (tmp_path / "theirs/done").touch()
            held.close()

    with ExitStack() as held:
        for name in ("theirs", "orphan", "race"):
            held.enter_context(locked(tmp_path / name))
        failed = run_jobs(jobs, LocalRunner(1), watch)
    assert failed == {} and [job.state for job in jobs] == ["done"] * 3
    assert states[0][:2] == ["running elsewhere"] * 2 and jobs[0].handle is None
    assert (tmp_path / "orphan/done").exists()
    assert any(state[2] == "running elsewhere" for state in states)


def wait_forever() -> None:
    threading.Event().wait()
