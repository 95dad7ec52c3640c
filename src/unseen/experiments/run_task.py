"""The task of a finished run. A user's own code is imported only if an argument allows it."""

from __future__ import annotations

from unseen.api import Task
from unseen.errors import UnseenError
from unseen.methods import method_named
from unseen.tasks import task_named
from unseen.tasks.own_files import task_of_run
from unseen.training.run import Run


def task_of_run_folder(
    run: Run,
    name: str | None = None,
    *,
    data: str | None = None,
    model: str | None = None,
    method: str | None = None,
    trust_code: bool = False,
    pool: bool = False,
) -> Task:
    """Return the task of a run.

    Args:
        name: of a task of one's own, package.module:function.
        data: other data to use as targets, or the run's own in another place.
        model: name of the run's network; importing it is then allowed.
        method: name of the run's own method; importing it is then allowed.
        trust_code: import the network and the method that the run names.
        pool: split targets of one's own data that have no splits into halves, for adaptation.
    """
    config = run.config
    _import_method(run, config.get("method_word"), method, trust_code)
    if config.get("data") is not None:
        if name is not None:
            raise UnseenError(f"{run.folder} was trained on --data: leave out --task")
        return task_of_run(
            config["data"],
            f'{run.folder / "config.json"}, "data"',
            data=data,
            model=model,
            trust_code=trust_code,
            pool=pool,
        )
    if data is not None or model is not None:
        raise UnseenError(
            f"{run.folder} was trained on the task {config.get('task')}, not on --data: leave out "
            "--data and --model"
        )
    recorded = str(config.get("task_word", config.get("task")))
    if name is None and ":" in recorded:
        raise UnseenError(
            f"{run.folder} was trained on your own task {recorded}: add --task {recorded}"
        )
    return task_named(recorded if name is None else name)


def _import_method(run: Run, recorded: str | None, method: str | None, trust_code: bool) -> None:
    """Import the user's own method of a run, if an option allows it."""
    if recorded is None:
        if method is not None:
            raise UnseenError(f"{run.folder} was trained with a built-in method: omit --method")
        return
    if method is None and not trust_code:
        raise UnseenError(
            f"{run.folder} was trained with your own method {recorded}: add --method {recorded}, "
            "or --trust-code"
        )
    method_named(method or recorded)
