"""`unseen predict`. Imports torch for a run only, not for an exported model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from unseen.cli.arguments import (
    Count,
    CountOrNone,
    Device,
    Flag,
    Json,
    OwnData,
    RunData,
    RunOrModel,
    TaskWord,
)
from unseen.cli.cluster_options import Cluster, ClusterOptions, make_runner
from unseen.cli.output import emit
from unseen.deploy.predict import PART, predict_samples
from unseen.deploy.predict_shards import Opener, Shards
from unseen.deploy.samples import open_samples
from unseen.deploy.scorers import is_exported, open_scorer
from unseen.errors import UnseenError
from unseen.report.tables import percent, show

if TYPE_CHECKING:
    from unseen.deploy.samples import Samples
    from unseen.deploy.scorer import Scorer


def predict(
    run: RunOrModel,
    *,
    domain: str | None = None,
    out: Path,
    reject_rate: float = 0.0,
    tolerance: float = 0.05,
    false_alarm_rate: float = 0.01,
    part: Count = PART,
    workers: CountOrNone = None,
    cluster: Cluster = None,
    restart: Annotated[bool, Flag] = False,
    task: TaskWord = None,
    own: OwnData = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Predict every sample of a domain or of --data, with scores; judge each domain.

    Samples are read one batch after the other: they may be more than memory holds. A command that
    was killed continues if it is run again.

    Parameters
    ----------
    domain
        A domain of the task; "source" is the held-out source. Without it, all samples of --data.
    out
        File to write, .csv, .jsonl or .parquet: sample, prediction, probability, correctness,
        rejected, score, domain, and the probability of every class. Label maps are PNG files.
    reject_rate
        Part of the samples to hand to a person: those least likely to be correct.
    tolerance
        Loss of accuracy against the source that is still fine.
    false_alarm_rate
        Rate at which domains like the source are called shifted, or failing.
    part
        Samples that are saved together; a kill loses at most one part.
    workers
        Shards of parts to predict at a time, one process each. By default 1 on this machine, all
        that fit on a cluster.
    restart
        Discard what an interrupted command has left, and begin again.
    """
    opener = partial(_open, run, domain, task, own or RunData(), device, false_alarm_rate)
    scorer, samples = opener()
    with _shards(opener, workers, cluster) as shards:
        result = predict_samples(
            scorer,
            samples,
            out,
            reject_rate=reject_rate,
            tolerance=tolerance,
            part=part,
            restart=restart,
            shards=shards,
        )
    if not emit(result, json_):
        _show(result)


@contextmanager
def _shards(
    opener: Opener, workers: int | None, cluster: ClusterOptions | None
) -> Iterator[Shards | None]:
    """Yield where the parts are predicted; None is this process."""
    options = cluster or ClusterOptions()
    if options == ClusterOptions() and workers in (None, 1):
        yield None
        return
    with make_runner(options, workers, default=1) as runner:
        yield Shards(runner, partial(opener, threads=options.cpus))


def _open(
    path: Path,
    domain: str | None,
    task: str | None,
    own: RunData,
    device: str,
    rate: float,
    threads: int | None = None,
) -> tuple[Scorer, Samples]:
    """Return the model, and the samples: of a domain of its task, or of --data."""
    if is_exported(path) and (domain is not None or own.data is None):
        raise UnseenError(f"{path} is an exported model: name files to predict, --data, alone")
    if own.data is not None and domain is None:
        code = {"model": own.model, "method": own.method, "trust_code": own.trust_code}
        given: dict[str, Any] = {**code, "threads": threads, "device": device}
        scorer = open_scorer(path, rate=rate, task=task, **given)
        return scorer, open_samples(own.data, scorer.reader, _class_names(scorer))
    from unseen.cli.options import only_domain, task_of
    from unseen.deploy.scorer_of_run import scorer_of_run
    from unseen.deploy.task_samples import TaskSamples
    from unseen.training.run import Run

    finished = Run(path)
    chosen = task_of(finished, task, own)
    samples = TaskSamples(chosen, only_domain(chosen, domain))
    return scorer_of_run(finished, chosen, rate=rate, device=device), samples


def _class_names(scorer: Scorer) -> tuple[str, ...]:
    return scorer.classes if scorer.labels == "classes" else ()


def _show(result: dict[str, Any]) -> None:
    header = ["domain", "samples", "verdict", "score / threshold", "alarm"]
    every = {"all": result} if len(result["domains"]) > 1 else {}
    rows = {**result["domains"], **every}
    predicted = result["predicted_accuracy"] is not None
    labelled = any("accuracy" in row for row in rows.values())
    header += ["predicted accuracy, % (90 % interval)"] * predicted + ["accuracy, %"] * labelled
    table = []
    for name, row in rows.items():
        cells = [name, row["n"], row["verdict"], f"{row['times_threshold']:.2f}"]
        cells.append("yes" if row["alarm"] else "no")
        if predicted:
            low, high = row["interval"]
            between = f"({percent(low)} to {percent(high)})"
            cells.append(f"{percent(row['predicted_accuracy'])} {between}")
        if labelled:
            cells.append(percent(row["accuracy"]) if "accuracy" in row else "")
        table.append(cells)
    show(f"predictions in {result['out']}", header, table)
    if result.get("rejected"):
        kept = percent(result["expected_accuracy_of_kept"])
        print(f"{result['rejected']} handed to a person; expected accuracy of the rest: {kept} %")
    if len(rows) == 1:
        print(result["sentence"])
