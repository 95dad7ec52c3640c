"""How to read a user's data: the options of --data, recorded in a run."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unseen.checks import check_choice, check_int, check_positive
from unseen.data.own_files.labels import KINDS, SEPARATOR, check_separator
from unseen.errors import UnseenError

LARGEST_SIDE = 10_000  # pixels


@dataclass(frozen=True)
class DataOptions:
    """Options of a manifest or folder.

    Args:
        path: manifest or folder.
        source: the domain to train on; by default the only one, or the one with a training split.
        resize: side of square images, "64", or "48x64" for height and width.
        labels: classes, several, number or map; by default what the labels look like.
        separator: between several labels of a sample.
        seconds: length of sounds; by default that of the longest, up to 10.
        split_seed: seed of the splits where the data have none.
        allow_duplicates: accept equal samples in training and test.
    """

    path: str
    source: str | None = None
    resize: str | None = None
    labels: str | None = None
    separator: str = SEPARATOR
    seconds: float | None = None
    split_seed: int = 0
    allow_duplicates: bool = False

    def __post_init__(self) -> None:
        check_separator(self.separator)
        if self.labels is not None:
            check_choice("--labels", self.labels, KINDS)
        if self.seconds is not None:
            check_positive("--seconds", self.seconds)
        check_int("--split-seed", self.split_seed, 0)
        self.size()  # checks it

    def size(self) -> tuple[int, int] | None:
        """Return height and width of --resize."""
        if self.resize is None:
            return None
        found = re.fullmatch(r"(\d{1,6})(?:x(\d{1,6}))?", self.resize)
        sides = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not all(1 <= side <= LARGEST_SIDE for side in sides):
            raise UnseenError(
                f"--resize must be a side in pixels, 64, or height and width, 48x64; not "
                f"{self.resize}"
            )
        return sides

    def to_json(self) -> dict[str, Any]:
        """Return the options that are not the default, with an absolute path."""
        default = DataOptions(self.path)
        given = {n: v for n, v in asdict(self).items() if v != getattr(default, n)}
        return {"path": str(Path(self.path).absolute()), **given}
