"""Downloads that go on where a cut connection left off, and leave nothing half-written under the final name."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pooch
import requests
import urllib3
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from unseen.data.publishers import PublishedFile
from unseen.errors import UnseenError

ATTEMPTS = 3  # in a row that bring no new byte
WAIT = 1.0  # seconds before the second, growing
TIMEOUT = 30.0
CHUNK = 1 << 18
PLAIN_EVERY = 15.0  # seconds between lines where there is no terminal


def download(file: PublishedFile, folder: Path) -> Path:
    """The file below the folder, from the first of its addresses that gives it whole and with the right checksum."""
    path = folder / file.name
    known = file.sha256 or recorded(path)
    problems = []
    logging.getLogger("pooch").setLevel(logging.WARNING)  # progress says what pooch would
    for url in file.urls:
        try:
            pooch.retrieve(url, known, path.name, path.parent, downloader=Resuming(path))
            return path
        except (
            ValueError
        ) as error:  # how pooch says that a checksum is wrong; it has removed what came
            whose = (
                "the published one"
                if file.sha256
                else f"that of the first download, in {record_of(path)}"
            )
            problems.append(f"{url}: the checksum is not {whose} ({error})")
        except UnseenError as error:
            problems.append(str(error))
        except OSError as error:
            raise UnseenError(
                f"cannot write {path}: {error}; set UNSEEN_DATA to a folder that can be written to"
            ) from error
    raise UnseenError(
        f"{file.name} could not be fetched: {'; '.join(problems)}; or put the file there yourself: {path}"
    )


def record_of(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def recorded(path: Path) -> str | None:
    """The checksum of the first download, where the publisher states none."""
    words = record_of(path).read_text().split() if record_of(path).exists() else []
    return words[0] if words else None


def record(path: Path) -> None:
    """Keep the checksum of a first download, in the form that sha256sum reads."""
    record_of(path).write_text(f"{pooch.file_hash(str(path))}  {path.name}\n")


class Resuming:
    """A downloader for pooch. What has come is kept in <name>.part, also from one program run to the next."""

    def __init__(self, path: Path) -> None:
        self.label = f"{path.parent.name}/{path.name}"
        self.part = path.with_name(path.name + ".part")
        self.version = path.with_name(
            path.name + ".part.version"
        )  # the server's name for what the part is a part of

    def __call__(self, url: str, output_file: str, _pooch: Any) -> None:
        fruitless = 0
        with _Progress(self.label) as shown:
            while True:
                before = self._size()
                try:
                    if self._stream(url, shown):
                        break
                    problem = f"the connection was cut after {self._size()} bytes"
                except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                    problem = f"{type(error).__name__}: {error}"
                fruitless = 0 if self._size() > before else fruitless + 1
                if fruitless == ATTEMPTS:
                    raise UnseenError(
                        f"{url}: {problem}; tried {ATTEMPTS} times, call again to go on from there"
                    )
                time.sleep(WAIT * fruitless)
        os.replace(self.part, output_file)
        self.version.unlink(missing_ok=True)

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _stream(self, url: str, shown: _Progress) -> bool:
        """Ask for what is missing and write it down; whether the file is whole."""
        have = self._size()
        headers = {
            "Accept-Encoding": "identity"
        }  # a .gz is the file itself, not to be unpacked on the way
        if have:
            headers["Range"] = f"bytes={have}-"
            if self.version.exists():
                headers["If-Range"] = (
                    self.version.read_text()
                )  # the whole file instead, should it have changed
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            start, total = _range(answer, have)
            if (
                answer.status_code == 416
            ):  # nothing beyond what there is: it is whole, or of another file
                if total != have:
                    self.part.unlink()
                return total == have
            if 400 <= answer.status_code < 500 and answer.status_code not in (
                408,
                429,
            ):  # these two may pass
                raise UnseenError(f"{url}: the server says {answer.status_code} {answer.reason}")
            answer.raise_for_status()
            if start == 0:
                self._name_version(answer)
            with self.part.open("r+b" if start else "wb") as out:
                out.seek(start)
                for chunk in answer.raw.stream(CHUNK, decode_content=False):
                    out.write(chunk)
                    shown.at(out.tell(), total)
        return total is None or self._size() == total

    def _name_version(self, answer: requests.Response) -> None:
        tag = answer.headers.get("ETag", "")
        named = (
            tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")
        )  # weak tags do not serve
        if named:
            self.version.write_text(named)
        else:
            self.version.unlink(missing_ok=True)


def _range(answer: requests.Response, have: int) -> tuple[int, int | None]:
    """Where the answer's bytes belong, and the size of the whole file if the server tells: `bytes 5-9/10`, `bytes */10`."""
    unit, _, said = answer.headers.get("Content-Range", "").partition(" ")
    span, _, total = said.partition("/")
    whole = int(total) if total.isdecimal() else None
    if answer.status_code == 416:
        return have, whole
    if answer.status_code != 206:
        length = answer.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    first = span.partition("-")[0]
    if unit != "bytes" or not first.isdecimal() or int(first) > have:
        raise requests.RequestException(
            f'asked for bytes from {have}, the server gave "{unit} {said}"'
        )
    return int(first), whole


class _Progress:
    """How much has come: a live bar on a terminal, plain lines elsewhere; always on stderr."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.live: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
            )
            self.live = Progress(*columns, console=Console(stderr=True))

    def __enter__(self) -> _Progress:
        self.said = time.monotonic()
        if self.live is not None:
            self.live.start()
            self.bar = self.live.add_task(self.label, total=None)
        else:
            print(f"fetching {self.label}", file=sys.stderr)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def at(self, done: int, total: int | None) -> None:
        if self.live is not None:
            self.live.update(self.bar, completed=done, total=total)
        elif time.monotonic() - self.said > PLAIN_EVERY:
            self.said = time.monotonic()
            of = f" of {total / 1e6:.1f}" if total else ""
            print(f"{self.label}: {done / 1e6:.1f}{of} MB", file=sys.stderr)
