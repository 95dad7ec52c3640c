"""A signal ends a command with a message and the exit code of the shell; nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from forked import start_unseen

from unseen.cli.signals import next_step, stopping_on_signals
from unseen.errors import Stopped

TRAIN = ["train", "mini_digits", "--method", "erm", "--set", "steps=100000",
         "--set", "batch_size=8", "--set", "checkpoint_every=5"]  # fmt: skip


@pytest.fixture(autouse=True)
def not_ignored():
    """Give SIGHUP its default meaning: under nohup, tests and their children would ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "number, code, word",
    [
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
        (signal.SIGINT, 130, "interrupted"),
    ],
)
def test_a_signal_to_a_training_says_what_is_kept_and_how_to_continue(tmp_path, number, code, word):
    out = tmp_path / "my run"
    process = start_unseen(*TRAIN, "--out", out, folder=tmp_path)
    deadline = time.monotonic() + 120
    while not (out / "state.safetensors").exists() and time.monotonic() < deadline:
        assert process.running, process.wait()
        time.sleep(0.02)
    process.send_signal(number)
    returncode, _, stderr = process.wait(60)
    assert returncode == code, stderr
    assert "my run keeps the checkpoint of step " in stderr and "Traceback" not in stderr
    assert f"{word}; a training run continues from its last checkpoint with: unseen " in stderr
    assert stderr.rstrip().endswith(f"--out '{out}' --resume")
    assert not list(out.rglob(".*"))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_signals_raise_inside_and_have_their_old_meaning_outside(name):
    number = getattr(signal, name)
    with pytest.raises(Stopped, match=name), stopping_on_signals():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert signal.getsignal(number) == signal.SIG_DFL


def test_an_ignored_signal_stays_ignored():
    """`nohup unseen train` survives the end of the terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_next_step_fits_the_command():
    assert next_step(["train", "digits", "--out", "a b"]).endswith(
        "unseen train digits --out 'a b' --resume"
    )
    assert next_step(["train", "digits", "--resume"]).count("--resume") == 1
    assert "what is finished is kept; continue with: unseen bench g.toml" in next_step(
        ["bench", "g.toml"]
    )
    assert "run the command again" in next_step(["evaluate", "run"])


def test_a_closed_pipe_ends_a_command_with_a_message():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "unseen", "methods", "--json"]
    with os.fdopen(writer, "wb") as closed:
        finished = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True)
    assert finished.returncode == 141
    assert finished.stderr == "unseen: stopped: what read the output has closed it\n"
