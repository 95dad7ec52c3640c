"""`unseen estimate`: label-free accuracy estimates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from unseen.checks import check_fraction
from unseen.cli.options import (
    Count,
    Device,
    Flag,
    Json,
    OwnData,
    RunFolder,
    TaskWord,
    emit,
    only_domain,
    say,
    task_of,
)
from unseen.errors import UnseenError
from unseen.experiments.estimate_accuracy import COMBINED, estimate_run
from unseen.report.tables import percent, show
from unseen.report.tables.estimates import write_estimates
from unseen.training.run import Run

SHOWN = ("doc", "atc", "correctness")  # signals in the table beside the combined estimate


def estimate(
    *runs: RunFolder,
    domain: str | None = None,
    all_: Annotated[bool, Flag] = False,
    level: float = 0.9,
    samples: Count = 2000,
    out: Path | None = None,
    task: TaskWord = None,
    own: OwnData = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Estimate the accuracy on a domain without labels, beside what each signal alone says.

    The first call for a run fits the estimator with synthetic shifts of held-out source data and
    saves it in the run's folder.

    Parameters
    ----------
    domain
        A domain of the task. Optional if --data has one.
    all_
        Every domain of the task, with the errors of the estimates.
    level
        Coverage of the interval.
    samples
        Random samples of each domain, at most.
    out
        With --all: folder for summary.json and table.md; mean over several runs.
    """
    if not runs:
        raise UnseenError("name a finished run: unseen estimate RUN --domain NAME, or --all")
    given = own is not None and own.data is not None
    if (domain is None) != all_ and not (given and not all_):
        raise UnseenError("name one domain with --domain, or use --all")
    if out is not None and not all_:
        raise UnseenError("--out writes tables of all domains: add --all")
    check_fraction("--level", level)
    results = []
    for run in map(Run, runs):
        chosen = task_of(run, task, own)
        domains = None if all_ else [only_domain(chosen, domain)]
        results.append(
            estimate_run(run, chosen, domains, level=level, samples=samples, device=device)
        )
    if out is not None:
        words = ["unseen estimate", *map(str, runs), "--all --out", str(out)]
        words += [] if samples == 2000 else ["--samples", str(samples)]
        write_estimates(out, results, " ".join(words + ([] if task is None else ["--task", task])))
    if any(r["fallback"] for r in results):
        say(f"no learned sigma; the score is a fallback: {results[0]['score_name']}")
    if not emit(results[0] if len(results) == 1 else {"runs": results}, json_):
        for result in results:
            _show(result)


def _show(result: dict[str, Any]) -> None:
    rows = []
    for name, d in result["domains"].items():
        low, high = map(percent, d["interval"])
        accuracy = percent(d["accuracy"]) if "accuracy" in d else "unknown"
        estimates = d["estimates"]
        rows.append(
            [
                name,
                accuracy,
                percent(estimates[COMBINED]),
                f"{low} to {high}",
                *(percent(estimates[n]) for n in SHOWN),
            ]
        )
    if len(rows) > 1 and (errors := result["mean_absolute_error"]):
        shown = [percent(errors[n]) for n in (COMBINED, *SHOWN)]
        rows.append(["mean error", "", shown[0], "", *shown[1:]])
    run = f"{result['task']} {result['method']} seed {result['seed']}"
    level = percent(result["level"])
    show(
        f"{run}: label-free accuracy estimates, %; --json has every signal",
        ["domain", "true", COMBINED, f"{level} % interval", *SHOWN],
        rows,
    )
    if beyond := [name for name, d in result["domains"].items() if d["extrapolates"]]:
        say(
            f"{', '.join(beyond)}: further from every synthetic shift than those are from each "
            "other; the accuracy may be as low as chance"
        )
