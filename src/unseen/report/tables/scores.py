"""Uncertainty scores over domains, from plain numbers: rank correlations, how well source and target are told apart, tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from unseen.report.statistics import mean_and_std, rank_correlation
from unseen.report.tables import markdown, percent
from unseen.report.tables.grid import as_csv

BAYES, BAYES_TOTAL = (
    "bnn",
    "bnn_total",
)  # the variance between passes, as the paper has it, and that of the label itself
SCORES_FILE = "scores.json"  # all that is known; the other files are made of it
FEW = 10  # domains; with fewer a rank correlation says little
METRICS = {
    "rank_correlation": "with error",
    "rank_correlation_bnn": "with bnn",
    "rank_correlation_bnn_total": "with bnn_total",
    "auroc": "AUROC",
    "fpr95": "FPR95",
    "ms_per_1000": "ms per 1,000",
    "cost_ratio": "x plain",
}

# ---------------------------------------------------------------------------------------------------- what is measured


# ---


def scores_by_seed(
    facts: Mapping[str, Any],
) -> dict[str, dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """For every score and seed, the run it is read off and what it gave there."""
    found: dict[str, dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for run in facts["runs"]:
        for name, score in run["scores"].items():
            found.setdefault(name, {})[run["seed"]] = (run, score)
    return found


def errors(facts: Mapping[str, Any], run: Mapping[str, Any]) -> list[float]:
    """1 - the metric on each unseen domain."""
    return [1 - run["values"][domain] for domain in facts["domains"]]


def domain_scores(facts: Mapping[str, Any], score: Mapping[str, Any]) -> list[float]:
    return [score["domains"][domain]["score"] for domain in facts["domains"]]


def figures_of(
    facts: Mapping[str, Any],
    run: Mapping[str, Any],
    score: Mapping[str, Any],
    bayes: Mapping[str, Mapping[str, Any]],
) -> dict[tuple[str, str], float]:
    """What one score of one run is worth, by metric and domain; a rank correlation that is not defined is left out.

    `bayes` has what the Bayesian network of the same seed said, by the score's name.
    """
    ours = domain_scores(facts, score)
    over_domains = {
        "rank_correlation": rank_correlation(ours, errors(facts, run)),
        **{
            f"rank_correlation_{name}": rank_correlation(ours, domain_scores(facts, theirs))
            for name, theirs in bayes.items()
        },
        "ms_per_1000": score["ms_per_1000"],
        "cost_ratio": score["cost_ratio"],
    }
    found = {
        (metric, "average"): value for metric, value in over_domains.items() if value is not None
    }
    for metric in ("auroc", "fpr95"):
        by_domain = {domain: score["domains"][domain][metric] for domain in facts["domains"]}
        found |= {(metric, domain): value for domain, value in by_domain.items()}
        found[metric, "average"] = math.fsum(by_domain.values()) / len(by_domain)
    return found


def summarize(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each score, metric and domain: mean and standard deviation over seeds."""
    every, rows = scores_by_seed(facts), []
    for name, by_seed in every.items():
        others = [b for b in (BAYES, BAYES_TOTAL) if b != name]
        found = {
            seed: figures_of(
                facts,
                run,
                score,
                {b: every[b][seed][1] for b in others if seed in every.get(b, {})},
            )
            for seed, (run, score) in by_seed.items()
        }
        for metric in METRICS:
            for domain in (*facts["domains"], "average"):
                values = {
                    seed: figures[metric, domain]
                    for seed, figures in found.items()
                    if (metric, domain) in figures
                }
                if values:
                    mean, std = mean_and_std(list(values.values()))
                    rows.append({
                        "task": facts["task"], "variant": facts["variant"], "method": name, "setting": "default",
                        "domain": domain, "metric": metric, "selection": "last", "mean": mean, "std": std,
                        "seeds": list(values),
                    })  # fmt: skip
    return rows


