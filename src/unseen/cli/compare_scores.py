"""`unseen compare-scores`: uncertainty scores over the domains of a task."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import Count, Device, Json, RunFolder, Seed, TaskWord, emit, say, task_of
from unseen.errors import UnseenError
from unseen.experiments.compare_scores import compare
from unseen.training.run import Run


def compare_scores(
    *runs: RunFolder,
    out: Path,
    samples: Count = 1000,
    seed: Seed = 0,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Compare uncertainty scores over the domains of a task: correlation with the error, cost.

    Name finished runs of one task, one for each method and seed: uncertainty_guided, whose model
    gives its own score and those of softmax, energy and Mahalanobis; for comparison bnn and
    mc_dropout.

    Parameters
    ----------
    out
        Folder for scores.json, summary.json, table.md and a figure. It may collect
        several tasks.
    samples
        Maximum number of random samples of each domain. A Bayesian network takes about 30 passes
        for each.
    """
    if not runs:
        raise UnseenError(
            "name finished runs of one task: unseen compare-scores RUN [RUN ...] --out DIR"
        )
    finished = [Run(folder) for folder in runs]
    first_task = task_of(finished[0], task)
    result = compare(finished, first_task, out, samples=samples, seed=seed, device=device)
    if not emit(result, json_):
        print((out / "table.md").read_text())
    if "bnn" not in {run.config["method"] for run in finished}:
        say("no bnn run: no correlation with Bayesian uncertainty; train one with --method bnn")
