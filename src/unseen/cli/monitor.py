"""`unseen monitor`. Imports torch for a run only, not for an exported model."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

from unseen.cli.arguments import (
    Count,
    CountOrNone,
    Device,
    Flag,
    Json,
    OwnData,
    RunData,
    RunOrModel,
    Seed,
    TaskWord,
)
from unseen.cli.messages import say
from unseen.cli.output import results
from unseen.deploy.line_stream import LineStream, json_line
from unseen.deploy.scorers import is_exported, open_scorer
from unseen.deploy.stream_monitor import StreamMonitor
from unseen.errors import UnseenError
from unseen.files import locked

BATCH = 64


def monitor(
    run: RunOrModel,
    *,
    domain: str | None = None,
    then: str | None = None,
    stdin: Annotated[bool, Flag] = False,
    state: Path | None = None,
    first_line: CountOrNone = None,
    batch: CountOrNone = None,
    memory: Count = 20,
    false_alarm_rate: float = 0.01,
    false_alarms_per_thousand: float | None = None,
    false_alarms_per_day: float | None = None,
    batches_per_day: float | None = None,
    tolerance: float = 0.05,
    verdicts: bool = True,
    seed: Seed = 0,
    task: TaskWord = None,
    own: OwnData = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Judge a stream, batch by batch: lines of stdin, or the samples of a domain.

    With --stdin, a line is {"path": FILE}, {"text": ...}, {"x": [...]} or columns of a table, with
    an optional "domain" or "client", or a bare path. One JSON line comes out for each batch.

    Parameters
    ----------
    domain
        A domain of the task; "source" is the source's test split. Optional if there is one unseen.
    then
        A second domain to follow, to simulate a drift.
    stdin
        Read samples from stdin until it ends.
    state
        File that keeps the stream of --stdin; a stream that was killed continues from it.
    first_line
        Number of the first line of stdin, counted over restarts: lines that the state holds are
        skipped. By default they are new lines.
    batch
        Samples in a batch; by default 64, or all of a domain that has fewer.
    memory
        Length of the slow score in batches; it detects a drift too small for one batch to show.
    false_alarm_rate
        Maximum rate of alarms on source batches, for each batch.
    false_alarms_per_thousand
        Instead: false alarms in a thousand source batches of the stream, at most, in the long run.
    false_alarms_per_day
        The same by the day, with --batches-per-day.
    batches_per_day
        How many batches the stream has on a day.
    tolerance
        Loss of accuracy against the source that is still fine.
    verdicts
        Judge every batch: ok, shifted, failing or unknown. Without, only scores and alarms.
    """
    rate = alarms_per_thousand(false_alarms_per_thousand, false_alarms_per_day, batches_per_day)
    own = own or RunData()
    if not stdin:
        if rate is not None or state is not None or first_line is not None:
            raise UnseenError("--state, --first-line and a rate of the stream need --stdin")
        if is_exported(run):
            raise UnseenError(f"{run} is an exported model, which has no domains: add --stdin")
        from unseen.cli.monitor_domain import monitor_domain

        settings = {"batch": batch, "memory": memory, "false_alarm_rate": false_alarm_rate}
        monitor_domain(run, domain, then, settings, verdicts, seed, task, own, device, json_)
        return
    if domain is not None or then is not None or own.data is not None:
        raise UnseenError("--stdin reads samples from stdin: leave out --domain, --then and --data")
    code = {"model": own.model, "method": own.method, "trust_code": own.trust_code}
    scorer = open_scorer(run, device=device, task=task, verdicts=verdicts, **code)  # type: ignore[arg-type]
    make = partial(
        StreamMonitor,
        scorer,
        batch=BATCH if batch is None else batch,
        memory=memory,
        false_alarm_rate=false_alarm_rate,
        false_alarms_per_thousand=rate,
        tolerance=tolerance,
    )
    with _alone(state):
        stream = LineStream(scorer, make, state)
        if stream.read:
            say(f"{state}: the stream goes on after line {stream.read}")
        for record in stream.run(iter(sys.stdin.buffer.readline, b""), first_line):
            print(json_line(record), file=results(), flush=True)


def _alone(state: Path | None) -> AbstractContextManager[None]:
    """Return the lock of a file of a stream."""
    return nullcontext() if state is None else locked(state.with_name(f"{state.name}.stream"))


def alarms_per_thousand(
    per_thousand: float | None, per_day: float | None, batches_per_day: float | None
) -> float | None:
    """Return the false alarms per thousand batches that the options state; None if they do not."""
    if per_day is None and batches_per_day is None:
        return per_thousand
    if per_thousand is not None or per_day is None or batches_per_day is None:
        raise UnseenError(
            "state one rate: --false-alarms-per-thousand, or --false-alarms-per-day together with "
            "--batches-per-day"
        )
    if not (per_day > 0 and batches_per_day > 0):
        raise UnseenError("--false-alarms-per-day and --batches-per-day must be above 0")
    return 1000 * per_day / batches_per_day
