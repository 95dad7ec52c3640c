"""The main job on embedded data, from training to a report."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from unseen.experiments import evaluate as exam
from unseen.experiments.compare_scores import compare
from unseen.report.tables import percent, show
from unseen.report.write import write_report
from unseen.tasks import task_named
from unseen.training import train as training

METHODS = ("erm", "uncertainty_guided")
KEPT = 3  # weights kept on the way: the report shows how unseen domains fared while the source was learned


def run_demo(
    out: Path, *, seed: int = 0, overrides: dict[str, Any] | None = None, device: str = "auto"
) -> dict[str, Any]:
    """Train both methods on mini_digits, evaluate, score, report; runs that are already there are not trained again."""
    task = task_named("mini_digits")
    settings = {"num_checkpoints": KEPT, **(overrides or {})}
    trained = {}
    for method in METHODS:
        folder = out / f"{method}-seed{seed}"
        trained[method] = training.train(
            task, method, folder, overrides=settings, seed=seed, resume=True, device=device
        )
    results = {
        method: exam.evaluate(done, task, device, kept=True) for method, done in trained.items()
    }
    for done in trained.values():
        shutil.rmtree(
            done.folder / "kept", ignore_errors=True
        )  # examined: their figures are in the records now
    accuracy = {
        method: {
            task.source.name: r["source"]["accuracy"],
            **{d: v["accuracy"] for d, v in r["domains"].items()},
        }
        for method, r in results.items()
    }
    names = [task.source.name, *(d.name for d in task.targets)]
    scores = {
        name: exam.score(trained["uncertainty_guided"], task, name, device=device) for name in names
    }
    compare(
        [trained["uncertainty_guided"]],
        task,
        out / "uncertainty",
        samples=300,
        device=device,
        progress=False,
    )
    report = write_report(
        [*(done.folder for done in trained.values()), out / "uncertainty"], out / "report"
    )
    return {
        "accuracy": accuracy,
        "average": {method: r["average"] for method, r in results.items()},
        "uncertainty": {
            n: {k: s[k] for k in ("score", "threshold", "alarm", "n")} for n, s in scores.items()
        },
        "report": report["page"],
        "runs": {method: str(done.folder) for method, done in trained.items()},
    }


def show_result(result: dict[str, Any]) -> None:
    """The table, what to try next, and the path of the report."""
    uncertainty = result["uncertainty"]
    domains = list(uncertainty)
    rows = []
    for index, domain in enumerate(domains):
        values = [percent(result["accuracy"][m][domain]) for m in METHODS]
        alarm = "ALARM" if uncertainty[domain]["alarm"] else "-"
        name = f"{domain} (source, held out)" if index == 0 else domain
        rows.append([name, *values, f"{uncertainty[domain]['score']:.3f}", alarm])
    rows.append(["average, unseen", *(percent(result["average"][m]) for m in METHODS), "", ""])
    show(
        "accuracy in %, trained on the source only",
        ["domain", *METHODS, "domain uncertainty", ""],
        rows,
    )
    run = result["runs"]["uncertainty_guided"]
    print("\nwhat to try next:")
    print(
        f"  unseen score {run} --domain street --batch 64     # would 64 unlabelled images have warned you?"
    )
    print(f"  unseen adapt {run} --domain street --shots 10     # ten labels a class")
    print(
        "  unseen train mini_digits --out runs/mine --set noise.kind=random_gaussian   # an ablation"
    )
    print("  your own model: the example in README.md")
    print(f"\nthe report, with figures: {Path(result['report']).resolve()}")
