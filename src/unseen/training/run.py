"""The folder of a run: one task, one method, one seed.

config.json         settings, versions and the machine
records.jsonl       metrics by step, domain and split
state.safetensors   the last checkpoint, while the run trains
kept/               weights at evenly spaced steps, on demand
figures/            arrays that the figures of a report are drawn from
model.safetensors   the trained weights
source.safetensors  statistics of the source, for the domain score
accuracy.safetensors  the accuracy estimator, once it has been needed
tensorboard/        event files, on demand
done                marks a finished run
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from unseen.api import Method, Task
from unseen.checks import check_path
from unseen.errors import UnseenError
from unseen.files import append, complete_writes, read_json, write_atomically
from unseen.schema import construct_settings, validate
from unseen.schema.run_files import RunFields, read_records
from unseen.training.checkpoint import CONFIG, load_method, migrate_method_config
from unseen.training.config import LoopSettings, model_settings
from unseen.training.identity import difference
from unseen.training.machine import pick_device

RECORDS, DONE = "records.jsonl", "done"


class RunConfig(RunFields):
    """What config.json of a run must hold; it also records versions and the machine."""

    loop: LoopSettings


class Run:
    """A run's folder: its configuration, its records and its weights.

    A write to the folder that a kill has interrupted is completed when the folder is read.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = check_path("the folder of a run", folder)

    @property
    def done(self) -> bool:
        complete_writes(self.folder)
        return (self.folder / DONE).exists()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, in the current format."""
        complete_writes(self.folder)
        path = self.folder / CONFIG
        config = migrate_method_config(read_json(path), str(path))
        if missing := [
            n for n, f in RunConfig.model_fields.items() if f.is_required() and n not in config
        ]:
            raise UnseenError(
                f"{path} does not describe a run: it lacks {', '.join(missing)}; "
                "use unseen.load for a folder that net.save wrote"
            )
        loop = validate(RunConfig, config, str(path)).loop
        return {**config, "loop": loop.model_dump()}

    @property
    def state_path(self) -> Path:
        return self.folder / "state.safetensors"

    def kept_path(self, step: int) -> Path:
        """Return the path of the weights that were kept at a step."""
        return self.folder / "kept" / f"step_{step:06d}.safetensors"

    def kept_steps(self) -> list[int]:
        """Return the steps whose weights were kept."""
        paths = self.folder.glob("kept/step_*.safetensors")
        return sorted(int(path.stem.removeprefix("step_")) for path in paths)

    def records(self) -> list[dict[str, Any]]:
        """Read records.jsonl."""
        complete_writes(self.folder)
        return read_records(self.folder / RECORDS, torn=True)

    def append(self, records: list[dict[str, Any]]) -> None:
        """Add records to records.jsonl."""
        append(self.folder / RECORDS, record_lines(records))

    def rewrite(self, records: list[dict[str, Any]]) -> None:
        """Replace all of records.jsonl."""
        write_atomically(self.folder / RECORDS, record_lines(records))

    def updated(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return all records, with new ones in place of those of the same step, domain, split and
        metric."""
        new = {_record_key(r) for r in records}
        return [r for r in self.records() if _record_key(r) not in new] + records

    def load(self, task: Task, device: str = "auto") -> Method:
        """Return the trained method around the task's model."""
        if not self.done:
            started = (self.folder / CONFIG).exists() and self.config
            hint = (
                "the run is not finished: continue it with unseen train ... --resume"
                if started
                else "no run"
            )
            raise UnseenError(f"{self.folder}: {hint}")
        config = self.config
        variant = config.get("variant", task.variant)
        if (config["task"], variant) != (task.name, task.variant):
            raise UnseenError(
                f"{self.folder} was trained on {config['task']}/{variant}, "
                f"not on {task.name}/{task.variant}"
            )
        functions = {"loss": task.loss} if callable(task.loss) else None
        model = self._build_model(task)
        return load_method(self.folder, model, functions).to(pick_device(device))

    def _build_model(self, task: Task) -> nn.Module:
        where = f'{self.folder / CONFIG}, "model"'
        chosen = construct_settings(
            model_settings(task), self.config.get("model", {}), where, f"{task.name} model"
        )
        if "pretrained" in chosen:  # the run's own weights replace that file
            chosen["pretrained"] = ""
        return task.model(**chosen)

    def check_same(self, config: dict[str, Any]) -> None:
        """Raise an error if the folder holds another run than `config` describes."""
        before = self.config
        if "adapted" in before:
            raise UnseenError(
                f"{self.folder} was written by `unseen adapt` and cannot be trained further: "
                "use another --out"
            )
        if change := difference(before, config):
            name, old, new = change
            raise UnseenError(
                f"{self.folder} was started with {name} = {old!r}, now it is {new!r}: "
                "repeat the options it was started with, or use another --out"
            )


def record_lines(records: list[dict[str, Any]]) -> bytes:
    """Return the content of records.jsonl."""
    return "".join(json.dumps(r) + "\n" for r in records).encode()


def _record_key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("step", "domain", "split", "metric"))


def __getattr__(name: str) -> Any:
    if name == "train":
        from unseen.training.train import train

        warnings.warn(
            "unseen.training.run.train is now unseen.training.train.train; "
            "the old path will be removed in version 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
