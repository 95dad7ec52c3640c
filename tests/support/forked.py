"""Run a function or a command in a fork of this process: a new one takes seconds to import torch.

A fork is a process of its own: it has an exit code, can be killed, and changes nothing here.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path

import torch._dynamo  # noqa: F401  (imported by the first optimizer: once, not in every fork)
from command_line import Finished

from unseen import cli
from unseen.data import mini_digits

# Once, not in every fork: import every command, and draw the images that most forks train on.
cli.app.resolved_commands()
for split in ("train", "val", "test"):
    mini_digits.load_images("digits", split)


class Fork:
    """A running fork, with the part of subprocess.Popen's interface that tests need."""

    def __init__(self, act: Callable[[], object], folder: Path) -> None:
        """Start the function in the folder; its output goes into files there."""
        count = len(list(folder.glob(".fork*.out")))
        self.out, self.err = (folder / f".fork{count}.{end}" for end in ("out", "err"))
        self.out.touch()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=_act, args=(act, folder, self.out, self.err))
        self.process.start()
        assert self.process.pid is not None
        self.pid: int = self.process.pid

    @property
    def running(self) -> bool:
        return self.process.is_alive()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float = 300) -> Finished:
        """Wait for its end; a process killed by a signal has the exit code -signal."""
        self.process.join(timeout)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            raise TimeoutError(f"no end within {timeout} s: {self.err.read_text()}")
        return Finished(code, self.out.read_text(), self.err.read_text())


def start_unseen(*words: object, folder: Path, path: Path | None = None) -> Fork:
    """Start `unseen WORDS` in a folder, with `path` on the path of modules."""

    def act() -> None:
        if path is not None:
            add_path(path)
        sys.argv = ["unseen", *map(str, words)]
        cli.main()

    return Fork(act, folder)


def start_script(path: Path, *words: object, folder: Path) -> Fork:
    """Start `python PATH WORDS` in a folder."""

    def act() -> None:
        sys.argv = [str(path), *map(str, words)]
        add_path(path.parent)
        runpy.run_path(str(path), run_name="__main__")

    return Fork(act, folder)


def add_path(path: Path) -> None:
    """Put a folder on the path of modules, here and in processes started from here."""
    sys.path.insert(0, str(path))
    paths = filter(None, [str(path), os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _act(act: Callable[[], object], folder: Path, out: Path, err: Path) -> None:
    os.chdir(folder)
    # A shell that starts the tests in the background has them ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    forkserver._forkserver.__init__()  # the server of the parent is not a child of the fork
    logging.getLogger().handlers.clear()  # those of pytest
    with (
        out.open("w") as stdout,
        err.open("w") as stderr,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        os.dup2(stdout.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
        try:
            act()
        except SystemExit:
            raise
        except BaseException:
            traceback.print_exc()
            raise SystemExit(1) from None
