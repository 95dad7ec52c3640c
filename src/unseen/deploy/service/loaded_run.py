"""One loaded version of a run: its scorer, its batches and the streams of its domains."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from unseen.deploy.reductions import Array
from unseen.deploy.scorer import Scorer
from unseen.deploy.seen import Seen
from unseen.deploy.service.batching import Batcher, Item, Outcome
from unseen.deploy.service.journal import Journal
from unseen.deploy.service.limits import Limits
from unseen.deploy.service.metrics import Metrics
from unseen.deploy.service.predictions import predictions_of
from unseen.deploy.service.problems import Problem, invalid, overloaded
from unseen.deploy.service.recent import Recent
from unseen.deploy.service.settings import Batching, Watching
from unseen.deploy.service.state import Entry, Streams
from unseen.deploy.service.streams import WindowReading
from unseen.deploy.transport import assign
from unseen.errors import UnseenError

Inputs = Array | dict[str, Array]
Notify = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Ask:
    """What a request wants of the model."""

    verb: Literal["predict", "score", "forget"]
    domain: str
    x: Inputs
    texts: list[str] | None = None  # as they came, for the page


class LoadedRun:
    """Answers the requests of one run. The scorer is used by one thread only."""

    def __init__(
        self,
        name: str,
        scorer: Scorer,
        fingerprint: str,
        *,
        limits: Limits,
        watching: Watching,
        batching: Batching,
        metrics: Metrics,
        notify: Notify,
        journal: Journal | None,
        recent: int,
    ) -> None:
        self.name, self.scorer, self.fingerprint = name, scorer, fingerprint
        self.limits, self.watching, self.metrics, self.notify = limits, watching, metrics, notify
        self.since = time.time()
        for size in watching.sizes():  # now, not in the middle of a request
            scorer.threshold(size, watching.rate / 2)
        assign(np.zeros((1, 1)))  # imports scipy, which takes a second
        features = scorer.calibration.held_out.shape[1]
        self.streams = Streams(scorer, watching, features, journal)
        self.recent = Recent(recent)
        accuracy = scorer.calibration.accuracy
        self._recomputed = () if accuracy is None else tuple(accuracy.transports)
        self.batcher = Batcher(
            self._compute,
            max_batch=batching.max_batch,
            max_wait=batching.max_wait / 1000,
            max_queue=limits.max_queue,
        )

    async def ask(self, ask: Ask) -> dict[str, Any]:
        """Answer a request; raise Problem if that is not possible."""
        self._check_domains(ask)
        try:
            answer: dict[str, Any] = await self.batcher.submit(
                ask, _count(ask.x), self.limits.answer_seconds
            )
        except UnseenError as error:
            raise invalid(self.public(str(error))) from None
        return answer

    def _check_domains(self, ask: Ask) -> None:
        known = self.streams.by_domain
        is_new = ask.verb == "predict" and ask.domain not in known
        if is_new and len(known) >= self.limits.max_domains:
            raise overloaded(
                f"{len(known)} domains are watched, at most {self.limits.max_domains} may: "
                "DELETE /domains/NAME, or raise --max-domains"
            )

    async def forget(self, domain: str) -> dict[str, Any]:
        """Forget the stream of a domain."""
        ask = Ask("forget", domain, np.empty((0,)))
        answer: dict[str, Any] = await self.batcher.submit(ask, 0, self.limits.answer_seconds)
        return answer

    def show_metrics(self) -> None:
        """Set the gauges of this run to its state, and remove those of a run that it replaced."""
        accuracy = self.scorer.calibration.accuracy
        source = None if accuracy is None else accuracy.source_accuracy
        self.metrics.restore(self.name, dict(self.streams.by_domain), source)

    def public(self, text: str) -> str:
        """Return a message without the place of the run on this machine."""
        return text.replace(f"{self.scorer.place}, ", "").replace(self.scorer.place, self.name)

    def close(self) -> None:
        """Finish the requests that wait."""
        self.batcher.close()
        if (journal := self.streams.journal) is not None:
            journal.replace(self.streams.snapshot())

    def end_alarms(self) -> None:
        """Tell that the alarms of a closed run that was replaced are over."""
        for domain, stream in self.streams.by_domain.items():
            if stream.alarms_now:
                self._resolve(domain, "The run was replaced: its streams begin again.")

    # ---- in the thread of the model

    def _compute(self, items: Sequence[Item]) -> tuple[list[Outcome], Callable[[], None]]:
        self.metrics.queue.labels(self.name).set(self.batcher.waiting)
        outcomes: list[Outcome] = []
        entries: list[Entry] = []
        records: list[bytes] = []
        for item in [item for item in items if item.content.verb == "forget"]:
            stream = self.streams.by_domain.get(item.content.domain)
            if stream is not None and stream.alarms_now:
                self._resolve(item.content.domain, "The stream was forgotten.")
            records.append(self.streams.forget(item.content.domain))
            self.metrics.forget(self.name, item.content.domain)
            outcomes.append((item, {"forgotten": item.content.domain}))
        for group in _alike([item for item in items if item.content.verb != "forget"]):
            outcomes += self._pass(group, entries)
        if self.streams.journal is None:
            return outcomes, lambda: None
        return outcomes, self._commit(records, entries, self.streams.journal)

    def _commit(
        self, records: list[bytes], entries: list[Entry], journal: Journal
    ) -> Callable[[], None]:
        if entries:
            records.append(self.streams.record(entries))
        # The snapshot is of this moment, with this record; the other thread only writes it.
        snapshot = self.streams.snapshot() if journal.is_long else None

        def commit() -> None:
            if snapshot is not None:
                journal.replace(snapshot)
            elif records:
                journal.append(b"".join(records))

        return commit

    def _pass(self, items: Sequence[Item], entries: list[Entry]) -> list[Outcome]:
        """Run a batch; if it fails, every request alone, so that one cannot harm the others."""
        try:
            seen = self.scorer.observe(_joined([item.content.x for item in items]))
        except Exception as error:
            if len(items) > 1:
                return [o for item in items for o in self._pass([item], entries)]
            return [(items[0], _as_problem(error))]
        self.metrics.batch.labels(self.name).observe(len(seen.scores))
        outcomes: list[Outcome] = []
        start = 0
        for item in items:
            part = seen.take(np.arange(start, start + item.n)) if len(items) > 1 else seen
            start += item.n
            try:
                outcomes.append((item, self._answer(item.content, part, entries)))
            except Exception as error:
                outcomes.append((item, _as_problem(error)))
        return outcomes

    def _answer(self, ask: Ask, seen: Seen, entries: list[Entry]) -> dict[str, Any]:
        self._check_domains(ask)  # again: requests that waited with this one may have added some
        _check_finite(seen)
        rows = predictions_of(seen, self.scorer.labels, self.scorer.classes)
        answer: dict[str, Any] = {"run": self.name, "n": len(rows)}
        if ask.verb == "score":
            return {**answer, **self._verdict(seen), "scores": [row["score"] for row in rows]}
        kept = {n: v for n, v in seen.signals.items() if n not in self._recomputed}
        entry = Entry(ask.domain, time.time(), replace(seen, signals=kept))
        known = self.streams.by_domain.get(ask.domain)
        before = known is not None and known.alarms_now
        stream, readings = self.streams.update(entry)
        entries.append(entry)
        self.metrics.samples.labels(self.name, ask.domain).inc(len(rows))
        for reading in readings:
            self._announce(ask.domain, reading, before)
            before = reading.alarm
        if self.recent.wants_more():
            sample = ask.texts[0] if ask.texts else _first(ask.x)
            self.recent.add(ask.domain, rows[0], sample)
        return {**answer, "domain": ask.domain, "predictions": rows, "stream": stream.compute()}

    def _verdict(self, seen: Seen) -> dict[str, Any]:
        verdict = self.scorer.judge(seen, self.watching.tolerance, self.watching.rate)
        found = verdict.as_dict()
        if self.scorer.estimates_accuracy and self.scorer.labels == "classes":
            found["correctness"] = np.round(self.scorer.correctness_from(seen), 6).tolist()
        return found

    def _announce(self, domain: str, reading: WindowReading, before: bool) -> None:
        self.metrics.read(self.name, domain, reading)
        if reading.alarm != before:
            event = "alarm" if reading.alarm else "resolved"
            about = {"event": event, "run": self.name, "domain": domain}
            self.notify({**about, **reading.as_dict()})

    def _resolve(self, domain: str, sentence: str) -> None:
        about = {"event": "resolved", "run": self.name, "domain": domain}
        self.notify({**about, "time": time.time(), "sentence": sentence})


def _as_problem(error: Exception) -> Exception:
    """Return an error that a client may see; the traceback of a bug goes to the log only."""
    if isinstance(error, UnseenError | Problem):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def _check_finite(seen: Seen) -> None:
    if not (np.isfinite(seen.features).all() and np.isfinite(seen.scores).all()):
        raise UnseenError("the scores of these samples are not finite: look for very large numbers")


def _alike(items: Sequence[Item]) -> list[list[Item]]:
    """Return items in groups whose inputs can be joined."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        x = item.content.x
        arrays = x.items() if isinstance(x, Mapping) else [("", x)]
        key = tuple((name, a.shape[1:], a.dtype) for name, a in arrays)
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def _joined(parts: Sequence[Inputs]) -> Inputs:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], dict):
        return {
            name: np.concatenate([p[name] for p in parts])  # type: ignore[index]
            for name in parts[0]
        }
    return np.concatenate(parts)  # type: ignore[arg-type]


def _first(x: Inputs) -> Array:
    array = next(iter(x.values())) if isinstance(x, dict) else x
    return array[0]


def _count(x: Inputs) -> int:
    return len(next(iter(x.values()))) if isinstance(x, dict) else len(x)
