"""The study of a search: an SQLite file that survives a kill, its trials, and who takes the next.

The sampler's seed depends on the seed of the search and the number of the trial, so a search that
was killed and resumed draws what it would have drawn without the kill, with one worker.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from unseen.errors import UnseenError

STUDY, TRIALS, NAME = "study.db", "trials", "unseen"
# Attributes of the study and of its trials.
FACTS, FOLDER, INTERRUPTED, REPORTED = "facts", "folder", "interrupted", "reported"
ERROR, SHIFTS = "error", "shifts"
STARTUP = 5  # trials before the first one can be pruned


def load_optuna() -> Any:
    """Import Optuna, or say how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise UnseenError("unseen tune needs Optuna: pip install 'unseen[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _check_is_database(path: Path) -> None:
    """Raise if SQLite cannot read all of the file, or if it is gone while its trials are there."""
    if not path.is_file() or not path.stat().st_size:
        if any((path.parent / TRIALS).glob("*")):
            raise UnseenError(
                f"{path} is missing or empty, and the trials of its search are there: restore it "
                "from a copy, or search again in another --out"
            )
        return
    try:
        with closing(sqlite3.connect(path)) as database:
            found = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise UnseenError(
            f"{path} is damaged ({found.splitlines()[0]}): restore it from a copy, or search again "
            "in another --out"
        )


@dataclass(frozen=True)
class Search:
    """A search in a folder."""

    folder: Path
    facts: Mapping[str, Any]  # what every trial has in common; plain values

    def open(self) -> Any:
        """Open or create the study; raise if the folder holds another search."""
        optuna = load_optuna()
        _check_is_database(self.folder / STUDY)
        study = optuna.create_study(
            storage=f"sqlite:///{(self.folder / STUDY).absolute()}",
            study_name=NAME,
            direction="minimize" if self.facts["less_is_better"] else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP),
            load_if_exists=True,
        )
        recorded = study.user_attrs.get(FACTS)
        if recorded is None:
            study.set_user_attr(FACTS, dict(self.facts))
            return study
        for name, value in self.facts.items():
            if recorded.get(name) != value:
                raise UnseenError(
                    f"{self.folder} holds a search with {name} = {recorded.get(name)!r}, now it is "
                    f"{value!r}: repeat its options, or use another --out"
                )
        return study

    def release_interrupted(self, study: Any, names: Collection[str]) -> int:
        """Queue trials that a kill has interrupted again; they resume from their checkpoints.

        A trial without all settings in `names`, killed while they were drawn, is drawn again.
        Only the process that holds the folder may call it: nobody else runs trials then.
        """
        state = load_optuna().trial.TrialState
        stale = study.get_trials(states=(state.RUNNING,))
        for trial in stale:
            study._storage.set_trial_user_attr(trial._trial_id, INTERRUPTED, True)
            study.tell(trial.number, state=state.FAIL)
            drawn = {**trial.params, **trial.system_attrs.get("fixed_params", {})}
            if drawn.keys() != set(names):
                continue
            kept = {
                FOLDER: trial.user_attrs.get(FOLDER, folder_name(trial.number)),
                REPORTED: {str(k): v for k, v in trial.intermediate_values.items()},
            }
            study.enqueue_trial(drawn, user_attrs=kept)
        return len(stale)

    def next_trial(self, study: Any, space: Mapping[str, Any], trials: int) -> Any:
        """Draw the settings of the next trial; None if there are enough."""
        optuna = load_optuna()
        waiting = optuna.trial.TrialState.WAITING
        with FileLock(self.folder / ".next.lock"):  # workers must not start one too many
            taken = [t for t in counted(study) if t.state != waiting]
            if len(taken) >= trials:
                return None
            seed = (int(self.facts["seed"]) * 100_003 + len(taken)) % 2**32
            study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            return study.ask(dict(space))

    def trial_folder(self, trial: Any) -> Path:
        """Return the folder of a trial's run."""
        name = trial.user_attrs.get(FOLDER, folder_name(trial.number))
        return self.folder / TRIALS / name

    def discard_run(self, trial: Any) -> None:
        """Remove the run of a trial that is finished; its results are in the study."""
        shutil.rmtree(self.trial_folder(trial), ignore_errors=True)


def folder_name(number: int) -> str:
    return f"trial-{number:04d}"


def counted(study: Any) -> list[Any]:
    """Return the trials without those that were interrupted and queued again."""
    trials = study.get_trials(deepcopy=False)
    return [t for t in trials if not t.user_attrs.get(INTERRUPTED)]
