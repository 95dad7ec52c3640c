"""Atomic writes of one file or of several together.

A kill or a full disk at any moment leaves the old content or the new one. Every write of a run, a
saved method, a report or a table ends in a function of `os` that is called here, and only here:
tests/test_faults.py makes each of them fail. Other modules import from `unseen.files`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from unseen.errors import UnseenError
from unseen.reading import read_json

T = TypeVar("T")

# .NAME.PROCESS-TOKEN.tmp is a file that is being written, or that a kill has left.
TEMPORARY = re.compile(r"\.(.+)\.(\d{1,9})-[0-9a-f]{8}\.tmp")
JOURNAL = ".replacing-*.json"


# ---- one file


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see either the old content or the new, never a part."""
    with _named_errors(path):
        temporary = _write_temporary(path, content)
        try:
            os.replace(temporary, path)
        except BaseException:
            _discard([temporary])
            raise
    remove_stale(path.parent, path.name)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file. An error leaves the file as it was; a kill may leave a part."""
    with _named_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, content)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- several files


def replace_files(
    folder: Path,
    files: Mapping[str, bytes],
    remove: Iterable[str] = (),
    index: str | None = None,
) -> None:
    """Replace several files of a folder, all of them or none.

    The new files are first written under other names, then listed in a journal, then renamed. If
    the process is killed before the journal is there, the old files are whole. After that, whoever
    reads or writes the folder next renames the rest (`complete_writes`).

    Args:
        files: content by name, relative to the folder.
        remove: files that do not belong to the new ones.
        index: the file of these that people open, such as the page of a report. It is away while
            the others are renamed, so that it never stands beside files of another version.
    """
    complete_writes(folder)
    remove_leftovers(folder)
    is_new = not folder.exists()
    renames: dict[str, str] = {}
    journal = folder / f".replacing-{secrets.token_hex(4)}.json"
    try:
        for name, content in files.items():
            with _named_errors(folder / name):
                temporary = _write_temporary(folder / name, content)
            renames[name] = str(temporary.relative_to(folder))
        plan = {"files": renames, "remove": list(remove), "index": index}
        write_atomically(journal, json.dumps(plan).encode())
    except BaseException:
        _withdraw(folder, journal, renames)
        if is_new:
            _remove_empty(folder, files)
        raise
    _sync(folder)
    try:
        _apply(folder, journal, plan)
    except OSError as error:
        # If nothing has been renamed yet, the old files stay.
        if all((folder / name).exists() for name in renames.values()) and (
            index is None or (folder / index).exists()
        ):
            _discard([journal])
            _withdraw(folder, journal, renames)
        raise _write_error(folder, error) from error


def complete_writes(folder: Path) -> None:
    """Complete a replacement of files that was interrupted; safe beside the process doing it."""
    for journal in folder.glob(JOURNAL):
        try:
            if not journal.exists():  # another process was faster
                continue
            plan = read_json(journal)
            _check_plan(folder, plan)
            _apply(folder, journal, plan)
        except (
            OSError,
            LookupError,
            TypeError,
            AttributeError,
            ValueError,
            UnseenError,
        ) as error:
            if not journal.exists():
                continue
            raise UnseenError(
                f"the last write to {folder} was interrupted and cannot be completed: {error}; "
                "make the folder writable, or write it again elsewhere"
            ) from error


def read_together(folder: Path, key: str, read: Callable[[], T]) -> T:
    """Return what `read` reads from several files of one version.

    `key` is the first name in every `replace_files` of this folder: if it has been replaced in the
    meantime, the files are read again.
    """
    while True:
        complete_writes(folder)
        before = _version(folder / key)
        if any(folder.glob(JOURNAL)):  # a replacement may be between its first and last file
            continue
        result = read()
        if _version(folder / key) == before:
            return result


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that no longer run, in the folder and below."""
    for place in {folder, *(path.parent for path in folder.glob("*/.*.tmp"))}:
        remove_stale(place)


def _apply(folder: Path, journal: Path, plan: Mapping[str, Any]) -> None:
    """Rename and remove as planned; what is done already, here or elsewhere, is skipped."""
    index, renames = plan["index"], plan["files"]
    if index is not None and (folder / renames[index]).exists():
        _unlink(folder / index)
    for name, temporary in renames.items():
        if name != index:
            _rename(folder / temporary, folder / name)
    for name in plan["remove"]:
        if journal.exists():  # else another process has done it, and a new file may be there
            _unlink(folder / name)
    if index is not None:
        _rename(folder / renames[index], folder / index)
    _sync(folder)
    _unlink(journal)


def _withdraw(folder: Path, journal: Path, renames: Mapping[str, str]) -> None:
    """Remove the new files, unless a journal says that they will replace the old ones."""
    if not journal.exists():
        _discard(folder / name for name in renames.values())


def _check_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    """Refuse a journal that names anything outside of the folder: it may be a foreign one."""
    inside = folder.resolve()
    for name in (*plan["files"], *plan["files"].values(), *plan["remove"]):
        if not (folder / name).parent.resolve().is_relative_to(inside) or ".." in Path(name).parts:
            raise ValueError(f"{name} is not in the folder")
    for name, temporary in plan["files"].items():
        if not TEMPORARY.fullmatch(Path(temporary).name):
            raise ValueError(f"{temporary} is not a temporary file")
        if Path(temporary).parent != Path(name).parent:
            raise ValueError(f"{temporary} is not beside {name}")
    if plan["index"] is not None and plan["index"] not in plan["files"]:
        raise ValueError(f"{plan['index']} is not among the files")


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


# ---- temporary files

_BINARY = getattr(os, "O_BINARY", 0)


def temporary_beside(path: Path) -> Path:
    """Return a new name for a file that will be renamed to `path` when it is complete."""
    return path.parent / f".{path.name[:200]}.{os.getpid()}-{secrets.token_hex(4)}.tmp"


def _write_temporary(path: Path, content: bytes) -> Path:
    """Write a complete file beside `path` and return its path; an error leaves nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    # Mode 0o666 lets the kernel apply the umask; tempfile would make the file private.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
    try:
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        _discard([temporary])
        raise
    return temporary


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _rename(path: Path, to: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, to)


def _unlink(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _discard(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def remove_stale(folder: Path, name: str = "") -> None:
    """Remove temporary files, of one name or of all, whose process no longer runs."""
    for path in folder.glob(".*.tmp"):
        match = TEMPORARY.fullmatch(path.name)
        if match and name[:200] in ("", match[1]) and not _is_running(int(match[2])):
            _discard([path])


def _remove_empty(folder: Path, files: Iterable[str]) -> None:
    for path in (*{(folder / name).parent for name in files} - {folder}, folder):
        with contextlib.suppress(OSError):
            path.rmdir()


def _is_running(process: int) -> bool:
    if os.name != "posix":  # elsewhere os.kill ends the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        pass
    return True


def _sync(folder: Path) -> None:
    """Make renames durable; not every system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _write_error(path, error) from error


def _write_error(path: Path, error: OSError) -> UnseenError:
    reason = error.strerror or error
    return UnseenError(f"cannot write {path}: {reason}; free space there or choose another folder")
