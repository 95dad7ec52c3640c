"""Resumable downloads; a file gets its final name only when it is complete."""

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

ATTEMPTS = 3  # in a row without a new byte
WAIT = 1.0  # seconds before the second attempt, growing
TIMEOUT = 30.0
CHUNK = 1 << 18
PLAIN_EVERY = 15.0  # seconds between progress lines without a terminal


def download(file: PublishedFile, folder: Path) -> Path:
    """Download a file from the first address that delivers the right checksum."""
    path = folder / file.name
    checksum = file.sha256 or recorded_checksum(path)
    problems = []
    logging.getLogger("pooch").setLevel(logging.WARNING)  # progress is shown below
    for url in file.urls:
        try:
            pooch.retrieve(
                url, checksum, path.name, path.parent, downloader=ResumingDownloader(path)
            )
            return path
        except ValueError as error:  # pooch: wrong checksum; it has removed the file
            expected = (
                "the published one"
                if file.sha256
                else f"that of the first download, in {checksum_file(path)}"
            )
            problems.append(f"{url}: the checksum is not {expected} ({error})")
        except UnseenError as error:
            problems.append(str(error))
        except OSError as error:
            raise UnseenError(
                f"cannot write {path}: {error}; set UNSEEN_DATA to a writable folder"
            ) from error
    raise UnseenError(
        f"cannot fetch {file.name}: {'; '.join(problems)}; or put the file at {path} yourself"
    )


def checksum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def recorded_checksum(path: Path) -> str | None:
    """Return the checksum of the first download, for files without a published one."""
    words = checksum_file(path).read_text().split() if checksum_file(path).exists() else []
    return words[0] if words else None


def record_checksum(path: Path) -> None:
    """Write the checksum of a first download, in the format of sha256sum."""
    checksum_file(path).write_text(f"{pooch.file_hash(str(path))}  {path.name}\n")


class ResumingDownloader:
    """Downloader for pooch that keeps partial downloads in <name>.part between runs."""

    def __init__(self, path: Path) -> None:
        self.label = f"{path.parent.name}/{path.name}"
        self.part = path.with_name(path.name + ".part")
        self.version = path.with_name(path.name + ".part.version")  # the server's ETag or date

    def __call__(self, url: str, output_file: str, _pooch: Any) -> None:
        failures = 0
        with _Progress(self.label) as progress:
            while True:
                before = self._size()
                try:
                    if self._stream(url, progress):
                        break
                    problem = f"the connection was cut after {self._size()} bytes"
                except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                    problem = f"{type(error).__name__}: {error}"
                failures = 0 if self._size() > before else failures + 1
                if failures == ATTEMPTS:
                    raise UnseenError(
                        f"{url}: {problem}; tried {ATTEMPTS} times; run again to resume"
                    )
                time.sleep(WAIT * failures)
        os.replace(self.part, output_file)
        self.version.unlink(missing_ok=True)

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _stream(self, url: str, progress: _Progress) -> bool:
        """Request the missing bytes and append them; return whether the file is complete."""
        have = self._size()
        headers = {"Accept-Encoding": "identity"}  # do not decompress .gz files in transit
        if have:
            headers["Range"] = f"bytes={have}-"
            if self.version.exists():
                # The server sends the whole file if it has changed.
                headers["If-Range"] = self.version.read_text()
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            start, total = _parse_range(response, have)
            if response.status_code == 416:  # no more bytes: complete, or part of another file
                if total != have:
                    self.part.unlink()
                return total == have
            # 408 and 429 are temporary.
            if 400 <= response.status_code < 500 and response.status_code not in (408, 429):
                raise UnseenError(
                    f"{url}: the server says {response.status_code} {response.reason}"
                )
            response.raise_for_status()
            if start == 0:
                self._save_version(response)
            with self.part.open("r+b" if start else "wb") as out:
                out.seek(start)
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    out.write(chunk)
                    progress.update(out.tell(), total)
        return total is None or self._size() == total

    def _save_version(self, response: requests.Response) -> None:
        tag = response.headers.get("ETag", "")
        # If-Range needs a strong tag.
        strong = tag and not tag.startswith("W/")
        version = tag if strong else response.headers.get("Last-Modified", "")
        if version:
            self.version.write_text(version)
        else:
            self.version.unlink(missing_ok=True)


def _parse_range(response: requests.Response, have: int) -> tuple[int, int | None]:
    """Return the offset of the response and the total size, from `bytes 5-9/10` or `bytes */10`."""
    unit, _, value = response.headers.get("Content-Range", "").partition(" ")
    span, _, total = value.partition("/")
    size = int(total) if total.isdecimal() else None
    if response.status_code == 416:
        return have, size
    if response.status_code != 206:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    first = span.partition("-")[0]
    if unit != "bytes" or not first.isdecimal() or int(first) > have:
        raise requests.RequestException(
            f'requested bytes from {have}, the server sent "{unit} {value}"'
        )
    return int(first), size


class _Progress:
    """Progress on stderr: a live bar on a terminal, lines elsewhere."""

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
        self.last_line = time.monotonic()
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

    def update(self, done: int, total: int | None) -> None:
        if self.live is not None:
            self.live.update(self.bar, completed=done, total=total)
        elif time.monotonic() - self.last_line > PLAIN_EVERY:
            self.last_line = time.monotonic()
            of = f" of {total / 1e6:.1f}" if total else ""
            print(f"{self.label}: {done / 1e6:.1f}{of} MB", file=sys.stderr)
