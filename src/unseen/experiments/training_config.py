"""A task, a method and settings from a file: a grid of one row, such as `unseen tune` writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.experiments.grid import read_grid
from unseen.schema import merge


@dataclass(frozen=True)
class TrainingConfig:
    """What `unseen train` reads from a file, with the defaults of its options."""

    task: str | None = None
    method: str | None = None
    preset: str = "fast"
    set: dict[str, Any] = field(default_factory=dict)


def read_training_config(path: Path) -> TrainingConfig:
    """Read a grid of one row and one variant."""
    grid = read_grid(path)
    if len(grid.rows) != 1 or len(grid.tasks) != 1:
        raise UnseenError(
            f"{path} has {len(grid.rows)} rows and {len(grid.tasks)} variants: --config takes one "
            "of each; use unseen bench for grids"
        )
    row = grid.rows[0]
    return TrainingConfig(grid.tasks[0], row.method, grid.preset, merge(grid.set, row.set))
