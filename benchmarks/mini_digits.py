"""ERM against uncertainty_guided on mini_digits, over several seeds at equal steps: the table in results/mini_digits/.

    python benchmarks/mini_digits.py --seeds 0 1 2 --workers 2 --runs runs/mini_digits --out results/mini_digits

One thread per worker. Runs that are already there are not trained again. `--variants` names what is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from unseen.experiments.evaluate import evaluate, score
from unseen.report.statistics import mean_and_std
from unseen.report.tables import markdown, percent
from unseen.tasks import task_named
from unseen.training.run import Run

PRINTED_SIGN = ["--set", "noise.sign=positive", "--set", "noise.scale=8"]
TWO_SITES = ["--method", "uncertainty_guided", "--set", "sites=conv1,conv2", *PRINTED_SIGN]
VARIANTS: dict[str, list[str]] = {
    "erm": ["--method", "erm"],
    "uncertainty_guided": ["--method", "uncertainty_guided"],
    # Noise at both sites and of one sign, as the paper has it, and the two ways in which the second site's head can read.
    "two_sites_clean": [*TWO_SITES, "--set", "noise.head_input=clean"],
    "two_sites_perturbed": [*TWO_SITES, "--set", "noise.head_input=perturbed"],
}
MAIN = ["erm", "uncertainty_guided"]


def unseen(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "unseen.cli", *words, "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"unseen {' '.join(words)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def measured(variant: str, seed: int, runs: Path) -> dict[str, Any]:
    folder = str(runs / f"{variant}-seed{seed}")
    unseen(
        "train", "mini_digits", *VARIANTS[variant], "--seed", str(seed), "--out", folder, "--resume"
    )
    run = Run(folder)
    per_step = [r for r in run.records() if r["metric"] == "seconds_per_step"][-1]
    seconds = per_step["value"] * per_step["step"]
    task = task_named("mini_digits")
    evaluated = evaluate(run, task)
    domains = [evaluated["source"]["name"], *evaluated["domains"]]
    scores = {name: score(run, task, name) for name in domains}
    print(
        f"{variant} seed {seed}: average {percent(evaluated['average'])} in {seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return {
        "variant": variant,
        "seed": seed,
        "evaluated": evaluated,
        "scores": scores,
        "seconds": seconds,
        "commit": run.config["commit"],
    }


def summary(results: list[dict[str, Any]], variants: list[str]) -> list[dict[str, Any]]:
    rows = []
    for variant in variants:
        mine = [r for r in results if r["variant"] == variant]
        method = "erm" if variant == "erm" else "uncertainty_guided"
        values = {
            d: [r["evaluated"]["domains"][d]["accuracy"] for r in mine]
            for d in mine[0]["evaluated"]["domains"]
        }
        values["average"] = [r["evaluated"]["average"] for r in mine]
        for domain, of_seeds in values.items():
            mean, std = mean_and_std(of_seeds)
            rows.append(
                {
                    "task": "mini_digits", "variant": "default", "method": method, "domain": domain, "metric": "accuracy",
                    "setting": "default" if variant in MAIN else variant, "selection": "last", "mean": mean, "std": std,
                    "seeds": [r["seed"] for r in mine],
                }
            )  # fmt: skip
    return rows


def table(results: list[dict[str, Any]], variants: list[str]) -> str:
    first = results[0]
    domains = list(first["evaluated"]["domains"])
    rows = []
    for variant in variants:
        mine = [r for r in results if r["variant"] == variant]
        columns = [[r["evaluated"]["source"]["accuracy"] for r in mine]]
        columns += [[r["evaluated"]["domains"][d]["accuracy"] for r in mine] for d in domains]
        columns += [[r["evaluated"]["average"] for r in mine]]
        cells = ["{:.1f} ± {:.1f}".format(*(100 * v for v in mean_and_std(c))) for c in columns]
        rows.append([variant, *cells, f"{mean_and_std([r['seconds'] for r in mine])[0]:.0f}"])
    accuracy = markdown(
        ["accuracy, %", "source (held out)", *domains, "average, unseen", "seconds a run"], rows
    )
    per_seed = [
        [r["variant"], r["seed"], percent(r["evaluated"]["average"])]
        for r in sorted(results, key=lambda r: (r["variant"], r["seed"]))
    ]
    scored = [r for r in results if r["variant"] == "uncertainty_guided"]
    alarms = [
        [
            name,
            *(
                f"{r['scores'][name]['score']:.3f}{' ALARM' if r['scores'][name]['alarm'] else ''}"
                for r in scored
            ),
        ]
        for name in first["scores"]
    ]
    uncertainty = (
        markdown(["domain uncertainty", *(f"seed {r['seed']}" for r in scored)], alarms)
        if scored
        else ""
    )
    return (
        "\n\n".join(
            [accuracy, markdown(["variant", "seed", "average, unseen"], per_seed), uncertainty]
        )
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=MAIN)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/mini_digits"))
    parser.add_argument("--out", type=Path, default=Path("results/mini_digits"))
    args = parser.parse_args()
    jobs = [(variant, seed) for seed in args.seeds for variant in args.variants]
    with ThreadPoolExecutor(args.workers) as pool:
        results = list(pool.map(lambda job: measured(*job, args.runs), jobs))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "summary.json").write_text(
        json.dumps(summary(results, args.variants), indent=2) + "\n"
    )
    configs = {v: Run(args.runs / f"{v}-seed{args.seeds[0]}").config for v in args.variants}
    facts = {
        "configurations": {
            v: {k: c[k] for k in ("loop", "settings", "versions", "device")}
            for v, c in configs.items()
        }
    }
    (args.out / "runs.json").write_text(
        json.dumps({"command": " ".join(sys.argv), **facts, "results": results}, indent=2) + "\n"
    )
    text = table(results, args.variants)
    (args.out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
