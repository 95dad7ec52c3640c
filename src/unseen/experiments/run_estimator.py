"""The accuracy estimator of a finished run, fitted when it is first needed."""

from __future__ import annotations

import logging

from unseen.api import Method, Task
from unseen.detection.accuracy import FILE, AccuracyEstimator
from unseen.detection.sampling import MAX_SAMPLES
from unseen.errors import UnseenError
from unseen.training.batches import load_split, random_part
from unseen.training.progress import TrainingProgress
from unseen.training.run import Run

log = logging.getLogger("unseen")


def estimator_of(run: Run, task: Task, net: Method) -> AccuracyEstimator:
    """Return the run's estimator; fit it with held-out source data and save it the first time."""
    if net.has_accuracy_estimator:
        return net.accuracy_estimator
    path = run.folder / FILE
    log.info(
        "fitting the accuracy estimator to shifts of held-out %s, once for a run", task.source.name
    )
    held_out = random_part(load_split(task.source, "val"), MAX_SAMPLES)
    with TrainingProgress("accuracy estimator", 0) as progress:

        def show(done: int, total: int) -> None:
            progress.total = total
            progress.show(done)

        estimator = AccuracyEstimator.fit(net, held_out, on_point=show)
    net.accuracy_estimator = estimator
    try:
        estimator.save(path)
    except (UnseenError, OSError) as error:
        log.warning("the estimator is not saved: %s", error)
    return estimator
