"""Runs that the tests of this folder share, each with its exported model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import unseen
from light_task import light_task
from own_images import QUICK, write_images
from quick import quick_estimates

from unseen.training.train import train


@dataclass
class SharedRun:
    folder: Path
    exported: Path
    task: Any = None
    files: tuple[Path, ...] = ()
    printed: Any = None  # by `unseen export --json`


@pytest.fixture(scope="session")
def light_run(tmp_path_factory) -> SharedRun:
    """A run on the tiny task, with its accuracy estimator."""
    root, task = tmp_path_factory.mktemp("light"), light_task()
    train(task, "uncertainty_guided", root / "run", overrides={"steps": 30}, progress=False)
    words = ("--out", root / "model.onnx", "--task", "light_task:light_task", "--json")
    with quick_estimates():
        printed = unseen("export", root / "run", *words).json()
    return SharedRun(root / "run", root / "model.onnx", task, printed=printed)


@pytest.fixture(scope="session")
def own_export(tmp_path_factory) -> SharedRun:
    """A run on a folder of images of one's own, with its accuracy estimator."""
    root = tmp_path_factory.mktemp("own")
    write_images(root / "photos", 16)
    write_images(root / "new", 6, seed=1, light=0.3)
    with pytest.MonkeyPatch.context() as patch, quick_estimates():
        patch.setenv("UNSEEN_CACHE", str(root / "cache"))
        done = unseen("train", "--data", root / "photos", "--out", root / "run", *QUICK)
        assert done.returncode == 0, done.stderr
        done = unseen("export", root / "run", "--out", root / "model.onnx")
        assert done.returncode == 0, done.stderr
    files = tuple(sorted((root / "new").rglob("*.png")))
    return SharedRun(root / "run", root / "model.onnx", files=files)
