"""Write rows of predictions as CSV, JSON lines or Parquet; the file appears when it is complete."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.files import temporary_beside

Columns = Mapping[str, Sequence[Any]]  # by name, all of one length
Write = Callable[[Columns], None]
ENDINGS = (".csv", ".jsonl", ".parquet")


def check_ending(out: Path) -> None:
    """Raise unless the ending of the file's name says its format, and it can be written."""
    if out.suffix.lower() not in ENDINGS:
        raise UnseenError(f"{out} must end in {', '.join(ENDINGS)}")
    if out.is_dir():
        raise UnseenError(f"{out} is a folder: --out takes a file")
    if out.suffix.lower() == ".parquet":
        _import_parquet()


@contextmanager
def table_file(out: Path) -> Iterator[Write]:
    """Yield a function that appends columns to the file."""
    writers = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}
    temporary = temporary_beside(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with writers[out.suffix.lower()](temporary) as write:
            yield write
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, out)
    except OSError as error:
        raise UnseenError(
            f"cannot write {out}: {error.strerror or error}; free space there or choose another "
            "folder"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


class _Lines(io.StringIO):
    """Lines that csv ends with \\r\\n, so that it quotes both characters; they end with \\n."""

    def write(self, line: str) -> int:
        return super().write(f"{line[:-2]}\n")


@contextmanager
def _csv(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8", newline="") as file:
        begun = False

        def write(columns: Columns) -> None:
            nonlocal begun
            text = _Lines()
            writer = csv.writer(text)
            if not begun:
                writer.writerow(columns)
                begun = True
            writer.writerows(zip(*(map(_cell, v) for v in columns.values()), strict=True))
            file.write(text.getvalue())

        yield write


@contextmanager
def _json_lines(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:

        def write(columns: Columns) -> None:
            for row in zip(*columns.values(), strict=True):
                values = dict(zip(columns, map(_short, row), strict=True))
                file.write(json.dumps(values, allow_nan=False) + "\n")

        yield write


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    pyarrow = _import_parquet()
    writer: Any = None

    def write(columns: Columns) -> None:
        nonlocal writer
        table = pyarrow.table({name: pyarrow.array(v) for name, v in columns.items()})
        if writer is None:
            writer = pyarrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _import_parquet() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UnseenError(
            "writing Parquet needs pyarrow: pip install 'unseen[parquet]', or write .csv or .jsonl"
        ) from None
    return pyarrow


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _short(value: Any) -> Any:
    """Return a number with six digits, as JSON has it."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
