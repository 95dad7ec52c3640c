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


@dataclass
class _Waiting:
    """Samples of a domain that are not yet a batch."""

    rows: list[Array] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


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
        if state is not None and state.exists():
            self._load(state)

    def run(self, lines: Iterable[bytes], first: int = 1) -> Iterator[dict[str, Any]]:
        """Yield one record for each batch, and one for each line that cannot be read.

        A batch is yielded when the file of the state holds it.
        """
        for number, line in enumerate(lines, first):
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
        return {"domain": domain, "lines": lines, **asdict(reading), "alarm": reading.alarm}

    def _save(self, path: Path) -> None:
        arrays: dict[str, Array] = {}
        for number, (name, monitor) in enumerate(self.monitors.items()):
            state = {**monitor.state(), "name": np.array(name)}
            arrays |= {f"{number}/{key}": array for key, array in state.items()}
        write_atomically(path, npz_bytes(arrays))

    def _load(self, path: Path) -> None:
        by_number: dict[str, dict[str, Array]] = {}
        for key, array in read_npz(path).items():
            number, _, name = key.partition("/")
            by_number.setdefault(number, {})[name] = array
        for arrays in by_number.values():
            if "name" not in arrays:
                raise UnseenError(f"{path} is not the state of `unseen monitor --stdin`")
            monitor = self.make()
            monitor.load_state(arrays, str(path))
            self.monitors[str(arrays["name"])] = monitor


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
