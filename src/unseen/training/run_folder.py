"""Open the folder of a run: create it, continue it, or clean up what this process wrote."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.files import write_json
from unseen.nn.tensor_files import read_tensors
from unseen.training.checkpoint import CONFIG, MODEL, restore_training_state
from unseen.training.loggers.logger import Training
from unseen.training.loggers.registry import Loggers, points_of
from unseen.training.run import DONE, RECORDS, Run
from unseen.training.updates import Updates


def reopen_finished(run: Run, config: dict[str, Any], loggers: Loggers) -> Run:
    """Return a finished run after a check that it is this one."""
    run.check_same(config)
    if not (run.folder / MODEL).exists():
        raise UnseenError(
            f"{run.folder} is finished but {MODEL} is missing: train it again into another --out"
        )
    # A kill may have come between writing `done` and removing the checkpoint.
    run.state_path.unlink(missing_ok=True)
    with loggers:
        start_loggers(loggers, run, config)
    return run


def start_loggers(loggers: Loggers, run: Run, config: dict[str, Any]) -> None:
    """Start the loggers of a run with the records that it has."""
    place = hashlib.sha256(str(run.folder.absolute()).encode()).hexdigest()
    settings = {name: config[name] for name in ("task", "variant", "method", "preset", "seed")}
    for group in ("loop", "settings", "model"):
        settings |= {f"{group}.{name}": value for name, value in config[group].items()}
    training = Training(
        key=f"{config['run']}-{place[:8]}",  # one configuration may be trained in several folders
        title=run.folder.name,
        group=f"{config['task']}/{config['variant']}",
        settings=settings,
    )
    loggers.start(training, points_of(run.records()))


def open_run(
    run: Run, config: dict[str, Any], updates: Updates, resume: bool
) -> tuple[dict[str, Any], int]:
    """Create or reopen the folder; return the run's configuration and the steps already done."""
    if run.folder.exists() and not run.folder.is_dir():
        raise UnseenError(f"{run.folder} is a file; --out names a folder")
    if resume and run.folder.exists():
        _remove_old_temporaries(run.folder)
    if not run.folder.exists() or not any(run.folder.iterdir()):
        write_json(run.folder / CONFIG, config)
        return config, 0
    if not resume:
        raise UnseenError(
            f"{run.folder} is not empty: add --resume to continue it, or choose another --out"
        )
    run.check_same(config)
    config = {**config, "run": run.config["run"]}  # an older format may have hashed other names
    first = 0
    if run.state_path.exists():
        state = read_tensors(run.state_path)
        restore_training_state(updates.net, state, run.state_path)
        try:
            updates.load_state(state)
        except (KeyError, RuntimeError) as error:
            raise UnseenError(
                f"{run.state_path} is not a checkpoint of this run: {error} is missing"
            ) from error
        first = int(updates.net.steps_done)
    run.rewrite([r for r in run.records() if r["step"] <= first] if first else [])
    return config, first


def remove_new(folder: Path, present: set[Path] | None) -> None:
    """Remove what this call has written; `present` was in the folder before, if there was one."""
    if present is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in set(folder.iterdir()) - present:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _remove_old_temporaries(folder: Path) -> None:
    """Remove the temporary files that a kill of version 0.2 or older has left."""
    for name in (CONFIG, RECORDS, DONE, "*.safetensors"):
        for path in folder.rglob(f".{name}.{'[0-9a-f]' * 8}"):
            path.unlink()