def result_files(tasks: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """The files of a comparison on one task or several, by name, the figures aside."""
    by_task = [summarize(facts) for facts in tasks]
    rows = [row for of_task in by_task for row in of_task]
    texts = {
        SCORES_FILE: json.dumps({"tasks": list(tasks)}, indent=1) + "\n",
        "summary.json": json.dumps(rows, indent=1) + "\n",
        "table.csv": as_csv(rows),
        "table.md": "\n".join(
            markdown_page(facts, of_task) for facts, of_task in zip(tasks, by_task, strict=True)
        ),
    }
    return {name: text.encode() for name, text in texts.items()}


def markdown_page(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Both tables as one page of Markdown: what each score is worth, and what it says of each domain."""
    seeds = sorted({run["seed"] for run in facts["runs"]})
    told = [
        f"# {facts['task']}/{facts['variant']}: uncertainty scores",
        f"{len(facts['domains'])} unseen domains, at most {facts['samples']} samples of each (seed {facts['seed']}); runs with "
        f"seeds {', '.join(map(str, seeds))}; mean ± std over seeds. Times on {facts['device']}, {facts['threads']} thread(s), "
        "on whatever else the machine was doing: the ratio was taken round by round against one plain prediction.",
        _worth(rows),
        "*With error*, *with bnn*: Spearman's rank correlation, over unseen domains, of a domain's score with the error there of "
        "the model that the score is read off, and with the bnn's score of the same seed: `bnn` is the variance between its "
        "passes, as in the paper, `bnn_total` that of the label itself. *AUROC*, *FPR95*: single samples of the source against "
        "each domain's, averaged over domains. *x plain*: prediction and score, in plain predictions.",
    ]
    if (n := len(facts["domains"])) < FEW:
        told.append(
            f"There are only {n} unseen domains: a rank correlation takes few values then, and chance alone gives a perfect one "
            f"once in {math.factorial(n)} times."
        )
    told += [f"A domain's score; in brackets {_spread_said(seeds)}:", _by_domain(facts)]
    return "\n\n".join(told) + "\n"


def _worth(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row for each score."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["domain"] == "average":
            digits = 1 if row["metric"] == "ms_per_1000" else 2
            spread = f" ± {row['std']:.{digits}f}" if len(row["seeds"]) > 1 else ""
            cells.setdefault(row["method"], {})[row["metric"]] = f"{row['mean']:.{digits}f}{spread}"
    return markdown(
        ["score", *METRICS.values()],
        [[name, *(of.get(m, "-") for m in METRICS)] for name, of in cells.items()],
    )


def _spread_said(seeds: Sequence[int]) -> str:
    return (
        "its 95 % bootstrap interval over samples"
        if len(seeds) == 1
        else "the standard deviation over seeds"
    )


def _by_domain(facts: Mapping[str, Any]) -> str:
    """A row for each domain: the metric of each model, then each score."""
    every = scores_by_seed(facts)
    models = list(dict.fromkeys(run["method"] for run in facts["runs"]))
    body = []
    for domain in (facts["source"], *facts["domains"]):
        values = [
            mean_and_std([r["values"][domain] for r in facts["runs"] if r["method"] == method])[0]
            for method in models
        ]
        cells = [
            _score_cell([score["domains"][domain] for _, score in by_seed.values()])
            for by_seed in every.values()
        ]
        label = f"{domain} (source)" if domain == facts["source"] else domain
        body.append([label, *map(percent, values), *cells])
    return markdown(
        ["domain", *(f"{facts['metric']} {method}, %" for method in models), *every], body
    )


def _score_cell(found: Sequence[Mapping[str, float]]) -> str:
    mean, std = mean_and_std([of["score"] for of in found])
    inside = f"{found[0]['low']:.3g} to {found[0]['high']:.3g}" if len(found) == 1 else f"{std:.2g}"
    return f"{mean:.3g} ({inside})"
