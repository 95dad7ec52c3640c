"""Seconds of training until runs first reach given accuracies on unseen domains.

    python benchmarks/time_to_accuracy.py runs/lead_digits/*seed0 [--at 60 70 75 79] [--json]

Reads finished runs with kept checkpoints (`num_checkpoints`) that `unseen bench` or `unseen
evaluate` has evaluated. The time is that of the training steps up to a checkpoint, one thread, by
the run's own records; evaluations are not in it. Runs that shared the machine with other work are
slower than they would be alone: compare runs of one grid.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from unseen.errors import UnseenError
from unseen.report.tables import show
from unseen.training.run import Run


def curve(run: Run) -> list[tuple[int, float, float]]:
    """Return steps, seconds of training so far and mean metric over unseen domains, in percent."""
    config, records = run.config, run.records()
    per_step = {
        r["step"]: r["value"] for r in records if r["metric"] == "seconds_per_step"
    }  # each of the steps since the last record
    seconds, before, spent = {}, 0, 0.0
    for step in sorted(per_step):
        spent += per_step[step] * (step - before)
        seconds[step] = spent
        before = step
    source = {r["domain"] for r in records if r["split"] in ("train", "val")}
    values: dict[int, list[float]] = {}
    for r in records:
        if r["split"] == "test" and r["metric"] == "accuracy" and r["domain"] not in source:
            values.setdefault(r["step"], []).append(100 * r["value"])
    if len(values) < 2 or not seconds:
        raise UnseenError(
            f"{run.folder} has {len(values)} evaluated checkpoints: train it with "
            f"--set num_checkpoints=10 and evaluate them with unseen bench (task {config['task']})"
        )
    return [(step, seconds[max(s for s in seconds if s <= step)], mean(values[step]))
            for step in sorted(values)]  # fmt: skip


def first_reached(points: list[tuple[int, float, float]], level: float) -> float | None:
    """Return the seconds of the first checkpoint at or above a level."""
    return next((seconds for _, seconds, value in points if value >= level), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--at", type=float, nargs="+", default=[60, 70, 75, 79], help="percent")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for folder in (f for f in args.runs if f.is_dir()):
        points = curve(Run(folder))
        rows.append(
            {
                "run": folder.name,
                "seconds_to": {f"{level:g}": first_reached(points, level) for level in args.at},
                "best": max(value for _, _, value in points),
                "curve": [
                    {"step": step, "seconds": seconds, "accuracy": value}
                    for step, seconds, value in points
                ],
            }
        )
    if args.json:
        print(json.dumps({"runs": rows}, indent=2))
        return
    show(
        "seconds of training to a mean accuracy over unseen domains",
        ["run", *(f"{level:g} %" for level in args.at), "seconds in all", "highest"],
        [
            [
                row["run"],
                *(f"{s:.0f}" if s is not None else "-" for s in row["seconds_to"].values()),
                f"{row['curve'][-1]['seconds']:.0f}",
                f"{row['best']:.1f}",
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    try:
        main()
    except UnseenError as error:
        sys.exit(f"error: {error}")
