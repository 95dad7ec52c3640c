"""Results of `unseen compare-scores`: summary.json, table.md and the tables of the report page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from unseen.report.statistics import mean_and_std, rank_correlation
from unseen.report.tables.table import Cell, Measurement, Table
from unseen.report.tables.text import markdown, percent

# Variance between the passes of the Bayesian network, as in the paper, and total variance.
BAYES, BAYES_TOTAL = "bnn", "bnn_total"
SCORES_FILE = "scores.json"  # every value; the other files are derived from it
FEW_DOMAINS = 10  # with fewer, a rank correlation says little
METRICS = {
    "rank_correlation": "with error",
    "rank_correlation_bnn": "with bnn",
    "rank_correlation_bnn_total": "with bnn_total",
    "auroc": "AUROC",
    "fpr95": "FPR95",
    "ms_per_1000": "ms per 1,000",
    "cost_ratio": "cost ratio",
}
RunAndScore = tuple[Mapping[str, Any], Mapping[str, Any]]


def scores_by_seed(facts: Mapping[str, Any]) -> dict[str, dict[int, RunAndScore]]:
    """Return, for every score and seed, the run and the values of the score."""
    by_name: dict[str, dict[int, RunAndScore]] = {}
    for run in facts["runs"]:
        for name, score in run["scores"].items():
            by_name.setdefault(name, {})[run["seed"]] = (run, score)
    return by_name


def _domain_scores(facts: Mapping[str, Any], score: Mapping[str, Any]) -> list[float]:
    return [score["domains"][domain]["score"] for domain in facts["domains"]]


def _evaluate_score(
    facts: Mapping[str, Any],
    run: Mapping[str, Any],
    score: Mapping[str, Any],
    bayes: Mapping[str, Mapping[str, Any]],
) -> dict[tuple[str, str], float]:
    """Return the metrics of one score of one run by metric and domain.

    `bayes` has the Bayesian scores of the same seed. Undefined rank correlations are left out.
    """
    scores = _domain_scores(facts, score)
    errors = [1 - run["values"][domain] for domain in facts["domains"]]
    over_domains = {
        "rank_correlation": rank_correlation(scores, errors),
        **{
            f"rank_correlation_{name}": rank_correlation(scores, _domain_scores(facts, other))
            for name, other in bayes.items()
        },
        "ms_per_1000": score["ms_per_1000"],
        "cost_ratio": score["cost_ratio"],
    }
    values = {(metric, "average"): v for metric, v in over_domains.items() if v is not None}
    for metric in ("auroc", "fpr95"):
        by_domain = {domain: score["domains"][domain][metric] for domain in facts["domains"]}
        values |= {(metric, domain): value for domain, value in by_domain.items()}
        values[metric, "average"] = math.fsum(by_domain.values()) / len(by_domain)
    return values


def summarize(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each score, metric and domain: mean and standard deviation over seeds."""
    by_name, rows = scores_by_seed(facts), []
    for name, by_seed in by_name.items():
        values_by_seed = {}
        for seed, (run, score) in by_seed.items():
            others = [b for b in (BAYES, BAYES_TOTAL) if b != name and seed in by_name.get(b, {})]
            bayes = {b: by_name[b][seed][1] for b in others}
            values_by_seed[seed] = _evaluate_score(facts, run, score, bayes)
        for metric in METRICS:
            for domain in (*facts["domains"], "average"):
                values = {
                    seed: of_seed[metric, domain]
                    for seed, of_seed in values_by_seed.items()
                    if (metric, domain) in of_seed
                }
                if values:
                    mean, std = mean_and_std(list(values.values()))
                    rows.append({
                        "task": facts["task"], "variant": facts["variant"], "method": name,
                        "setting": "default", "domain": domain, "metric": metric,
                        "selection": "last", "mean": mean, "std": std, "seeds": list(values),
                    })  # fmt: skip
    return rows


