"""Read JSON and TOML that may be damaged or hostile: every problem is one UnseenError.

Limits on the size of a file, the depth of its values and the size of its numbers keep what follows
from running out of memory, stack or digits. Nothing but a regular file is opened: a pipe would wait
for ever and a device may have no end.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from unseen.errors import UnseenError

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[import-not-found, no-redef, unused-ignore]

MB = 2**20
LARGEST_JSON = 32 * MB  # the largest published file has 0.7 MB
LARGEST_TOML = MB // 4
LARGEST_LINE = MB  # of a file that is read line by line, which may have any size
DEEPEST = 50  # lists and tables within each other
MOST_DOTS = 200  # in a line of TOML: the time to read a dotted key grows with its square


class MissingFile(UnseenError):
    """The file to read does not exist."""


class NotJson(UnseenError):
    """The text is not JSON at all."""


class BlankLine(NotJson):
    """The line is empty."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON object."""
    try:
        value = read_json_value(path)
    except MissingFile:
        raise MissingFile(f"{path} does not exist: is {path.parent} a run folder?") from None
    except UnseenError:
        if path.parent.is_file():
            raise UnseenError(
                f"{path.parent} is a file: give the folder of a run, or a model exported as .onnx"
            ) from None
        raise
    if not isinstance(value, dict):
        raise UnseenError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value


def read_json_value(path: Path) -> Any:
    """Read a file that holds any JSON value."""
    return parse_json(read_text(path, LARGEST_JSON), f"{path} cannot be read")


def read_json_lines(path: Path) -> Iterator[tuple[Any, bool]]:
    """Yield the JSON value of each line, and whether the line is complete.

    A line that is not valid has the UnseenError that says why as its value.
    """
    with open_file(path) as file:
        number = 0
        while line := file.readline(LARGEST_LINE + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > LARGEST_LINE:
                raise UnseenError(f"{where} is longer than {LARGEST_LINE} bytes")
            value: Any
            try:
                text = _decode(line, where)
                value = parse_json(text, where) if text.strip() else BlankLine(f"{where} is empty")
            except UnseenError as error:
                value = error
            yield value, line.endswith(b"\n")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    text = read_text(path, LARGEST_TOML)
    where = f"{path} is not valid TOML"
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
        raise UnseenError(f"{where}: a line has more than {MOST_DOTS} dots")
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise UnseenError(f"{where}: {_TOO_DEEP}") from None
    except ValueError as error:
        raise UnseenError(f"{where}: {error}") from error
    check_values(content, where)
    return content


def parse_json(text: str, where: str) -> Any:
    """Parse JSON text; `where` begins the error message."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_parse_int)
    except RecursionError:
        raise UnseenError(f"{where}: {_TOO_DEEP}") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{where}: {error}") from error
    except ValueError as error:
        raise UnseenError(f"{where}: {error}") from error
    check_values(value, where)
    return value


def _parse_int(digits: str) -> int:
    if len(digits) > 400:  # int() refuses too many, with advice for programmers
        raise ValueError(f"it has an integer of {len(digits)} digits, beyond 64 bits")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f'the key "{twice}" occurs twice')
    return table


_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_TOO_DEEP = f"lists and tables are nested more than {DEEPEST} deep"


def check_values(value: Any, where: str) -> None:
    """Refuse what JSON and TOML can say but no field means: depth, huge integers, bad text."""
    stack = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > DEEPEST:
            raise UnseenError(f"{where}: {_TOO_DEEP}")
        if isinstance(item, dict):
            stack += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            stack += [(part, depth + 1) for part in item]
        elif isinstance(item, int) and not -(2**63) <= item < 2**63:
            raise UnseenError(f"{where}: it has an integer of {item.bit_length()} bits, beyond 64")
        elif isinstance(item, str) and _NO_TEXT.search(item):
            raise UnseenError(f"{where}: a string has a null character or half a surrogate pair")


def read_text(path: Path, limit: int) -> str:
    """Read a text file of UTF-8, with or without a byte order mark."""
    return _decode(read_bytes(path, limit), f"{path} cannot be read")


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnseenError(
            f"{where}: byte {error.start} is not UTF-8 text; save it as UTF-8"
        ) from error


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Read a regular file of at most `limit` bytes."""
    with open_file(path, limit) as file:
        return file.read()


def read_safetensors(path: Path) -> bytes:
    """Read a file of tensors whose header fits its size, before memory is taken for all of it."""
    where = f"{path} is not a complete safetensors file"
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_JSON):
            raise UnseenError(f"{where}: its {size} bytes are too few for its header")
        header = parse_json(_decode(file.read(length), where), where)
        try:
            ends = [t["data_offsets"][1] for n, t in header.items() if n != "__metadata__"]
            end = 8 + length + max(ends, default=0)
        except (AttributeError, LookupError, TypeError):
            raise UnseenError(f"{where}: its header does not list tensors") from None
        if end != size:
            raise UnseenError(f"{where}: its header states {end} bytes, it has {size}")
        file.seek(0)
        return file.read()


@contextmanager
def open_file(path: Path, limit: int | None = None) -> Iterator[BinaryIO]:
    """Open a regular file of at most `limit` bytes; a problem is an UnseenError with its name."""
    try:
        # A pipe without a writer must not block.
        flag = getattr(os, "O_NONBLOCK", 0)
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | flag)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnseenError(f"{path} cannot be read: it is a pipe or device, not a file")
            if limit is not None and status.st_size > limit:
                raise UnseenError(
                    f"{path} cannot be read: it has {status.st_size} bytes, at most {limit} "
                    "are expected"
                )
            yield file
    except FileNotFoundError:
        raise MissingFile(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error
        raise UnseenError(f"{path} cannot be read: {reason}") from error
