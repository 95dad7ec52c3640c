"""Loggers by name, and several of them as one."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from unseen.errors import UnseenError
from unseen.training.loggers.logger import Logger, Point, Training
from unseen.training.loggers.mlflow import MLflowLogger
from unseen.training.loggers.tensorboard import TensorBoardLogger
from unseen.training.loggers.wandb import WandbLogger

log = logging.getLogger("unseen")

LOGGERS: dict[str, type[Any]] = {
    kind.name: kind for kind in (TensorBoardLogger, WandbLogger, MLflowLogger)
}
# Folders below that of a run. wandb makes a folder of its name by itself.
FOLDERS = {"tensorboard": "tensorboard", "wandb": ".", "mlflow": "mlruns"}

AnyLogger = str | Logger | Sequence[str | Logger] | None


def make_loggers(
    given: AnyLogger, folder: Path | None = None, *, tensorboard: bool = False
) -> Loggers:
    """Return the loggers of names, such as "wandb" or "tensorboard,mlflow", or of objects.

    Args:
        folder: what a named logger writes below; by default it writes where its package does.
        tensorboard: the same as to name it.
    """
    parts: list[str | Logger] = []
    listed = [given] if isinstance(given, str | Logger) else list(given or ())
    for entry in [*listed, *([TensorBoardLogger.name] if tensorboard else [])]:
        names = map(str.strip, entry.split(",")) if isinstance(entry, str) else [entry]
        parts += [part for part in names if part not in parts]
    return Loggers([_make(part, folder) for part in parts])


def _make(part: str | Logger, folder: Path | None) -> Logger:
    if isinstance(part, Logger):
        return part
    if part not in LOGGERS:
        raise UnseenError(
            f"there is no logger {part!r}: choose {', '.join(LOGGERS)}, or give an object of a "
            "class derived from unseen.training.loggers.Logger"
        )
    made: Logger = LOGGERS[part](None if folder is None else folder / FOLDERS[part])
    return made


class Loggers:
    """Several loggers, or none. One that fails in the training is dropped; the training goes on."""

    def __init__(self, loggers: Iterable[Logger] = ()) -> None:
        self.loggers = list(loggers)
        self._started: list[Logger] = []

    def __enter__(self) -> Loggers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for logger in list(self._started):
            self._try(logger, lambda logger=logger: logger.close(kind is not None))
        self._started.clear()

    def start(self, training: Training, points: Iterable[Point]) -> None:
        """Open every logger; `points` came before, in a training that is resumed."""
        before = list(points) if self.loggers else []
        for logger in self.loggers:
            self._started.append(logger)
            try:
                logger.start(training, before)
                logger.flush()
            except UnseenError:
                raise
            except Exception as error:
                raise UnseenError(f"the logger {logger.name} cannot start: {error}") from error

    def log(self, points: Iterable[Point]) -> None:
        """Add the numbers of steps."""
        if self._started:
            new = list(points)
            for logger in list(self._started):
                self._try(logger, lambda logger=logger: _log_all(logger, new))

    def hints(self) -> list[str]:
        """Return the commands that show the logs."""
        return [hint for logger in self.loggers if (hint := logger.hint())]

    def _try(self, logger: Logger, act: Any) -> None:
        try:
            act()
        except Exception as error:
            log.warning("the logger %s failed and is off from here on: %s", logger.name, error)
            self._started.remove(logger)


def _log_all(logger: Logger, points: Iterable[Point]) -> None:
    for step, values in points:
        logger.log(step, values)
    logger.flush()


def points_of(records: Iterable[Mapping[str, Any]]) -> Iterator[Point]:
    """Return the numbers of a run's records by step, in the order of steps."""
    ordered = sorted(records, key=lambda record: record["step"])
    for step, group in itertools.groupby(ordered, key=lambda record: record["step"]):
        yield step, {_name(record): record["value"] for record in group}


def _name(record: Mapping[str, Any]) -> str:
    """Return the name of a number; those of the source need no domain."""
    split, metric = record["split"], record["metric"]
    return f"{split}/{metric}" if split in ("train", "val") else (
        f"{split}/{record['domain']}/{metric}"
    )  # fmt: skip
