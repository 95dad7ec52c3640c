"""What the command line does when a signal ends it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from unseen.errors import Stopped

SIGNALS = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP
RESUMABLE = ("train",)
REPEATABLE = ("predict", "bench", "tune", "adapt-grid", "few-shot", "demo", "data")


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Raise Stopped on SIGTERM and SIGHUP, so that files are cleaned up and a message is shown.

    A signal that is ignored stays so (nohup). After the first one, others wait for the clean-up.
    """
    process = os.getpid()
    previous: dict[int, Any] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a forked child, which its parent ends
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        for other in previous:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(signal.Signals(number).name, 128 + number)

    if threading.current_thread() is threading.main_thread():
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                previous[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def next_step(tokens: Sequence[str]) -> str:
    """Return what to do after the command was stopped."""
    command = tokens[0] if tokens else ""
    if command in RESUMABLE:
        resume = [] if "--resume" in tokens else ["--resume"]
        words = shlex.join(["unseen", *tokens, *resume])
        return f"a training run continues from its last checkpoint with: {words}"
    if command in REPEATABLE:
        return f"what is finished is kept; continue with: {shlex.join(['unseen', *tokens])}"
    return "every file was written whole or not at all; run the command again"
