"""Read a manifest, CSV, JSON lines or Parquet, into rows."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TextIO

from unseen.data.own_files.problems import Problems
from unseen.errors import UnseenError
from unseen.reading import BlankLine, read_json_lines, read_text

Kind = Literal["path", "text", "features"]
Line = tuple[str, dict[str, Any]]  # where it is, its values by column

ROLES = ("path", "text", "label", "domain", "split", "group")
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval"), "test"),
}
LARGEST = 2**30  # bytes of a manifest
NOT_NUMBERS = "features that are not finite numbers (remove columns that are no features)"
PARQUET_ROWS = 4096  # that are read at a time
UNLABELLED = "unlabelled"  # domain of rows that have neither a label nor a domain


@dataclass(slots=True)
class Row:
    """A sample: its file, text or features, and what the manifest says of it."""

    where: str  # "line 3", or the path below the folder
    content: Any  # path as written, text, or a tuple of numbers
    label: str = ""  # empty: none
    domain: str = ""
    split: str = ""  # train, val, test, or empty
    group: str = ""


@dataclass
class Manifest:
    """The rows of a manifest or folder, with the problems that reading them found."""

    path: Path
    kind: Kind
    rows: list[Row]
    problems: Problems
    features: tuple[str, ...] = ()  # names of the feature columns
    empty_classes: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)  # files or columns that are not read
    roles: dict[str, str] = field(default_factory=dict)  # columns in other letters: Path is path

    @cached_property
    def name(self) -> str:
        """The name of the file without its ending, or of the folder."""
        resolved = self.path.resolve()
        return resolved.name if resolved.is_dir() else resolved.stem

    @cached_property
    def base(self) -> Path:
        """The folder at which relative paths start."""
        return self.path if self.path.is_dir() else self.path.parent

    def file(self, row: Row) -> Path:
        """Return the path of a row's file."""
        return self.base / row.content

    def label_file(self, label: str) -> Path:
        """Return the path of a label map."""
        return self.base / label


def read_manifest(path: Path, features: tuple[str, ...] = ()) -> Manifest:
    """Read a manifest; the ending of its name says the format.

    Args:
        features: the feature columns of a run; by default all columns that have no other meaning.
    """
    readers = {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".jsonl": _read_json_lines,
        ".ndjson": _read_json_lines,
        ".parquet": _read_parquet,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UnseenError(
            f"{path}: --data takes a folder, or a manifest {', '.join(readers)}; "
            f'not "{path.suffix or path.name}"'
        )
    columns, lines = reader(path)
    return _make(path, columns, lines, features)


def _read_csv(path: Path) -> tuple[list[str], Iterator[Line]]:
    text = read_text(path, LARGEST)
    return csv_lines(path, io.StringIO(text, newline=""), text.partition("\n")[0])


def csv_lines(path: Path, file: TextIO, header: str) -> tuple[list[str], Iterator[Line]]:
    """Return columns and lines of CSV; `header` is its first line, which says the delimiter."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=header.count)
    reader = csv.DictReader(file, delimiter=delimiter, strict=True)
    try:
        columns = [(name or "").strip() for name in reader.fieldnames or ()]
    except csv.Error as error:
        raise UnseenError(f"{path} cannot be read as CSV: line 1: {error}") from None
    reader.fieldnames = columns

    def lines() -> Iterator[Line]:
        while True:
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise UnseenError(
                    f"{path} cannot be read as CSV: line {reader.line_num}: {error}"
                ) from None
            yield f"line {reader.line_num}", values

    return columns, lines()


def _read_json_lines(path: Path) -> tuple[list[str], Iterator[Line]]:
    found: list[Line] = []
    columns: dict[str, None] = {}
    for number, (value, _) in enumerate(read_json_lines(path), start=1):
        if isinstance(value, BlankLine):
            continue
        if isinstance(value, UnseenError):
            raise value
        if not isinstance(value, dict):
            raise UnseenError(f"{path}, line {number}: expected an object of columns and values")
        columns |= dict.fromkeys(value)
        found.append((f"line {number}", value))
    return list(columns), iter(found)


def _read_parquet(path: Path) -> tuple[list[str], Iterator[Line]]:
    columns, lines = parquet_lines(path)
    return columns, iter([*lines])


def parquet_lines(path: Path) -> tuple[list[str], Iterator[Line]]:
    """Return columns and lines of Parquet, which are read a few thousand at a time."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UnseenError(
            "reading Parquet needs pyarrow: pip install 'unseen[parquet]', or save as CSV"
        ) from None
    wrong = (pyarrow.ArrowException, OSError, ValueError)
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except wrong as error:
        raise UnseenError(f"{path} cannot be read as Parquet: {error}") from None

    def lines() -> Iterator[Line]:
        number = 0
        try:
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
        except wrong as error:
            raise UnseenError(f"{path} cannot be read as Parquet: {error}") from None

    return file.schema_arrow.names, lines()


