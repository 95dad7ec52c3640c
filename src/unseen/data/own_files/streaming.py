"""Read the rows of a manifest or folder one after the other, in constant memory. No torch.

For prediction: labels and splits need not fit together, and files are opened when their turn comes.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from unseen.data.own_files.folder import folder_rows
from unseen.data.own_files.manifest import (
    Line,
    Manifest,
    csv_lines,
    make_layout,
    make_row,
    parquet_lines,
    read_manifest,
)
from unseen.data.own_files.modality import modality_of
from unseen.data.own_files.problems import Problems
from unseen.errors import UnseenError
from unseen.reading import BlankLine, open_file, read_json_lines


def as_utf8(name: str) -> str:
    """Return a name with the bytes that are not UTF-8 as \\udc80 to \\udcff."""
    return name.encode(errors="backslashreplace").decode()


class Item(NamedTuple):
    """A sample of a manifest or folder."""

    name: str  # its file, or its number among the rows
    content: Any  # a path, a text or the numbers of a row
    domain: str
    label: str  # empty: none
    where: str  # its line, for errors


class Scan(NamedTuple):
    """How many samples there are, and a digest of their names, texts and numbers."""

    total: int
    digest: str


class FileStream:
    """The samples of a manifest or folder; iterate it as often as needed.

    Args:
        modality: of the data that the model was trained on.
        columns: feature columns of a table.
    """

    def __init__(self, path: Path, modality: str, columns: tuple[str, ...] = ()) -> None:
        self.path, self.modality, self.columns = path, modality, columns
        if not path.exists():
            raise UnseenError(f"{path} does not exist: --data takes a manifest or a folder")

    def __iter__(self) -> Iterator[Item]:
        return self._items(check_files=False)

    def _items(self, check_files: bool) -> Iterator[Item]:
        items = self._folder_items() if self.path.is_dir() else self._manifest_items(check_files)
        for item in items:
            # Names of files and folders need not be UTF-8; all that is written is.
            name, domain, label = map(as_utf8, (item.name, item.domain, item.label))
            yield item._replace(name=name, domain=domain, label=label)

    def scan(self) -> Scan:
        """Read all rows once; everything that is wrong with them is one error.

        Files are looked for, not opened.
        """
        digest, total = hashlib.sha256(), 0
        for item in self._items(check_files=True):
            total += 1
            digest.update(f"{item.name}\0{item.domain}\0{item.label}\n".encode())
            if not isinstance(item.content, Path):
                digest.update(repr(item.content).encode())
        if not total:
            raise UnseenError(f"{self.path} holds no samples of kind {self.modality}")
        return Scan(total, digest.hexdigest())

    def _folder_items(self) -> Iterator[Item]:
        if self.modality == "table":
            raise UnseenError(f"{self.path} is a folder; the run was trained on rows of a table")
        made = Manifest(self.path, "path", [], Problems(self.path))
        for row in folder_rows(self.path, made):
            if modality_of(row.content) == self.modality:
                file = made.file(row)
                yield Item(str(file), file, row.domain or made.name, row.label, row.where)
            made.ignored.clear()  # of a large folder they would take memory

    def _manifest_items(self, check_files: bool) -> Iterator[Item]:
        columns, lines = self._open()
        made = make_layout(self.path, columns, self.columns)
        kind = {"features": "table", "text": "text"}.get(made.kind, self.modality)
        if kind != self.modality or (made.kind == "path" and self.modality == "table"):
            raise UnseenError(
                f"{self.path} has columns of {made.kind}, the run was trained on {self.modality}"
            )
        for number, (where, values) in enumerate(lines):
            row = make_row(made, where, values)
            if row is None:
                continue
            domain = row.domain or made.name
            if made.kind != "path":
                yield Item(str(number), row.content, domain, row.label, where)
                continue
            file = made.file(row)
            if modality_of(row.content) != self.modality:
                made.problems.add(f"files that are no {self.modality}", f"{where}: {row.content}")
            elif check_files and not file.exists():
                made.problems.add("missing files", f"{where}: {file} does not exist")
            else:
                yield Item(str(file), file, domain, row.label, where)
        made.problems.check()

    def _open(self) -> tuple[list[str], Iterator[Line]]:
        ending = self.path.suffix.lower()
        if ending == ".parquet":
            return parquet_lines(self.path)
        if ending in (".csv", ".tsv"):
            lines = self._csv()
        elif ending in (".jsonl", ".ndjson"):
            lines = self._json_lines()
        else:
            read_manifest(self.path)  # raises: no such format
            raise AssertionError
        columns = [*next(lines)[1]]
        return columns, lines

    def _csv(self) -> Iterator[Line]:
        """Yield the columns, then the lines."""
        with open_file(self.path) as binary:
            header = binary.readline(2**20).decode("utf-8-sig", "replace")
            binary.seek(0)
            try:
                file = io.TextIOWrapper(binary, "utf-8-sig", newline="")
                columns, lines = csv_lines(self.path, file, header)
                yield "", dict.fromkeys(columns)
                yield from lines
            except UnicodeDecodeError as error:
                raise UnseenError(
                    f"{self.path} cannot be read: byte {error.start} is not UTF-8 text; save it as "
                    "UTF-8"
                ) from None

    def _json_lines(self) -> Iterator[Line]:
        """Yield the columns of the first line, then the lines."""
        values = self._objects()
        first = next(values, None)
        if first is None:
            raise UnseenError(f"{self.path} has no rows")
        yield "", first[1]
        yield from itertools.chain([first], values)

    def _objects(self) -> Iterator[Line]:
        for number, (value, _) in enumerate(read_json_lines(self.path), start=1):
            if isinstance(value, BlankLine):
                continue
            if isinstance(value, UnseenError):
                raise value
            if not isinstance(value, dict):
                raise UnseenError(
                    f"{self.path}, line {number}: expected an object of columns and values"
                )
            yield f"line {number}", value
