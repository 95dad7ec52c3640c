"""The demo: train, evaluate, score and report on data that is bundled with the package."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from unseen.experiments.compare_scores import compare
from unseen.experiments.evaluate import evaluate
from unseen.experiments.score import score
from unseen.report.tables import percent, show
from unseen.report.write import write_report
from unseen.tasks import task_named
from unseen.training.train import train

METHODS = ("erm", "uncertainty_guided")
CHECKPOINTS = 2  # the report shows the accuracy on unseen domains during training
SHOWN = ("verdict", "score", "threshold", "alarm", "n", "p_value", "predicted_accuracy", "interval")
SAMPLES = 200  # per domain, in the comparison of scores


def run_demo(
    out: Path, *, seed: int = 0, overrides: dict[str, Any] | None = None, device: str = "auto"
) -> dict[str, Any]:
    """Train both methods on mini_digits, evaluate, score and report; finished runs are reused."""
    task = task_named("mini_digits")
    settings = {"num_checkpoints": CHECKPOINTS, **(overrides or {})}
    runs, results = {}, {}
    for method in METHODS:
        folder = out / f"{method}-seed{seed}"
        runs[method] = train(
            task, method, folder, overrides=settings, seed=seed, resume=True, device=device
        )
        results[method] = evaluate(runs[method], task, device, kept=True)
        shutil.rmtree(folder / "kept", ignore_errors=True)  # their metrics are in the records
    accuracy = {
        method: {
            task.source.name: result["source"]["accuracy"],
            **{name: domain["accuracy"] for name, domain in result["domains"].items()},
        }
        for method, result in results.items()
    }
    ours = runs["uncertainty_guided"]
    scores = {
        name: score(ours, task, name, device=device)
        for name in (task.source.name, *(d.name for d in task.targets))
    }
    compare([ours], task, out / "uncertainty", samples=SAMPLES, device=device, progress=False)
    folders = [*(run.folder for run in runs.values()), out / "uncertainty"]
    report = write_report(folders, out / "report")
    return {
        "accuracy": accuracy,
        "average": {method: result["average"] for method, result in results.items()},
        "uncertainty": {name: {key: s[key] for key in SHOWN} for name, s in scores.items()},
        "report": report["page"],
        "runs": {method: str(run.folder) for method, run in runs.items()},
    }


def show_result(result: dict[str, Any]) -> None:
    """Print the table, commands to try next and the path of the report."""
    rows = []
    for index, (domain, scored) in enumerate(result["uncertainty"].items()):
        rows.append(
            [
                f"{domain} (source, held out)" if index == 0 else domain,
                *(percent(result["accuracy"][method][domain]) for method in METHODS),
                "{} ({} to {})".format(
                    *map(percent, (scored["predicted_accuracy"], *scored["interval"]))
                ),
                scored["verdict"],
            ]
        )
    rows.append(["average, unseen", *(percent(result["average"][m]) for m in METHODS), "", ""])
    show(
        "accuracy in %, trained on the source only",
        ["domain", *METHODS, "predicted without labels (90 %)", "verdict"],
        rows,
    )
    run = result["runs"]["uncertainty_guided"]
    print("\nwhat to try next:")
    print(f"  unseen score {run} --domain street --batch 64   # judge 64 unlabelled images")
    print(f"  unseen adapt {run} --domain street --shots 10   # ten labels per class")
    print("  unseen train mini_digits --out runs/gaussian --set noise.kind=random_gaussian")
    print("  your own model: the example in README.md")
    print(f"\nthe report, with figures: {Path(result['report']).resolve()}")
