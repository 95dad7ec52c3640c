"""Lines in, one judged batch after the other out: what `unseen monitor --stdin` does. No torch.

A line is a JSON object, {"path": ...}, {"text": ...}, {"x": [...]} or columns of a table, with an
optional "domain" or "client"; or a bare path, or a bare text for a model of texts. Every domain is
a stream of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unseen.deploy.reductions import Array
from unseen.deploy.scorer import Scorer
from unseen.deploy.stream_monitor import StreamMonitor, npz_bytes, read_npz
from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.reading import LARGEST_LINE, parse_json

STREAM = "stream"  # the domain of lines that name none
MOST_DOMAINS = 1000
LINES = "lines"  # key in the file of the state


@dataclass
class _Waiting:
    """Samples of a domain that are not yet a batch."""

    rows: list[Array] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class LineStream:
    """Monitors of the domains of a stream of lines.

    Args:
        make: makes the monitor of a new domain.
        state: file that is written before a batch is reported, and continued from.
    """

    def __init__(self, scorer: Scorer, make: Callable[[], StreamMonitor], state: Path | None):
        self.scorer, self.make, self.state = scorer, make, state
        make()  # checks the settings before anything is read
        self.monitors: dict[str, StreamMonitor] = {}
        self.waiting: dict[str, _Waiting] = {}
        self.read = 0  # number of the last line that is counted, judged or waiting
        self._lost: list[dict[str, Any]] = []  # waiting samples that are not there any more
        if state is not None and state.exists():
            self._load(state)

    def run(self, lines: Iterable[bytes], first: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield one record for each batch, and one for each line that cannot be read.

        A batch is yielded when the file of the state holds it.

        Args:
            first: number of the first of the lines; those that the state holds are skipped. By
                default the lines follow those of the state.
        """
        first = self.read + 1 if first is None else first
        if first > self.read + 1:
            raise UnseenError(
                f"the stream goes on after line {self.read}, the first line sent is {first}: send "
                f"them from line {self.read + 1}"
            )
        yield from self._lost
        for number, line in enumerate(lines, first):
            if number <= self.read:
                continue
            self.read = number
            try:
                domain = self._take(line, number)
            except UnseenError as error:
                yield {"error": str(error), "line": number}
                continue
            if domain is not None and self._is_full(domain):
                yield self._judge(domain)
        for domain in [name for name, waiting in self.waiting.items() if waiting.rows]:
            yield self._judge(domain)

    def _is_full(self, domain: str) -> bool:
        return len(self.waiting[domain].rows) >= self.monitors[domain].batch

    def _take(self, line: bytes, number: int) -> str | None:
        """Read a line into its domain's batch; return the domain, None for an empty line."""
        if len(line) > LARGEST_LINE:
            raise UnseenError(f"the line is longer than {LARGEST_LINE} bytes")
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            raise UnseenError(f"the line is not UTF-8 text: {error}") from None
        if not text:
            return None
        item, domain = _parse(text)
        row = self.scorer.reader.read(item)
        if domain not in self.monitors:
            if len(self.monitors) >= MOST_DOMAINS:
                raise UnseenError(f"there are more than {MOST_DOMAINS} domains")
            self.monitors[domain] = self.make()
        waiting = self.waiting.setdefault(domain, _Waiting())
        waiting.rows.append(row)
        waiting.lines.append(number)
        if self.state is not None:
            waiting.texts.append(text)
        return domain

    def _judge(self, domain: str) -> dict[str, Any]:
        waiting = self.waiting.pop(domain)
        lines = [waiting.lines[0], waiting.lines[-1]]
        try:
            reading = self.monitors[domain].update(self.scorer.reader.stack(waiting.rows))
        except UnseenError as error:
            return {
                "error": f"the batch was not counted: {error}",
                "domain": domain,
                "lines": lines,
            }
        if self.state is not None:
            self._save(self.state)
        about = {"domain": domain, "lines": lines, "read": self.read}
        return {**about, **asdict(reading), "alarm": reading.alarm}

    def _save(self, path: Path) -> None:
        arrays: dict[str, Array] = {}
        for number, (name, monitor) in enumerate(self.monitors.items()):
            state = {**monitor.state(), "name": np.array(name)}
            arrays |= {f"{number}/{key}": array for key, array in state.items()}
        waiting = {
            name: list(zip(samples.lines, samples.texts, strict=True))
            for name, samples in self.waiting.items()
        }
        arrays[LINES] = np.array(json.dumps({"read": self.read, "waiting": waiting}))
        write_atomically(path, npz_bytes(arrays))

    def _load(self, path: Path) -> None:
        by_number: dict[str, dict[str, Array]] = {}
        arrays = read_npz(path)
        lines = arrays.pop(LINES, None)  # states of older versions have none
        for key, array in arrays.items():
            number, _, name = key.partition("/")
            by_number.setdefault(number, {})[name] = array
        for state in by_number.values():
            if "name" not in state:
                raise UnseenError(f"{path} is not the state of `unseen monitor --stdin`")
            monitor = self.make()
            monitor.load_state(state, str(path))
            self.monitors[str(state["name"])] = monitor
        if lines is not None:
            try:
                self._load_lines(json.loads(str(lines)))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UnseenError(
                    f"{path} is damaged ({type(error).__name__}: {error}): move it away to begin "
                    "again"
                ) from error

    def _load_lines(self, about: dict[str, Any]) -> None:
        """Read the samples again that were waiting for their batch to be full."""
        self.read = int(about["read"])
        for samples in about["waiting"].values():
            for number, text in samples:
                try:
                    self._take(text.encode(), int(number))
                except UnseenError as error:
                    self._lost.append({"error": str(error), "line": number})


def _parse(text: str) -> tuple[Any, str]:
    """Return what the reader takes, and the domain."""
    if not text.startswith("{"):
        return text, STREAM
    value = parse_json(text, "the line")
    names = [str(value.pop(name)) for name in ("domain", "client") if value.get(name) is not None]
    if len(names) > 1:
        raise UnseenError("the line has both a domain and a client: keep one of them")
    return value, names[0] if names else STREAM


def json_line(record: dict[str, Any]) -> str:
    """Return a record as one line of strict JSON."""
    return json.dumps(record, allow_nan=False)
