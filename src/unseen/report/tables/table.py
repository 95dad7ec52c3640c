"""A table once, for the page, for Markdown and for CSV."""

from __future__ import annotations

import csv
import io
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from unseen.report.paper import Reported
from unseen.report.tables import markdown


@dataclass(frozen=True)
class Figure:
    """A mean in percent, how far seeds scatter (nan of one seed), and what the paper reports."""

    mean: float
    std: float = math.nan
    paper: Reported | None = None
    best: bool = False  # the best of its column

    @classmethod
    def of(cls, shares: Sequence[float], paper: Reported | None = None) -> Figure:
        """From shares in 0..1, one for each seed."""
        values = [100 * v for v in shares]
        mean = math.fsum(values) / len(values)
        spread = (
            math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
            if len(values) > 1
            else math.nan
        )
        return cls(mean, spread, paper)

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if math.isnan(self.std) else f"{self.mean:.1f} ± {self.std:.1f}"

    @property
    def against(self) -> str:
        """The paper's figure and how far ours is from it."""
        return (
            ""
            if self.paper is None
            else f"{self.paper.value:.1f} ({self.mean - self.paper.value:+.1f})"
        )


Cell = str | int | Figure
NUMBER = re.compile(r"[-+]?[\d.,]+( %)?|-")
PARTS = ("", "std", "paper", "minus paper")  # columns that a figure becomes in CSV


@dataclass(frozen=True)
class Table:
    """Rows under a header, with a title and what a reader must know."""

    title: str
    header: list[str]
    rows: list[list[Cell]]
    caption: str = ""
    task: str = ""

    @property
    def slug(self) -> str:
        return slug(f"{self.task} {self.title}")

    def words(self, column: int) -> bool:
        """Does the column hold words rather than numbers?"""
        cells = [row[column] for row in self.rows]
        return any(isinstance(cell, str) and not NUMBER.fullmatch(cell) for cell in cells)

    def markdown(self) -> str:
        def text(cell: Cell) -> str:
            plain = str(cell) + (
                f" [{cell.against}]" if isinstance(cell, Figure) and cell.paper else ""
            )
            return plain.replace("|", "\\|")

        rows = markdown(self.header, [[text(cell) for cell in row] for row in self.rows])
        return "\n\n".join(
            part
            for part in (
                f"## {self.task}: {self.title}".replace("## : ", "## "),
                rows,
                self.caption,
            )
            if part
        )

    def csv(self) -> str:
        """One number a cell: a figure is spread over columns, as many as any row of its column needs."""
        used: list[list[int]] = []
        for cells in zip(*self.rows, strict=True) if self.rows else [()] * len(self.header):
            parts = [_parts(cell) for cell in cells]
            used.append(
                [
                    i
                    for i in range(len(PARTS))
                    if i == 0 or any(len(p) > i and p[i] != "" for p in parts)
                ]
            )
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            [
                f"{name} {PARTS[i]}".strip()
                for name, kept in zip(self.header, used, strict=True)
                for i in kept
            ]
        )
        for row in self.rows:
            spread = [(_parts(cell), kept) for cell, kept in zip(row, used, strict=True)]
            writer.writerow(
                [parts[i] if i < len(parts) else "" for parts, kept in spread for i in kept]
            )
        return out.getvalue()


def _parts(cell: Cell) -> list[str]:
    if not isinstance(cell, Figure):
        return [str(cell)]
    paper = (
        []
        if cell.paper is None
        else [f"{cell.paper.value:.2f}", f"{cell.mean - cell.paper.value:.2f}"]
    )
    return [f"{cell.mean:.4f}", "" if math.isnan(cell.std) else f"{cell.std:.4f}", *paper]


def slug(text: str) -> str:
    """A name for files and anchors; letters beyond a to z, which it cannot keep, still tell names apart."""
    plain = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
    lost = any(letter.isalnum() and not letter.isascii() for letter in text)
    return f"{plain}-{zlib.crc32(text.encode(errors='replace')):08x}".strip("-") if lost else plain
