"""`unseen calibrate`: change where a run is scored."""

from __future__ import annotations

from unseen.cli.options import Device, Json, OwnData, RunFolder, TaskWord, emit, task_of
from unseen.detection.scoring import ScoreAt
from unseen.experiments.evaluate import recalibrate
from unseen.training.run import Run


def calibrate(
    run: RunFolder,
    *,
    at: ScoreAt,
    task: TaskWord = None,
    own: OwnData = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Compute a finished run's score at another layer and recalibrate it; its weights stay.

    Parameters
    ----------
    at
        The first site, as in the paper, or the embedding, which ranks domains by their error
        better.
    """
    finished = Run(run)
    result = recalibrate(finished, task_of(finished, task, own), at, device)
    if not emit(result, json_):
        print(f"{run}: scored at the {at}; alarm threshold of 64 samples {result['threshold']:.4f}")
