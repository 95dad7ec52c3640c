"""Runs that are served side by side, and their hot reload."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unseen.deploy.scorer import Scorer
from unseen.deploy.service.journal import Journal
from unseen.deploy.service.loaded_run import LoadedRun
from unseen.deploy.service.metrics import Metrics
from unseen.errors import UnseenError

Open = Callable[[Path], Scorer]
Signature = tuple[tuple[str, int, int, int], ...]
# What a run's predictions and verdicts depend on; logs and figures may change.
FILES = ("config.json", "model.safetensors", "source.safetensors", "accuracy.safetensors")
_log = logging.getLogger(__name__)


class ServedRun:
    """A run by its name; `current` is replaced when the run changes.

    Args:
        settings: of LoadedRun.
    """

    def __init__(
        self, name: str, path: Path, open_: Open, state: Path | None, **settings: Any
    ) -> None:
        self.name, self.path, self._open, self._state = name, path, open_, state
        self._settings = settings
        self._loading = threading.Lock()
        self.problem: str | None = None  # why the files on disk are not the ones that are served
        self._tried = signature_of(path)
        self.current = self._load()
        self.current.show_metrics()

    @property
    def metrics(self) -> Metrics:
        metrics: Metrics = self._settings["metrics"]
        return metrics

    def reload(self) -> str:
        """Load the run again: "reloaded", "unchanged", or raise and keep the old one."""
        with self._loading:
            self._tried = signature_of(self.path)
            try:
                if fingerprint_of(self.path) == self.current.fingerprint:
                    self.problem = None
                    _log.info("%s: unchanged", self.name)
                    return "unchanged"
                new = self._load()
            except Exception as error:
                text = str(error) if isinstance(error, UnseenError) else f"{type(error).__name__}"
                self.problem = f"the changed run cannot be loaded, the old one is served: {text}"
                self.metrics.loads.labels(self.name, "failed").inc()
                _log.warning("%s: %s", self.name, self.problem)
                raise UnseenError(self.problem) from error
            old, self.current, self.problem = self.current, new, None
            self.metrics.loads.labels(self.name, "loaded").inc()
            _log.info("%s: reloaded", self.name)
            old.close()  # answers what it has
            old.end_alarms()
            new.show_metrics()
            return "reloaded"

    def changed(self) -> bool:
        """Return whether the files have changed since the last try to load them."""
        return signature_of(self.path) != self._tried

    def _load(self) -> LoadedRun:
        fingerprint = ""
        while fingerprint != (found := fingerprint_of(self.path)):
            # The first open of a run may fit its estimator and save it: open what is there then.
            fingerprint, scorer = found, self._open(self.path)
        _ = scorer.reader  # its errors belong here
        self._tried = signature_of(self.path)
        journal = None
        if self._state is not None:
            journal = Journal(self._state, f"{self.name}-{fingerprint[:16]}")
        return LoadedRun(self.name, scorer, fingerprint, journal=journal, **self._settings)

    def close(self) -> None:
        with self._loading:
            self.current.close()


class Watcher:
    """Reloads runs whose files have changed and then stayed the same for one interval."""

    def __init__(self, runs: Sequence[ServedRun], seconds: float) -> None:
        self.runs, self.seconds = runs, seconds
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="unseen-watch", daemon=True)
        self._thread.start()

    def reload_now(self) -> None:
        """Reload every run soon; safe in a signal handler."""
        self._wake.set()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def _watch(self) -> None:
        last = {run.name: signature_of(run.path) for run in self.runs}
        while not self._stop.is_set():
            asked = self._wake.wait(self.seconds)
            self._wake.clear()
            for run in self.runs:
                if self._stop.is_set():
                    return
                now = signature_of(run.path)
                settled, last[run.name] = now == last[run.name], now
                if asked or (settled and run.changed()):
                    # A failure is logged, and shown by /runs and the page.
                    with contextlib.suppress(UnseenError):
                        run.reload()


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return a short name for each run: that of its folder or file, made unique."""
    names: list[str] = []
    for path in paths:
        plain = path.resolve().stem if path.suffix == ".onnx" else path.resolve().name
        base = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain).strip("._") or "run"
        name, k = base, 2
        while name in names:
            name, k = f"{base}-{k}", k + 1
        names.append(name)
    return names


def fingerprint_of(path: Path) -> str:
    """Return a hash of the files that predictions and verdicts depend on."""
    digest = hashlib.sha256()
    for file in _files(path):
        digest.update(file.name.encode())
        try:
            with file.open("rb") as opened:
                while block := opened.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise UnseenError(f"cannot read {file}: {error.strerror or error}") from error
    return digest.hexdigest()


def signature_of(path: Path) -> Signature:
    """Return name, inode, time and size of the same files, which are quick to get."""
    found = []
    for file in _files(path):
        try:
            status = file.stat()
        except OSError:
            continue
        found.append((file.name, status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [path / name for name in FILES if (path / name).is_file()]
    return [path]
