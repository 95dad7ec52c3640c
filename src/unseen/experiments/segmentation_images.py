"""Draw images of a segmentation task with their labels and the predictions of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseen.api import Task
from unseen.checks import check_int
from unseen.errors import UnseenError
from unseen.report.figures.segmentation import draw_side_by_side
from unseen.training.batches import load_split, take
from unseen.training.run import Run


def draw_predictions(
    runs: Sequence[Run],
    task: Task,
    domain: str,
    out: Path,
    *,
    frames: int = 4,
    device: str = "auto",
) -> dict[str, Any]:
    """Draw evenly spaced images of a domain's test split with each run's prediction, as PNG."""
    if task.metric != "miou":
        raise UnseenError(
            f"{task.name} is measured by {task.metric}: only segmentation tasks, measured by miou, "
            "can be drawn"
        )
    if not runs:
        raise UnseenError("no run given: name at least one finished run")
    if out.suffix.lower() != ".png":
        raise UnseenError(f"{out} must be a PNG file, e.g. {out.with_suffix('.png')}")
    check_int("frames", frames, 1)
    names = distinct_names(runs)
    data = load_split(task.domain(domain), "test")
    index = evenly_spaced(len(data), frames)  # type: ignore[arg-type]
    batch = take(data, torch.tensor(index))
    predictions = {
        name: run.load(task, device).predict(batch.x).argmax(1).cpu().numpy()
        for name, run in zip(names, runs, strict=True)
    }
    images = (batch.x[0].permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
    class_names = task.class_names or tuple(map(str, range(task.classes)))
    title = f"{task.name}/{task.variant}: {domain}"
    draw_side_by_side(out, images, batch.y.numpy(), predictions, class_names, title=title)
    return {
        "picture": str(out),
        "task": task.name,
        "variant": task.variant,
        "domain": domain,
        "frames": index,
        "runs": dict(zip(names, (str(run.folder) for run in runs), strict=True)),
    }


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return the centres of `count` equal intervals: neighbouring frames are alike."""
    return sorted(set(np.linspace(0, total, 2 * min(count, total) + 1)[1::2].astype(int).tolist()))


def distinct_names(runs: Sequence[Run]) -> list[str]:
    """Return the method of each run; with its seed, or its folder, if that is not distinct."""
    configs = [run.config for run in runs]
    names = [config["method"] for config in configs]
    for longer in (
        [f"{c['method']} seed {c['seed']}" for c in configs],
        [str(run.folder) for run in runs],
    ):
        names = names if len(set(names)) == len(names) else longer
    if len(set(names)) < len(names):
        raise UnseenError(f"a run is named twice: {', '.join(names)}")
    return names
