"""`unseen segmentation-images`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import Count, Device, Json, RunFolder, TaskWord, emit, task_of
from unseen.errors import UnseenError
from unseen.experiments.segmentation_images import draw_predictions
from unseen.training.run import Run


def segmentation_images(
    *runs: RunFolder,
    domain: str,
    out: Path,
    frames: Count = 4,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Draw images of a domain with labels and predictions of runs, for segmentation tasks.

    Parameters
    ----------
    domain
        A domain of the task.
    out
        PNG file to write.
    frames
        Number of images, evenly spaced over the test split.
    """
    if not runs:
        raise UnseenError(
            "no run given: unseen segmentation-images RUN [RUN ...] --domain dusk --out scenes.png"
        )
    finished = [Run(folder) for folder in runs]
    result = draw_predictions(
        finished, task_of(finished[0], task), domain, out, frames=frames, device=device
    )
    if not emit(result, json_):
        print(f"{result['picture']}: {domain}, {', '.join(result['runs'])}")
