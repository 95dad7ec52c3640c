"""Runs of MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unseen.checks import check_path
from unseen.training.loggers.logger import Logger, Point, Training, import_for

KEY = "unseen.key"  # the tag that a resumed training finds its run by
LARGEST_BATCH = 1000  # metrics in one request, the limit of MLflow
LONGEST = 6000  # characters of a parameter, the limit of MLflow
ALLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"


class MLflowLogger(Logger):
    """Logs into the active run, or into a run of its own.

    Its own run goes to MLFLOW_TRACKING_URI; without one, to the folder mlruns.
    """

    name = "mlflow"

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = check_path("folder", folder or "mlruns")
        self._mlflow = import_for(self.name, "mlflow", self.name)
        self._client: Any = None
        self._run = ""
        self._is_own = False
        self._is_local = False

    def start(self, training: Training, points: Iterable[Point]) -> None:
        """Continue the run of this training; what it has already is not sent again."""
        active = self._mlflow.active_run()
        self._is_own = active is None
        if active is None:
            self._run = self._open(training)
        else:
            self._client, self._run = self._mlflow.MlflowClient(), active.info.run_id
        kind = self._mlflow.entities.Param
        known = self._client.get_run(self._run).data.params
        params = [kind(n, str(v)[:LONGEST]) for n, v in training.settings.items() if n not in known]
        self._client.log_batch(self._run, params=params)
        last: dict[str, int] = {}
        for step, values in points:
            new = {n: v for n, v in values.items() if step > self._last_step(n, last)}
            self.log(step, new)

    def _open(self, training: Training) -> str:
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        self._is_local = uri is None
        if uri is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            uri = self.folder.absolute().as_uri()
        with _files_allowed(self._is_local):
            self._client = self._mlflow.MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(training.group)
        group = found.experiment_id if found else self._client.create_experiment(training.group)
        runs = self._client.search_runs([group], f"tags.`{KEY}` = '{training.key}'")
        if runs:
            self._client.update_run(runs[0].info.run_id, status="RUNNING")
            return str(runs[0].info.run_id)
        made = self._client.create_run(group, tags={KEY: training.key}, run_name=training.title)
        return str(made.info.run_id)

    def _last_step(self, name: str, known: dict[str, int]) -> int:
        if name not in known:
            history = self._client.get_metric_history(self._run, name) if self._is_own else []
            known[name] = max((metric.step for metric in history), default=-1)
        return known[name]

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now, kind = int(time.time() * 1000), self._mlflow.entities.Metric
        metrics = [kind(name, float(value), now, step) for name, value in values.items()]
        for first in range(0, len(metrics), LARGEST_BATCH):
            self._client.log_batch(self._run, metrics=metrics[first : first + LARGEST_BATCH])

    def close(self, failed: bool) -> None:
        if self._client is not None and self._is_own and self._run:
            self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")

    def hint(self) -> str | None:
        if not self._is_local:
            return None
        return f"{ALLOW_FILES}=true mlflow ui --backend-store-uri {self.folder}"


@contextmanager
def _files_allowed(needed: bool) -> Iterator[None]:
    """Let MLflow 3 open a store of files, which it refuses unless a variable asks for it."""
    if not needed or ALLOW_FILES in os.environ:
        yield
        return
    os.environ[ALLOW_FILES] = "true"
    try:
        yield
    finally:
        del os.environ[ALLOW_FILES]
