"""Worker processes: one job each; a crash or a kill fails that job alone."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from unseen import UnseenError
from unseen.experiments.workers import Job, run_jobs


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
    failed = run_jobs(jobs, 2, lambda: states.append([job.state for job in jobs]))
    assert failed["killed"] == "killed by signal 9"
    assert "error: steps must be above 0 (exit 2, " in failed["refused"]
    assert "ValueError: a mistake (exit 1, " in failed["crashed"]
    assert failed.keys() == {"killed", "refused", "crashed", "incomplete"}
    assert jobs[-1].state == "done" and (tmp_path / "good.log").read_text() == "working\n"
    assert max(state.count("running") for state in states) <= 2 and states[0].count("waiting") == 3


def test_worker_has_one_thread_and_the_environment_of_its_parent(make_job, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("MARK", "here")
    assert run_jobs([make_job("good", write, tmp_path / "good")], 1) == {}
    assert (tmp_path / "good").read_text() == "1 here 1"
    assert os.environ["OMP_NUM_THREADS"] == "2" and "PYTHONSAFEPATH" not in os.environ


def test_finished_jobs_are_not_started(make_job):
    job = make_job("finished", kill)
    job.state = "done"
    assert run_jobs([job], 1) == {} and job.process is None


def test_interruption_ends_the_workers(make_job):
    job = make_job("waits", wait_forever)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs([job], 1, interrupt)
    job.process.join(10)
    assert not job.process.is_alive()


def wait_forever() -> None:
    threading.Event().wait()
