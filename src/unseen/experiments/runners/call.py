"""What a worker does: call a function with its output in a log, and turn errors into exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.files import FolderBusy
from unseen.installed import keep_freed_memory

BUSY = 75  # exit code of a worker whose folder another process holds (EX_TEMPFAIL)
FORWARDED = "UNSEEN_"  # variables with this prefix are set on other machines too


def call_with_log(
    function: Callable[..., None], arguments: Sequence[Any], log: Path, threads: int = 1
) -> int:
    """Call the function, write what it prints to the log, and return an exit code."""
    import torch

    torch.set_num_threads(threads)
    keep_freed_memory()
    with (
        log.open("w", buffering=1) as file,
        contextlib.redirect_stderr(file),
        contextlib.redirect_stdout(file),
    ):
        try:
            function(*arguments)
        except FolderBusy as error:
            print(f"waiting: {error}", file=sys.stderr)
            return BUSY
        except UnseenError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except Exception:
            traceback.print_exc()
            return 1
    return 0


def forwarded_variables() -> dict[str, str]:
    """Return the environment variables of this package, for workers on other machines."""
    return {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}


@dataclass(frozen=True)
class RemoteCall:
    """A call for a worker on any machine that shares the folders and has the package.

    It runs in the folder that it was made in, so that relative paths mean the same.
    """

    function: Callable[..., None]
    arguments: tuple[Any, ...]
    log: Path
    threads: int = 1
    folder: str = field(default_factory=os.getcwd)
    modules: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    variables: dict[str, str] = field(default_factory=forwarded_variables)

    def __call__(self) -> int:
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise UnseenError(
                f"{self.folder} cannot be read on {os.uname().nodename} ({error.strerror}): start "
                "the grid in a folder that all nodes share"
            ) from error
        sys.path.extend(path for path in self.modules if path not in sys.path)
        os.environ.update(self.variables)
        return call_with_log(self.function, self.arguments, self.log, self.threads)

    def checkpoint(self) -> Any:
        """Return the call that follows after a preemption, for submitit: a run resumes itself."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)
