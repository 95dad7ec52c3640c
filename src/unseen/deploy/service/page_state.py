"""What the page shows of a run, as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from unseen.deploy.service.runs import ServedRun
from unseen.deploy.service.streams import Stream, WindowReading

SPARK = 40  # readings in the small chart of a domain
ALARMS = 12


def page_state(
    chosen: ServedRun, runs: Iterable[ServedRun], domain: str | None = None
) -> dict[str, Any]:
    """Return the state of every domain, the readings of one, the last alarms and inputs."""
    loaded = chosen.current
    streams = dict(loaded.streams.by_domain)
    selected = domain if domain in streams else _most_important(streams)
    shown = streams.get(selected) if selected is not None else None
    return {
        "time": time.time(),
        "run": chosen.name,
        "problem": None if chosen.problem is None else loaded.public(chosen.problem),
        "runs": [{"run": run.name, "alarms": len(_alarming(run))} for run in runs],
        "score": loaded.scorer.calibration.detector,
        "rate": loaded.watching.rate,
        "selected": selected,
        "history": [] if shown is None else [_point(r) for r in list(shown.history)],
        "domains": [_domain(name, stream) for name, stream in _ordered(streams)],
        "alarms": _last_alarms(streams),
        "recent": loaded.recent.as_list(),
    }


def _ordered(streams: dict[str, Stream]) -> list[tuple[str, Stream]]:
    """Return streams with alarms first, then those that were judged, the latest first."""
    return sorted(
        streams.items(),
        key=lambda pair: (not pair[1].alarms_now, pair[1].latest is None, -pair[1].last_time),
    )


def _most_important(streams: dict[str, Stream]) -> str | None:
    return _ordered(streams)[0][0] if streams else None


def _alarming(run: ServedRun) -> list[str]:
    return [name for name, s in dict(run.current.streams.by_domain).items() if s.alarms_now]


def _domain(name: str, stream: Stream) -> dict[str, Any]:
    spark = [r.score / max(r.threshold, 1e-12) for r in list(stream.history)[-SPARK:]]
    about = {"domain": name, "last_time": stream.last_time, "spark": spark}
    return {**about, **stream.compute()}


def _point(reading: WindowReading) -> dict[str, Any]:
    names = (
        "time", "number", "n", "score", "threshold", "slow_score", "slow_threshold", "verdict",
        "predicted_accuracy", "low", "high", "source_accuracy", "alarm",
    )  # fmt: skip
    return {name: getattr(reading, name) for name in names}


def _last_alarms(streams: dict[str, Stream]) -> list[dict[str, Any]]:
    """Return the last reading of each row of windows with an alarm, with the row's begin."""
    found: list[dict[str, Any]] = []
    for name, stream in streams.items():
        number, row = -1, 0
        for reading in list(stream.history):
            if not reading.alarm:
                continue
            follows = reading.number == number + 1
            since = found.pop()["since"] if follows else reading.time
            number, row = reading.number, row + 1 if follows else 1
            found.append({"domain": name, **reading.as_dict(), "since": since, "row": row})
    return sorted(found, key=lambda alarm: -alarm["time"])[:ALARMS]
