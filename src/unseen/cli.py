"""The command line: each command a few lines that call the library. Results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

import unseen
from unseen import demo as demonstration
from unseen import exam
from unseen import run as runs
from unseen.bench import read_grid, run_grid, write_tables
from unseen.cli_data import data_app
from unseen.contracts import Task
from unseen.errors import UnseenError
from unseen.machine import keep_freed_memory
from unseen.methods import METHODS
from unseen.report.tables import percent, show
from unseen.settings import parse
from unseen.tasks import TASKS, task_named

app = App(
    name="unseen",
    suppress_keyboard_interrupt=False,
    version=unseen.__version__,
    help="Make a model learned from a single source hold up in domains it has never seen, and know when it will not.",
)

app.command(data_app)

Device = Literal["auto", "cpu", "cuda"]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Flag = Parameter(negative="")


@app.command
def train(
    task: str,
    *,
    out: Path,
    method: str = "uncertainty_guided",
    preset: str = "fast",
    augment: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    seed: int = 0,
    resume: Annotated[bool, Flag] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Train a method on a task's source, into a run folder.

    Parameters
    ----------
    task
        A name from `unseen tasks`, or your own as package.module:function.
    out
        The run's folder; new, or one to go on with.
    method
        A name from `unseen methods`.
    preset
        Named settings of the task: fast, reference or paper.
    augment
        A batch transform before every step: cutout, autoaugment or randconv.
    set_
        One setting as key=value, e.g. --set steps=500 --set draws=3; `unseen methods` lists them.
    seed
        Owns every random number of the run.
    resume
        Go on with the run in --out; start it if there is none, do nothing if it is finished.
    device
        Where to train.
    json_
        One JSON document on stdout.
    """
    overrides = parse(set_ or []) | ({} if augment is None else {"augment": augment})
    run = runs.train(
        task_named(task), method, out, preset=preset, overrides=overrides, seed=seed, resume=resume, device=device, task_word=task
    )
    config = run.config
    value = next((r["value"] for r in reversed(run.records()) if r["split"] == "val"), None)
    if value is None:
        raise UnseenError(f"{run.folder}/records.jsonl has lost its records: train the run again")
    result = {
        "run": str(run.folder),
        **{k: config[k] for k in ("task", "method", "preset", "seed")},
        "source_val": value,
    }
    if not emit(result, json_):
        show(f"{config['task']} {config['method']}", ["", ""], [["run", run.folder], ["held-out source", percent(value)]])
        own = f" --task {task}" if ":" in task else ""
        print(f"next: unseen evaluate {run.folder}{own}")


@app.command
def evaluate(run: Path, *, task: str | None = None, device: Device = "auto", json_: Json = False) -> None:
    """Accuracy of a run on every unseen domain, and on the held-out source.

    Parameters
    ----------
    run
        A finished run's folder.
    task
        Needed for a task of your own, as package.module:function.
    device
        Where to compute.
    json_
        One JSON document on stdout.
    """
    at = runs.Run(run)
    result = exam.evaluate(at, task_of(at, task), device)
    if emit(result, json_):
        return
    metric = next(k for k in result["source"] if k not in ("name", "n"))
    rows = [[f"{result['source']['name']} (source)", percent(result["source"][metric]), result["source"]["n"]]]
    rows += [[name, percent(d[metric]), d["n"]] for name, d in result["domains"].items()]
    rows.append(["average, unseen", percent(result["average"]), ""])
    show(f"{result['task']} {result['method']} seed {result['seed']}", ["domain", metric, "n"], rows)


