"""Problems of a data set, collected so that they are reported together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unseen.errors import UnseenError

SHOWN = 20  # examples of each kind


def problem_lines(kind: str, count: int, examples: Sequence[str]) -> list[str]:
    """Return one kind of problem as lines of text."""
    more = [f"and {count - len(examples)} more"] if count > len(examples) else []
    return [f"{kind}: {count}", *(f"  {line}" for line in [*examples, *more])]


class DataProblems(UnseenError):
    """The data cannot be used as they are; the message lists everything that is wrong."""


class Problems:
    """Everything that is wrong with a data set, by kind, with the first examples of each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: dict[str, int] = {}
        self.examples: dict[str, list[str]] = {}

    def add(self, kind: str, example: str) -> None:
        """Add a problem; `kind` is a heading such as "missing files"."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        shown = self.examples.setdefault(kind, [])
        if len(shown) < SHOWN:
            shown.append(example)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def lines(self) -> list[str]:
        """Return the problems as lines of text."""
        lines = []
        for kind, count in self.counts.items():
            lines += problem_lines(kind, count, self.examples[kind])
        return lines

    def to_json(self) -> dict[str, dict[str, object]]:
        """Return count and examples of each kind."""
        return {k: {"count": n, "examples": self.examples[k]} for k, n in self.counts.items()}

    def check(self) -> None:
        """Raise one error that lists everything, if there is anything."""
        if self:
            text = "\n".join(self.lines())
            raise DataProblems(f"{self.path} cannot be used, nothing was written:\n{text}")
