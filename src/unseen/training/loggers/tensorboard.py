"""TensorBoard event files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unseen.checks import check_path
from unseen.training.loggers.logger import Logger, Point, Training, import_for


class TensorBoardLogger(Logger):
    """Writes event files to a folder, by default to runs/TIME_HOST, as TensorBoard does."""

    name = "tensorboard"

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else check_path("folder", folder)
        self._open = import_for(self.name, "torch.utils.tensorboard", self.name).SummaryWriter
        self._writer: Any = None

    def start(self, training: Training, points: Iterable[Point]) -> None:
        """Rewrite the event files, so that a resumed training repeats no step."""
        if self.folder is not None:
            for old in self.folder.glob("events.out.tfevents.*"):
                old.unlink()
        self._writer = self._open(None if self.folder is None else str(self.folder))
        for step, values in points:
            self.log(step, values)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self, failed: bool) -> None:
        if self._writer is not None:
            self._writer.close()

    def hint(self) -> str:
        return f"tensorboard --logdir {self.folder or 'runs'}"