@app.command
def score(
    run: Path,
    *,
    domain: str,
    batch: int | None = None,
    false_alarm_rate: float = 0.01,
    seed: int = 0,
    task: str | None = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """How far a domain is from the source, without labels, and whether to raise the alarm.

    Parameters
    ----------
    run
        A finished run's folder.
    domain
        A domain of the task; "source" is the held-out source.
    batch
        Score that many random samples instead of all; the threshold is for that many.
    false_alarm_rate
        How often a batch of the source may raise the alarm.
    seed
        Picks the samples of --batch.
    task
        Needed for a task of your own, as package.module:function.
    device
        Where to compute.
    json_
        One JSON document on stdout.
    """
    at = runs.Run(run)
    result = exam.score(at, task_of(at, task), domain, batch=batch, false_alarm_rate=false_alarm_rate, seed=seed, device=device)
    if result["fallback"]:
        say(f"this run has no learned sigma; the score is a fallback: {result['score_name']}")
    if not emit(result, json_):
        rows = [[k, f"{v:.4f}" if isinstance(v, float) else v] for k, v in result.items()]
        show("ALARM" if result["alarm"] else "no alarm", ["", ""], rows)


@app.command
def adapt(
    run: Path,
    *,
    domain: str,
    shots: int,
    draws: int = 5,
    steps: int = 100,
    lr: float = 1e-4,
    seed: int = 0,
    task: str | None = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Fine-tune on a few labels of an unseen domain, several times with fresh ones.

    Parameters
    ----------
    run
        A finished run's folder; it is not changed.
    domain
        An unseen domain of the task.
    shots
        Labelled samples per class.
    draws
        How often to draw them anew.
    steps
        Updates per draw.
    lr
        Learning rate of the updates.
    seed
        Picks the shots.
    task
        Needed for a task of your own, as package.module:function.
    device
        Where to compute.
    json_
        One JSON document on stdout.
    """
    at = runs.Run(run)
    result = exam.adapt(at, task_of(at, task), domain, shots, draws=draws, steps=steps, lr=lr, seed=seed, device=device)
    if emit(result, json_):
        return
    after = f"{percent(result['after_mean'])} ± {percent(result['after_std'])}"
    rows = [
        [domain, percent(result["before"]), after],
        ["source", percent(result["source_before"]), percent(result["source_after"])],
    ]
    show(f"{shots} labels a class, {draws} draws", ["accuracy", "before", "after"], rows)
    lost = result["source_before"] - result["source_after"]
    if lost > 0.005:
        say(f"adapting made the source worse by {percent(lost)} points")


@app.command
def demo(
    *,
    out: Path = Path("demo"),
    seed: int = 0,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Train plainly and uncertainty-guided on the embedded digits, compare them on unseen domains, draw a figure.

    Parameters
    ----------
    out
        Where runs and figure go.
    seed
        Owns every random number.
    set_
        One setting as key=value for both runs, e.g. --set steps=100 for a quick look.
    device
        Where to train.
    json_
        One JSON document on stdout.
    """
    result = demonstration.run(out, seed=seed, overrides=parse(set_ or []), device=device)
    if not emit(result, json_):
        demonstration.show_result(result)


@app.command
def bench(
    grid: Path,
    *,
    workers: int = 2,
    seeds: Annotated[list[int] | None, Parameter(negative="", consume_multiple=True)] = None,
    tables_only: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Run a grid of methods, seeds and settings, and write its tables. Exits with 1 if a run failed.

    Parameters
    ----------
    grid
        A TOML file, such as those under bench/.
    workers
        Runs at a time, one thread each.
    seeds
        These seeds instead of the grid's.
    tables_only
        Train nothing: write the tables of what is finished.
    json_
        One JSON document on stdout.
    """
    wanted = read_grid(grid) if seeds is None else replace(read_grid(grid), seeds=tuple(seeds))
    result = write_tables(wanted) if tables_only else run_grid(wanted, workers)
    if not emit(result, json_) and result["runs"]:
        print((wanted.results / "table.md").read_text())
    for label, said in result.get("failed", {}).items():
        say(f"{label} failed: {said}")
    if result["runs"] < result["wanted"]:
        say(f"{result['runs']} of {result['wanted']} runs are finished")
        sys.exit(1)


@app.command
def tasks(*, json_: Json = False) -> None:
    """The tasks there are.

    Parameters
    ----------
    json_
        One JSON document on stdout.
    """
    made = [make() for make in TASKS.values()]
    result = [
        {
            "name": t.name, "summary": t.summary, "source": t.source.name, "unseen": [d.name for d in t.targets],
            "presets": list(t.presets), "sites": list(t.sites), "embedding": t.embedding,
        }
        for t in made
    ]  # fmt: skip
    if not emit({"tasks": result}, json_):
        rows = [[t["name"], t["source"], ", ".join(t["unseen"]), ", ".join(t["presets"])] for t in result]
        show("tasks", ["name", "source", "unseen", "presets"], rows)


@app.command
def methods(*, json_: Json = False) -> None:
    """The methods there are, with their settings and defaults.

    Parameters
    ----------
    json_
        One JSON document on stdout.
    """
    result: list[dict[str, Any]] = [
        {
            "name": m.name, "summary": m.summary, "paper": m.paper,
            "settings": {name: plain(p.default) for name, p in m.settings_of().items()},
        }
        for m in METHODS.values()
    ]  # fmt: skip
    if emit({"methods": result}, json_):
        return
    for method in result:
        rows = [[name, default] for name, default in method["settings"].items()]
        show(f"{method['name']}: {method['summary']}\n{method['paper']}", ["setting", "default"], rows)


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def task_of(run: runs.Run, named: str | None) -> Task:
    """The run's task. One of the user's own is imported only if they name it on this command."""
    name = str(run.config.get("task_word", run.config.get("task")))
    if named is None and ":" in name:
        raise UnseenError(f"{run.folder} was trained on {name}, a task of your own: name it, --task {name}")
    return task_named(name if named is None else named)


def emit(result: dict[str, Any], as_json: bool) -> bool:
    """Print the result as the one JSON document on stdout, if that was asked for."""
    if as_json:
        print(json.dumps(result, indent=2))
    return as_json


def say(text: str) -> None:
    print(f"unseen: {text}", file=sys.stderr)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="unseen: %(message)s", stream=sys.stderr)
    keep_freed_memory()
    try:
        app(exit_on_error=False, print_error=False, error_console=Console(stderr=True))
    except (CycloptsError, UnseenError, OSError) as error:  # an OSError names its file: no space, no permission, no such folder
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        say("stopped; a training run goes on from its last checkpoint with --resume")
        sys.exit(130)


if __name__ == "__main__":
    main()
