"""The command line. Results go to stdout, messages to stderr; each command calls the library."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError
from rich.console import Console

from unseen.cli.messages import say, show_deprecations
from unseen.cli.output import own_code_failures_named, stdout_for_results_only, wants_json
from unseen.cli.signals import next_step, stopping_on_signals
from unseen.errors import Stopped, UnseenError
from unseen.installed import keep_freed_memory, package_version

__all__ = ["app", "main"]

BROKEN_PIPE = 128 + 13  # as a shell reports SIGPIPE

# Where each command is, below unseen.cli, and the first sentence of its help. A command is imported
# when it is called: torch takes seconds.
COMMANDS = {
    "train": (
        "train:train",
        "Train a method on the source domain of a task, or of your own data, and save it as a run.",
    ),
    "evaluate": (
        "evaluate:evaluate",
        "Evaluate a run on every unseen domain and on the held-out source.",
    ),
    "score": ("score:score", "Judge a domain without labels: ok, shifted, failing or unknown."),
    "predict": (
        "predict:predict",
        "Predict every sample of a domain or of --data, with scores; judge each domain.",
    ),
    "monitor": (
        "monitor:monitor",
        "Judge a stream, batch by batch: lines of stdin, or the samples of a domain.",
    ),
    "calibrate": (
        "calibrate:calibrate",
        "Compute a finished run's score at another layer and recalibrate it; its weights stay.",
    ),
    "estimate": (
        "estimate:estimate",
        "Estimate the accuracy on a domain without labels, beside what each signal alone says.",
    ),
    "export": (
        "export:export",
        "Write a run's model with its score, thresholds and accuracy estimator to one file.",
    ),
    "serve": (
        "serve:serve",
        "Serve runs over HTTP, with alarms by domain, metrics for Prometheus and a page.",
    ),
    "adapt": (
        "adapt:adapt",
        "Adapt a run to an unseen domain and report the metric on that domain and on the source.",
    ),
    "adaptations": (
        "adaptations:adaptations",
        "List the adaptation methods, or the settings of one of them.",
    ),
    "adapt-grid": (
        "adapt_grid:adapt_grid",
        "Train the starting points of a grid, adapt each by every row, and write the tables.",
    ),
    "tune": (
        "tune:tune",
        "Search for settings on synthetic shifts of a task's source; no unseen domain is loaded.",
    ),
    "bench": ("bench:bench", "Run a grid of methods, settings and seeds, and write its tables."),
    "report": (
        "report:report",
        "Write an HTML page with figures and tables of finished runs; needs no data and no model.",
    ),
    "demo": (
        "demo:demo",
        "Train ERM and uncertainty_guided on bundled digits, evaluate both, and write a report.",
    ),
    "compare-scores": (
        "compare_scores:compare_scores",
        "Compare uncertainty scores over the domains of a task: correlation with the error, cost.",
    ),
    "compare-verdicts": (
        "compare_verdicts:compare_verdicts",
        "Measure how often verdicts are right: on source data, harmless and costly shifts.",
    ),
    "segmentation-images": (
        "segmentation_images:segmentation_images",
        "Draw images of a domain with labels and predictions of runs, for segmentation tasks.",
    ),
    "data": ("data:data_app", "List, check and fetch the real data sets; inspect your own."),
    "tasks": ("tasks:tasks", "List the tasks, or show one in full."),
    "methods": ("methods:methods", "List the methods, or explain the settings of one of them."),
    "recipes": (
        "recipes:recipes",
        "List the recipes and what is in each: settings for a kind of data.",
    ),
    "doctor": (
        "doctor:doctor",
        "Check Python, torch, packages, data, disk space and this command, and suggest fixes.",
    ),
    "update-readme": (
        "update_readme:update_readme",
        "Write the table of published results into a page, between its markers.",
    ),
}
OLD_NAMES = ("few-shot", "pictures", "results", "uncertainty")  # of version 0.1


def make_app(summaries: bool) -> App:
    """Make the command line.

    Args:
        summaries: list the commands by the sentences above, without importing them. They would
            replace a command's own help, so they are for the list of commands only.
    """
    made = App(
        name="unseen",
        suppress_keyboard_interrupt=False,
        version=package_version,
        help="Train on one source domain, generalize to unseen domains, and detect when a model "
        "fails.",
    )
    for name, (place, summary) in COMMANDS.items():
        more = {"help": summary} if summaries else {}
        made.command(f"unseen.cli.{place}", name=name, **more)
    for old in OLD_NAMES:
        place = f"unseen.cli.old_names:{old.replace('-', '_')}"
        made.command(place, name=old, show=False)
    made.register_install_completion_command(
        help="Install completion for this shell (bash, zsh, fish), and print where."
    )
    return made


app = make_app(summaries=False)


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command line on `tokens`, by default `sys.argv[1:]`; exit with 2 on bad input."""
    ours, tokens = tokens is None, sys.argv[1:] if tokens is None else tokens
    logging.basicConfig(format="unseen: %(message)s", stream=sys.stderr)
    logging.getLogger("unseen").setLevel(logging.INFO)  # of other packages, warnings only
    keep_freed_memory()
    json_only = stdout_for_results_only(for_good=ours)  # the process ends with this command
    try:
        with (
            stopping_on_signals(),
            show_deprecations(),
            json_only if wants_json(tokens) else contextlib.nullcontext(),
            own_code_failures_named(),
        ):
            chosen = app if any(word[:1] != "-" for word in tokens) else make_app(summaries=True)
            chosen(
                tokens, exit_on_error=False, print_error=False, error_console=Console(stderr=True)
            )
    except UnusedCliTokensError as error:
        surplus = " ".join(error.unused_tokens or [])
        say(
            f"error: unexpected argument {surplus}: options must be named, e.g. --method NAME, "
            "and every setting needs its own --set; try --help"
        )
        sys.exit(2)
    except BrokenPipeError:  # as in `unseen monitor ... | head`
        say("stopped: what read the output has closed it")
        if ours:
            os._exit(BROKEN_PIPE)  # at a usual exit Python would write to the pipe again
        sys.exit(BROKEN_PIPE)
    except (CycloptsError, UnseenError, OSError) as error:  # an OSError names its file
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        say(f"interrupted; {next_step(tokens)}")
        sys.exit(130)
    except Stopped as stop:
        say(f"stopped by {stop.signal_name}; {next_step(tokens)}")
        sys.exit(stop.exit_code)
