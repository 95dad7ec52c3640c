"""The command line: each command a few lines that call the library. Results on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import logging
import sys

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError
from rich.console import Console

import unseen
from unseen.cli import (
    adapting,
    comparisons,
    data,
    doctor,
    estimates,
    listings,
    monitoring,
    runs,
    uncertainty,
)
from unseen.cli.options import say, stdout_for_results_only
from unseen.errors import UnseenError
from unseen.training.machine import keep_freed_memory

app = App(
    name="unseen",
    suppress_keyboard_interrupt=False,
    version=unseen.__version__,
    help="Make a model learned from a single source hold up in domains it has never seen, and know when it will not.",
)
for part in (
    runs,
    monitoring,
    estimates,
    adapting,
    comparisons,
    uncertainty,
    data,
    listings,
    doctor,
):
    part.attach(app)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="unseen: %(message)s", stream=sys.stderr)
    keep_freed_memory()
    try:
        with stdout_for_results_only() if "--json" in sys.argv else contextlib.nullcontext():
            app(exit_on_error=False, print_error=False, error_console=Console(stderr=True))
    except UnusedCliTokensError as error:
        words = " ".join(error.unused_tokens or [])
        named = "what has a name is said with it, such as --method NAME, and each setting with a --set of its own"
        say(f"error: {words} is more than this command takes; {named}: try --help")
        sys.exit(2)
    except (
        CycloptsError,
        UnseenError,
        OSError,
    ) as error:  # an OSError names its file: no space, no permission, no such folder
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        say("stopped; a training run goes on from its last checkpoint with --resume")
        sys.exit(130)