def _make(
    path: Path, columns: list[str], lines: Iterator[Line], wanted: tuple[str, ...]
) -> Manifest:
    made = make_layout(path, columns, wanted)
    for where, values in lines:
        if (row := make_row(made, where, values)) is not None:
            made.rows.append(row)
    if not made.rows and not made.problems:
        raise UnseenError(f"{path} has no rows")
    return made


def make_layout(path: Path, columns: list[str], wanted: tuple[str, ...]) -> Manifest:
    """Return a manifest without rows: what its columns mean."""
    roles = {name: name.lower() for name in columns if name != name.lower() in ROLES}
    columns = [roles.get(name, name) for name in columns]
    if twice := {name for name in columns if columns.count(name) > 1}:
        raise UnseenError(f'{path}: two columns are called "{sorted(twice)[0]}"')
    if "path" in columns and "text" in columns:
        raise UnseenError(f"{path} has both a path and a text column: keep one of them")
    kind: Kind = "path" if "path" in columns else "text" if "text" in columns else "features"
    others = [name for name in columns if name not in ROLES and name]
    features = (wanted or tuple(others)) if kind == "features" else ()
    if missing := [name for name in features if name not in columns]:
        raise UnseenError(f"{path} lacks feature columns of the run: {', '.join(missing)}")
    if kind == "features" and not features:
        raise UnseenError(
            f"{path} needs a column path, text or columns of numbers, and label; it has: "
            f"{', '.join(columns) or 'none'}"
        )
    made = Manifest(path, kind, [], Problems(path), features, roles=roles)
    made.ignored = [name for name in others if name not in features]
    return made


def make_row(made: Manifest, where: str, values: dict[str, Any]) -> Row | None:
    """Return the row of a line; what is wrong with it is added to the manifest's problems."""
    needs_all = made.path.suffix.lower() in (".csv", ".tsv")
    if None in values or (needs_all and None in values.values()):
        made.problems.add("lines with another number of columns", where)
        return None
    if made.roles:  # Path and LABEL are meant as path and label
        values = {made.roles.get(name, name): value for name, value in values.items()}
    split = as_text(values.get("split")).lower()
    if split and split not in SPLITS:
        made.problems.add("unknown splits", f'{where}: "{split}" is not one of train, val and test')
        return None
    content: Any
    if made.kind == "features":
        content = _numbers(made, where, values)
    else:
        content = as_text(values.get(made.kind))
        if not content:
            made.problems.add(f"rows without a {made.kind}", where)
    if not content:
        return None
    label, domain = as_text(values.get("label")), as_text(values.get("domain"))
    return Row(where, content, label, domain, SPLITS.get(split, ""), as_text(values.get("group")))


def _numbers(made: Manifest, where: str, values: dict[str, Any]) -> tuple[float, ...]:
    numbers = []
    for name in made.features:
        try:
            number = float(values.get(name))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            given = as_text(values.get(name)) or "nothing"
            made.problems.add(NOT_NUMBERS, f"{where}, column {name}: {given[:40]}")
            return ()
        numbers.append(number)
    return tuple(numbers)


def as_text(value: Any) -> str:
    """Return a value of a column as text; None and NaN are empty, 3.0 is 3."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | tuple):
        return "|".join(as_text(item) for item in value)
    return str(value).strip()
