"""A table that can be written as HTML, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from unseen.report.paper import PaperValue
from unseen.report.tables.text import markdown


@dataclass(frozen=True)
class Measurement:
    """A mean in percent, its std over seeds (nan for one seed), and the paper's value.

    An error, such as the mean absolute one, is in its own unit.
    """

    mean: float
    std: float = math.nan
    paper: PaperValue | None = None
    best: bool = False  # best of its column
    digits: str = ".1f"

    @classmethod
    def of(
        cls, fractions: Sequence[float], paper: PaperValue | None = None, scale: float = 100.0
    ) -> Measurement:
        """Summarize fractions in 0..1, or errors with scale 1, one for each seed."""
        values, digits = [scale * v for v in fractions], ".1f" if scale == 100 else ".3g"
        mean = math.fsum(values) / len(values)
        if len(values) < 2:
            return cls(mean, math.nan, paper, digits=digits)
        variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
        return cls(mean, math.sqrt(variance), paper, digits=digits)

    def __str__(self) -> str:
        mean, std = f"{self.mean:{self.digits}}", f"{self.std:{self.digits}}"
        return mean if math.isnan(self.std) else f"{mean} ± {std}"

    @property
    def against_paper(self) -> str:
        """The paper's value, and ours minus that in brackets."""
        if self.paper is None:
            return ""
        return f"{self.paper.value:.1f} ({self.mean - self.paper.value:+.1f})"


Cell = str | int | Measurement
NUMBER = re.compile(r"[-+]?[\d.,]+( %)?|-")
CSV_FIELDS = ("", "std", "paper", "minus paper")  # CSV columns of a measurement


@dataclass(frozen=True)
class Table:
    """Rows under a header, with a title and a caption."""

    title: str
    header: list[str]
    rows: list[list[Cell]]
    caption: str = ""
    task: str = ""
    details: list[str] = field(default_factory=list)  # columns that the page does not show

    @property
    def slug(self) -> str:
        return slug(f"{self.task} {self.title}")

    @property
    def shown_columns(self) -> list[int]:
        """Indices of the columns that the page shows."""
        return [i for i, name in enumerate(self.header) if name not in self.details]

    def is_text(self, column: int) -> bool:
        """Return whether a column has text rather than numbers."""
        cells = [row[column] for row in self.rows]
        return any(isinstance(cell, str) and not NUMBER.fullmatch(cell) for cell in cells)

    def markdown(self) -> str:
        def text(cell: Cell) -> str:
            paper = isinstance(cell, Measurement) and cell.against_paper
            return (f"{cell} [{paper}]" if paper else str(cell)).replace("|", "\\|")

        title = f"## {self.task}: {self.title}" if self.task else f"## {self.title}"
        rows = markdown(self.header, [[text(cell) for cell in row] for row in self.rows])
        return "\n\n".join(part for part in (title, rows, self.caption) if part)

    def csv(self) -> str:
        """Return CSV with one number per cell; a measurement takes as many columns as it needs."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.header)
        fields = []
        for cells in columns:
            parts = [_csv_fields(cell) for cell in cells]
            used = (i for i in range(1, len(CSV_FIELDS)) if any(p[i : i + 1] > [""] for p in parts))
            fields.append([0, *used])
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            f"{name} {CSV_FIELDS[i]}".strip()
            for name, used in zip(self.header, fields, strict=True)
            for i in used
        )
        for row in self.rows:
            pairs = [(_csv_fields(cell), used) for cell, used in zip(row, fields, strict=True)]
            writer.writerow("".join(parts[i : i + 1]) for parts, used in pairs for i in used)
        return out.getvalue()


def _csv_fields(cell: Cell) -> list[str]:
    if not isinstance(cell, Measurement):
        return [str(cell)]
    paper: list[str] = []
    if cell.paper is not None:
        paper = [f"{cell.paper.value:.2f}", f"{cell.mean - cell.paper.value:.2f}"]
    return [f"{cell.mean:.4f}", "" if math.isnan(cell.std) else f"{cell.std:.4f}", *paper]


def slug(text: str) -> str:
    """Return a name for files and anchors; names that differ in other letters stay distinct."""
    ascii_name = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
    if not any(letter.isalnum() and not letter.isascii() for letter in text):
        return ascii_name
    return f"{ascii_name}-{zlib.crc32(text.encode(errors='replace')):08x}".strip("-")