def result_files(tasks: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return the files of a comparison by name, without its figures."""
    by_task = [summarize(facts) for facts in tasks]
    pages = (markdown_page(facts, rows) for facts, rows in zip(tasks, by_task, strict=True))
    texts = {
        SCORES_FILE: json.dumps({"tasks": list(tasks)}, indent=1) + "\n",
        "summary.json": json.dumps([row for rows in by_task for row in rows], indent=1) + "\n",
        "table.md": "\n".join(pages),
    }
    return {name: text.encode() for name, text in texts.items()}


def markdown_page(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the metrics of each score, and the scores of each domain, as Markdown."""
    seeds = sorted({run["seed"] for run in facts["runs"]})
    count = len(facts["domains"])
    spread = "95 % bootstrap interval over samples" if len(seeds) == 1 else "std over seeds"
    parts = [
        f"# {facts['task']}/{facts['variant']}: uncertainty scores",
        f"{count} unseen domains, at most {facts['samples']} samples of each (seed "
        f"{facts['seed']}). Training seeds {', '.join(map(str, seeds))}; mean ± std over seeds. "
        f"Times on {facts['device']}, {facts['threads']} thread(s), under the machine's load at "
        "the time.",
        markdown(["score", *METRICS.values()], _metric_rows(rows, with_std=True)),
        "*With error*, *with bnn*: Spearman's rank correlation over unseen domains of the domain "
        "score with the error of the same model, and with the score of the Bayesian network of the "
        "same seed (`bnn`: variance between passes, as in the paper; `bnn_total`: total predictive "
        "variance). *AUROC*, *FPR95*: single source samples against those of each domain, averaged "
        "over domains. *Cost ratio*: time of prediction and score, relative to prediction alone.",
    ]
    if count < FEW_DOMAINS:
        parts.append(
            f"With {count} unseen domains a rank correlation takes few values: chance alone gives "
            f"a perfect one with probability 1/{math.factorial(count)}."
        )
    parts += [f"Domain scores; in brackets the {spread}:", _markdown_by_domain(facts)]
    return "\n\n".join(parts) + "\n"


def _metric_rows(rows: Sequence[Mapping[str, Any]], with_std: bool) -> list[list[str]]:
    """Return a row for each score with all metrics averaged over domains."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["domain"] == "average":
            digits = 1 if row["metric"] == "ms_per_1000" else 2
            std = f" ± {row['std']:.{digits}f}" if with_std and len(row["seeds"]) > 1 else ""
            cells.setdefault(row["method"], {})[row["metric"]] = f"{row['mean']:.{digits}f}{std}"
    return [[name, *(values.get(m, "-") for m in METRICS)] for name, values in cells.items()]


def _methods(facts: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(run["method"] for run in facts["runs"]))


def _values(facts: Mapping[str, Any], method: str, domain: str) -> list[float]:
    return [run["values"][domain] for run in facts["runs"] if run["method"] == method]


def _label(facts: Mapping[str, Any], domain: str) -> str:
    is_source = domain == facts["source"] and domain != "source"
    return f"{domain} (source)" if is_source else domain


def _markdown_by_domain(facts: Mapping[str, Any]) -> str:
    by_name, methods = scores_by_seed(facts), _methods(facts)
    rows = []
    for domain in (facts["source"], *facts["domains"]):
        values = [percent(mean_and_std(_values(facts, m, domain))[0]) for m in methods]
        scores = [
            _score_cell([score["domains"][domain] for _, score in by_seed.values()])
            for by_seed in by_name.values()
        ]
        rows.append([_label(facts, domain), *values, *scores])
    header = ["domain", *(f"{facts['metric']} {method}, %" for method in methods), *by_name]
    return markdown(header, rows)


def _score_cell(values: Sequence[Mapping[str, float]]) -> str:
    mean, std = mean_and_std([value["score"] for value in values])
    if len(values) == 1:
        return f"{mean:.3g} ({values[0]['low']:.3g} to {values[0]['high']:.3g})"
    return f"{mean:.3g} ({std:.2g})"


def mean_scores(facts: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return a score of each domain, the source included, over seeds; empty if no run has it."""
    by_seed = [score["domains"] for _, score in scores_by_seed(facts).get(name, {}).values()]
    if not by_seed:
        return {}
    return {d: mean_and_std([domains[d]["score"] for domains in by_seed])[0] for d in by_seed[0]}


def score_tables(facts: Mapping[str, Any], title: str) -> list[Table]:
    """Return the tables of one comparison for the report page."""
    by_name, methods = scores_by_seed(facts), _methods(facts)
    rows: list[list[Cell]] = []
    for domain in (facts["source"], *facts["domains"]):
        values = [Measurement.of(_values(facts, m, domain)) for m in methods]
        scores = (f"{mean_scores(facts, name)[domain]:.4g}" for name in by_name)
        rows.append([_label(facts, domain), *values, *scores])
    header = [
        "domain",
        *(f"{facts['metric']} of {m}, %" for m in methods),
        *(f"score {name}" for name in by_name),
    ]
    caption = "Metric of each model and each score by domain. Higher: less like the source."
    metrics: list[list[Cell]] = [list(row) for row in _metric_rows(summarize(facts), False)]
    explanation = (
        "With error, with bnn: rank correlation over domains of the score with the model's error "
        "and with the Bayesian network's score. AUROC: probability that a sample of an unseen "
        "domain scores above a source sample (chance: 0.5). FPR95: fraction of unseen samples "
        "accepted by the threshold that accepts 95 % of the source. Cost ratio: time of prediction "
        "and score, relative to prediction alone."
    )
    return [
        Table("Scores by domain", header, rows, caption, title),
        Table("Comparison of scores", ["score", *METRICS.values()], metrics, explanation, title),
    ]
