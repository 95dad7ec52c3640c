"""`unseen score`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unseen.cli.options import (
    CountOrNone,
    Device,
    Json,
    OwnData,
    RunFolder,
    Seed,
    TaskWord,
    emit,
    only_domain,
    say,
    task_of,
)
from unseen.experiments.score import score as score_domain
from unseen.report.tables import percent, show
from unseen.training.run import Run


def score(
    run: RunFolder,
    *,
    domain: str | None = None,
    batch: CountOrNone = None,
    tolerance: float = 0.05,
    false_alarm_rate: float = 0.01,
    per_sample: Path | None = None,
    seed: Seed = 0,
    task: TaskWord = None,
    own: OwnData = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Judge a domain without labels: ok, shifted, failing or unknown.

    The first call for a run fits the accuracy estimator with synthetic shifts of held-out source
    data and saves it in the run's folder.

    Parameters
    ----------
    domain
        A domain of the task; "source" is the held-out source. Optional if there is one unseen.
    batch
        Score this many random samples instead of all; the threshold is for this batch size.
    tolerance
        Loss of accuracy against the source that is still fine.
    false_alarm_rate
        Rate at which batches of the source are called shifted, or failing.
    per_sample
        CSV file for the score and the probability of correctness of every sample.
    """
    finished = Run(run)
    chosen = task_of(finished, task, own)
    domain = only_domain(chosen, domain)
    result = score_domain(
        finished,
        chosen,
        domain,
        batch=batch,
        tolerance=tolerance,
        false_alarm_rate=false_alarm_rate,
        seed=seed,
        per_sample=per_sample,
        device=device,
    )
    if result["fallback"]:
        say(f"this run has no learned sigma; the score is a fallback: {result['score_name']}")
    if not emit(result, json_):
        rows = [
            *_predicted(result),
            ["score", f"{result['score']:.4f}"],
            ["threshold", f"{result['threshold']:.4f}"],
            ["score / threshold", f"{result['times_threshold']:.2f}"],
            ["p-value of the score", f"{result['p_value']:.2g}"],
            ["samples", str(result["n"])],
            ["alarm", "yes" if result["alarm"] else "no"],
        ]
        show(f"{domain}: {result['verdict']}", ["", ""], rows)
        print(result["sentence"])


def _predicted(result: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the predicted accuracy, which is defined for classes only."""
    if result["predicted_accuracy"] is None:
        return []
    low, high = result["interval"]
    return [
        ["predicted accuracy", f"{percent(result['predicted_accuracy'])} %"],
        ["interval, 90 %", f"{percent(low)} to {percent(high)} %"],
        ["accuracy on the source", f"{percent(result['source_accuracy'])} %"],
        ["p-value of the estimate", f"{result['failing_p_value']:.2g}"],
    ]
