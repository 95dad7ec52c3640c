"""`unseen score`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import (
    CountOrNone,
    Device,
    Json,
    RunFolder,
    Seed,
    TaskWord,
    emit,
    say,
    task_of,
)
from unseen.experiments import evaluate as evaluation
from unseen.report.tables import show
from unseen.training.run import Run


def score(
    run: RunFolder,
    *,
    domain: str,
    batch: CountOrNone = None,
    false_alarm_rate: float = 0.01,
    per_sample: Path | None = None,
    seed: Seed = 0,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Score the shift of a domain from the source, without labels, and decide on an alarm.

    Parameters
    ----------
    domain
        A domain of the task; "source" is the held-out source.
    batch
        Score this many random samples instead of all; the threshold is for this batch size.
    false_alarm_rate
        Rate at which batches of the source raise the alarm.
    per_sample
        CSV file for the score of every sample.
    """
    finished = Run(run)
    result = evaluation.score(
        finished,
        task_of(finished, task),
        domain,
        batch=batch,
        false_alarm_rate=false_alarm_rate,
        seed=seed,
        per_sample=per_sample,
        device=device,
    )
    if result["fallback"]:
        say(f"this run has no learned sigma; the score is a fallback: {result['score_name']}")
    if not emit(result, json_):
        values = {**result, "interval": " to ".join(f"{end:.4f}" for end in result["interval"])}
        rows = [[k, f"{v:.4f}" if isinstance(v, float) else v] for k, v in values.items()]
        show("ALARM" if result["alarm"] else "no alarm", ["", ""], rows)
