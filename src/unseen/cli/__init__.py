"""The command line. Results go to stdout, messages to stderr; each command calls the library."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError
from rich.console import Console

from unseen.cli import (
    adapt,
    adapt_grid,
    adaptations,
    bench,
    calibrate,
    compare_scores,
    compare_verdicts,
    data,
    demo,
    doctor,
    estimate,
    evaluate,
    methods,
    monitor,
    predict,
    report,
    score,
    segmentation_images,
    tasks,
    train,
    update_readme,
)
from unseen.cli.options import deprecated, say, show_deprecations
from unseen.cli.output import own_code_failures_named, stdout_for_results_only, wants_json
from unseen.cli.signals import next_step, stopping_on_signals
from unseen.errors import Stopped, UnseenError
from unseen.training.identity import package_version
from unseen.training.machine import keep_freed_memory

__all__ = ["app", "main"]

app = App(
    name="unseen",
    suppress_keyboard_interrupt=False,
    version=package_version,
    help="Train on one source domain, generalize to unseen domains, and detect when a model fails.",
)
app.command(train.train)
app.command(evaluate.evaluate)
app.command(score.score)
app.command(predict.predict)
app.command(monitor.monitor)
app.command(calibrate.calibrate)
app.command(estimate.estimate)
app.command(adapt.adapt)
app.command(adaptations.adaptations)
app.command(adapt_grid.adapt_grid, name="adapt-grid")
app.command(bench.bench)
app.command(report.report)
app.command(demo.demo)
app.command(compare_scores.compare_scores, name="compare-scores")
app.command(compare_verdicts.compare_verdicts, name="compare-verdicts")
app.command(segmentation_images.segmentation_images, name="segmentation-images")
app.command(data.data_app)
app.command(tasks.tasks)
app.command(methods.methods)
app.command(doctor.doctor)
app.command(update_readme.update_readme, name="update-readme")

# Names of version 0.1, to be removed in 0.3.
for old, new, command in (
    ("few-shot", "adapt-grid", adapt_grid.adapt_grid),
    ("pictures", "segmentation-images", segmentation_images.segmentation_images),
    ("results", "update-readme", update_readme.update_readme),
    ("uncertainty", "compare-scores", compare_scores.compare_scores),
):
    app.command(deprecated(command, old, new), name=old, show=False)


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command line on `tokens`, by default `sys.argv[1:]`; exit with 2 on bad input."""
    ours, tokens = tokens is None, sys.argv[1:] if tokens is None else tokens
    logging.basicConfig(level=logging.INFO, format="unseen: %(message)s", stream=sys.stderr)
    keep_freed_memory()
    json_only = stdout_for_results_only(for_good=ours)  # the process ends with this command
    try:
        with (
            stopping_on_signals(),
            show_deprecations(),
            json_only if wants_json(tokens) else contextlib.nullcontext(),
            own_code_failures_named(),
        ):
            app(tokens, exit_on_error=False, print_error=False, error_console=Console(stderr=True))
    except UnusedCliTokensError as error:
        surplus = " ".join(error.unused_tokens or [])
        say(
            f"error: unexpected argument {surplus}: options must be named, e.g. --method NAME, "
            "and every setting needs its own --set; try --help"
        )
        sys.exit(2)
    except (CycloptsError, UnseenError, OSError) as error:  # an OSError names its file
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        say(f"interrupted; {next_step(tokens)}")
        sys.exit(130)
    except Stopped as stop:
        say(f"stopped by {stop.signal_name}; {next_step(tokens)}")
        sys.exit(stop.exit_code)
