"""Description of published data sets."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class PublishedFile:
    """A file to download: path in the data set's folder, addresses by preference, size in bytes."""

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Part:
    """A published split of one domain; `needed` if the task does not run without it."""

    domain: str
    split: str
    samples: int
    needed: bool
    page: str
    licence: str
    files: tuple[PublishedFile, ...] = ()
    by_hand: str = ""  # instructions if it cannot be downloaded; {folder} is the data set's

    @property
    def title(self) -> str:
        return f"{self.domain} {self.split}"


@dataclass(frozen=True)
class DataSet:
    """A data set: its parts, and `count`, which reads a part and returns its number of samples."""

    name: str
    summary: str
    parts: tuple[Part, ...]
    main_file: Callable[[Part], str]
    count: Callable[[Part, Path], int]
    read_by: tuple[str, ...] = ()  # tasks with another name than the data set
    # Parts that each variant needs, as patterns of "domain split"; default: all `needed` parts.
    variants: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def usable_variants(self, available: Collection[str]) -> list[str]:
        """Return the variants whose parts, given by title, are all available."""
        needed = tuple(part.title for part in self.parts if part.needed)
        return [
            variant
            for variant, patterns in (self.variants or {self.name: needed}).items()
            if self._matching(patterns) <= set(available)
        ]

    def _matching(self, patterns: Collection[str]) -> set[str]:
        titles = (part.title for part in self.parts)
        return {title for title in titles if any(fnmatchcase(title, p) for p in patterns)}
