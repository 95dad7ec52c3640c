"""Streams as bytes: records of a journal, and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.deploy.reductions import Array
from unseen.deploy.seen import Seen
from unseen.deploy.service.journal import Journal, pack, unpack
from unseen.deploy.service.settings import Watching
from unseen.deploy.service.streams import Judge, Stream, WindowReading
from unseen.errors import UnseenError

SIGNAL = "signal/"
NUMBERS = ("samples", "windows", "alarms", "weight", "squares", "last_time")


class Entry(NamedTuple):
    """Samples that were added to a domain."""

    domain: str
    time: float
    seen: Seen


class Streams:
    """The streams of a run by domain, with their files if there is a journal."""

    def __init__(
        self, scorer: Judge, watching: Watching, features: int, journal: Journal | None
    ) -> None:
        self.scorer, self.watching, self.features = scorer, watching, features
        self.journal, self.number = journal, 0
        self.by_domain: dict[str, Stream] = {}
        if journal is not None:
            self._restore(journal)

    def update(self, entry: Entry) -> tuple[Stream, list[WindowReading]]:
        """Add samples to their domain."""
        stream = self.by_domain.get(entry.domain)
        if stream is None:
            stream = self.by_domain[entry.domain] = Stream(self.watching, self.features)
        return stream, stream.update(entry.seen, self.scorer, entry.time)

    def record(self, entries: Sequence[Entry]) -> bytes:
        """Return the next record of the journal, of samples that were added."""
        self.number += 1
        about = [[e.domain, e.time, len(e.seen.scores)] for e in entries]
        arrays = _arrays_of([e.seen for e in entries])
        return pack({"number": self.number, "entries": about}, arrays)

    def forget(self, domain: str) -> bytes:
        """Remove a domain; return the record of it."""
        self.by_domain.pop(domain, None)
        self.number += 1
        return pack({"number": self.number, "forget": domain}, {})

    def snapshot(self) -> bytes:
        """Return everything, as of the last record."""
        arrays: dict[str, Array] = {}
        streams = {}
        for i, (domain, stream) in enumerate(self.by_domain.items()):
            numbers = {name: getattr(stream, name) for name in NUMBERS}
            history = [[getattr(r, f.name) for f in fields(r)] for r in stream.history]
            streams[domain] = {**numbers, "history": history}
            arrays[f"{i}/sum"] = stream.sum
            if stream.gathered:
                found = _arrays_of(stream.gathered)
                arrays |= {f"{i}/{name}": array for name, array in found.items()}
        return pack({"number": self.number, "streams": streams}, arrays)

    def _restore(self, journal: Journal) -> None:
        snapshot, records = journal.read()
        if snapshot is not None:
            about, arrays = unpack(snapshot, journal.snapshot)
            with _damage_named(journal.snapshot):
                self._load(about, arrays)
        for record in records:
            about, arrays = unpack(record, journal.journal)
            with _damage_named(journal.journal):
                self._replay(about, arrays)

    def _replay(self, about: dict[str, Any], arrays: dict[str, Array]) -> None:
        if about["number"] <= self.number:  # the snapshot has it
            return
        if "forget" in about:
            self.by_domain.pop(about["forget"], None)
        start = 0
        for domain, time, n in about.get("entries", ()):
            seen = _seen_of({name: array[start : start + n] for name, array in arrays.items()})
            self.update(Entry(domain, time, seen))
            start += n
        self.number = about["number"]

    def _load(self, about: dict[str, Any], arrays: dict[str, Array]) -> None:
        self.number = about["number"]
        for i, (domain, found) in enumerate(about["streams"].items()):
            stream = self.by_domain[domain] = Stream(self.watching, self.features)
            own = {
                name.removeprefix(f"{i}/"): array
                for name, array in arrays.items()
                if name.startswith(f"{i}/")
            }
            stream.sum = own.pop("sum").astype(np.float64)
            if stream.sum.shape != (self.features,):
                raise ValueError(f"the sums of {domain} have the shape {stream.sum.shape}")
            stream.history.extend(WindowReading(*row) for row in found["history"])
            for name in NUMBERS:
                setattr(stream, name, found[name])
            if own:  # a window that was not full; --window may have changed since
                stream.update(_seen_of(own), self.scorer, found["last_time"])
                stream.samples = found["samples"]


def _arrays_of(parts: Sequence[Seen]) -> dict[str, Array]:
    arrays = {
        "scores": np.concatenate([p.scores for p in parts]),
        "features": np.concatenate([p.features for p in parts]),
    }
    if (rows := [p.rows for p in parts if p.rows is not None]) and len(rows) == len(parts):
        arrays["rows"] = np.concatenate(rows)
    for name in parts[0].signals:
        arrays[f"{SIGNAL}{name}"] = np.concatenate([p.signals[name] for p in parts])
    return arrays


def _seen_of(arrays: dict[str, Array]) -> Seen:
    signals = {
        name.removeprefix(SIGNAL): array
        for name, array in arrays.items()
        if name.startswith(SIGNAL)
    }
    logits = np.empty((len(arrays["scores"]), 0), np.float32)
    return Seen(logits, arrays["scores"], arrays["features"], signals, arrays.get("rows"))


class _damage_named:
    """Name the file in errors of its content."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError | IndexError):
            raise UnseenError(
                f"{self.place} does not fit this run ({error}): move it away to begin again"
            ) from error
