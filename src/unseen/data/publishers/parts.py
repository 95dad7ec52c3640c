"""What a published data set is made of."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class PublishedFile:
    """One download: its path below the data set's folder, its addresses in order of trust, its checksum and size in bytes."""

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Part:
    """A published split of one domain. `needed` says that the task does not run without it."""

    domain: str
    split: str
    samples: int
    needed: bool
    page: str
    licence: str
    files: tuple[PublishedFile, ...] = ()
    by_hand: str = ""  # how to get it, where no program can; {folder} is the data set's

    @property
    def title(self) -> str:
        return f"{self.domain} {self.split}"


@dataclass(frozen=True)
class DataSet:
    """What a task reads: its parts, and a reader that gives a part's number of samples or says what is wrong."""

    name: str
    summary: str
    parts: tuple[Part, ...]
    main_file: Callable[[Part], str]
    count: Callable[[Part, Path], int]
    read_by: tuple[str, ...] = ()  # tasks of another name
    # Each a set of parts, as patterns of "domain split", that some variant can do with; else what is `needed`.
    ways: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def enough_for(self, there: Collection[str]) -> list[str]:
        """The ways whose parts are all there."""
        needed = tuple(part.title for part in self.parts if part.needed)
        return [
            way
            for way, patterns in (self.ways or {self.name: needed}).items()
            if {
                part.title
                for part in self.parts
                if any(fnmatchcase(part.title, p) for p in patterns)
            }
            <= set(there)
        ]
