"""Runs of Weights & Biases."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unseen.checks import check_path
from unseen.training.loggers.logger import Logger, Point, Training, import_for

PROJECT = "unseen"


class WandbLogger(Logger):
    """Logs into the active run, or into a run of its own in the folder.

    Nothing is uploaded unless WANDB_MODE=online is set; `wandb sync` uploads a run later.
    WANDB_PROJECT names the project.
    """

    name = "wandb"

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else check_path("folder", folder)
        self._wandb = import_for(self.name, "wandb", self.name)
        self._run: Any = None
        self._is_own = False

    def start(self, training: Training, points: Iterable[Point]) -> None:
        """Continue the run of this training; what it has already is not sent again."""
        self._is_own = self._wandb.run is None
        self._run = self._open(training) if self._is_own else self._wandb.run
        if not self._is_own:
            self._run.config.update(dict(training.settings), allow_val_change=True)
        # A step of wandb cannot go back: a fit into the user's run may not start at its first step.
        for name in ("train/*", "val/*", "test/*"):
            self._run.define_metric(name, step_metric="step")
        last = self._run.summary.get("step", 0) if self._run.resumed else 0
        for step, values in points:
            if step > last:
                self.log(step, values)

    def _open(self, training: Training) -> Any:
        mode = os.environ.get("WANDB_MODE", "offline")
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if mode == "offline":  # an offline run cannot be continued: it is written again
                for old in self.folder.glob("wandb/offline-run-*"):
                    shutil.rmtree(old)
        return self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=None if self.folder is None else str(self.folder.absolute()),
            mode=mode,
            id=training.key,
            resume="allow" if mode == "online" else None,
            name=training.title,
            group=training.group,
            config=dict(training.settings),
            settings=self._wandb.Settings(console="off", silent=mode == "offline"),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def close(self, failed: bool) -> None:
        if self._run is not None and self._is_own:
            self._run.finish(exit_code=int(failed))

    def hint(self) -> str | None:
        if self._run is None or not self._is_own or not self._run.offline:
            return None
        return f"wandb sync {Path(self._run.dir).parent}"
