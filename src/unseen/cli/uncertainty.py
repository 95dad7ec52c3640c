"""`unseen uncertainty`: scores compared over the domains of a task."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from unseen.cli.options import Count, Device, Json, RunFolder, Seed, TaskWord, emit, say, task_of
from unseen.errors import UnseenError
from unseen.experiments.compare_scores import compare
from unseen.training.run import Run


def attach(app: App) -> None:
    app.command(uncertainty)


def uncertainty(
    *runs: RunFolder,
    out: Path,
    samples: Count = 1000,
    seed: Seed = 0,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Compare uncertainty scores over the domains of a task: do they follow the error, and what do they cost?

    Name finished runs of one task: uncertainty_guided, whose model gives its own score and those of softmax, energy and
    Mahalanobis, and for comparison bnn and mc_dropout; one run for each method and seed.

    Parameters
    ----------
    out
        The folder for scores.json, summary.json, table.md and a figure; it may collect several tasks.
    samples
        At most so many random samples of each domain: a Bayesian network takes about 30 predictions for each.
    """
    if not runs:
        raise UnseenError(
            "name finished runs of one task: unseen uncertainty RUN [RUN ...] --out DIR"
        )
    made = [Run(folder) for folder in runs]
    result = compare(made, task_of(made[0], task), out, samples=samples, seed=seed, device=device)
    if not emit(result, json_):
        print((out / "table.md").read_text())
    methods = {run.config["method"] for run in made}
    if "bnn" not in methods:
        say(
            "no bnn run among these: nothing to correlate with Bayesian uncertainty; train one with --method bnn"
        )
