"""The contract of a logger. Read this first."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from unseen.errors import UnseenError

Point = tuple[int, Mapping[str, float]]  # a step, and numbers by name, such as train/loss


class Training(NamedTuple):
    """What a logger shows of a training beside its numbers."""

    key: str  # identifies the training: a resumed one has the same key
    title: str
    group: str  # trainings that are compared with each other, such as those of one task
    settings: Mapping[str, Any]


class Logger(ABC):
    """Shows the numbers of a training elsewhere. Write `start` and `log`."""

    name: ClassVar[str]

    @abstractmethod
    def start(self, training: Training, points: Iterable[Point]) -> None:
        """Open the place to log to; `points` came before, and must appear there once."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add the numbers of a step. Steps do not go back; one step may come twice."""

    def flush(self) -> None:  # noqa: B027 - most loggers write at once
        """Make visible what was logged."""

    def close(self, failed: bool) -> None:  # noqa: B027 - not every logger holds something open
        """End the log of this process."""

    def hint(self) -> str | None:
        """Return the command that shows the log, if there is one."""
        return None


def import_for(logger: str, module: str, extra: str) -> Any:
    """Import the module of a logger, or name the extra that installs it."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # a broken protobuf raises a TypeError
        raise UnseenError(
            f"the logger {logger} needs the package {extra}, which cannot be imported ({error}): "
            f"pip install 'unseen[{extra}]'"
        ) from error
