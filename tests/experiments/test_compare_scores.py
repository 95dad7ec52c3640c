"""Scores compared over domains: files, rows, what is correlated with what, costs, and errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import TinyNet
from torch.utils.data import TensorDataset

from unseen import Domain, Task, UnseenError
from unseen.cli.uncertainty import uncertainty
from unseen.detection.registry import SCORES
from unseen.experiments.compare_scores import alternating_seconds, compare, random_samples
from unseen.experiments.evaluate import recalibrate
from unseen.report.figures.scores import draw_scores, figure_name, group_domains
from unseen.report.statistics import auroc, rank_correlation
from unseen.report.tables.scores import markdown_page, summarize
from unseen.training.run import Run
from unseen.training.train import train

QUICK = {
    # With noise that only adds, sixty steps are enough for a score that tells single samples apart.
    "uncertainty_guided": {
        "warmup": 4,
        "adversary": {"rounds": 1, "steps": 2},
        "draws": 1,
        "noise": {"sign": "positive", "scale": 8.0},
    },
    "bnn": {"passes": 4, "sigma_start": 0.3},
    "mc_dropout": {"passes": 4},
}
SHIFTS = {"near/1": 0.2, "near/2": 0.6, "far/1": 1.5, "far/2": 3.0}


def samples(split, shift=0.0, n=60):
    """Noise, and a class by where the light falls; a shift is noise on top."""
    g = torch.Generator().manual_seed({"train": 0, "val": 1, "test": 2}[split])
    y = torch.arange(n) % 3
    x = 0.3 * torch.randn(n, 2, 8, 8, generator=g)
    for i, label in enumerate(y):
        x[i, :, 2 * label : 2 * label + 3] += 1.0
    return TensorDataset(x + shift * torch.randn(x.shape, generator=g), y)


def tiny_task():
    return Task(
        name="light", summary="a toy", classes=3, model=TinyNet, sites=("conv1",), embedding="fc1",
        source=Domain("lit", samples),
        targets=tuple(Domain(name, lambda split, s=s: samples(split, s)) for name, s in SHIFTS.items()),
        presets={"fast": {"steps": 60, "batch": 20, "lr": 1e-2, **QUICK}},
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    made = {}
    for method, seeds in (
        ("uncertainty_guided", (0, 1)),
        ("bnn", (0, 1)),
        ("mc_dropout", (0,)),
        ("erm", (0,)),
    ):
        for seed in seeds:
            made[method, seed] = train(
                tiny_task(), method, root / f"{method}{seed}", seed=seed, progress=False
            )
    return made


@pytest.fixture(scope="module")
def compared(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "results"
    wanted = [made for (method, _), made in runs.items() if method != "erm"]
    result = compare(wanted, tiny_task(), out, samples=50, progress=False)
    return out, result, json.loads((out / "scores.json").read_text())["tasks"][0]


def test_every_file_is_there_and_none_is_half_written(compared):
    out, result, _ = compared
    files = ["scores.json", "summary.json", "table.md", "figure-light.png"]
    assert result["files"] == files and sorted(p.name for p in out.iterdir()) == sorted(files)
    assert (out / "figure-light.png").read_bytes()[:4] == b"\x89PNG"
    rows = json.loads((out / "summary.json").read_text())
    assert rows == result["summary"]


def test_the_summary_has_a_row_for_each_score_metric_and_domain(compared):
    rows = compared[1]["summary"]
    keys = {
        "task",
        "variant",
        "method",
        "setting",
        "domain",
        "metric",
        "selection",
        "mean",
        "std",
        "seeds",
    }
    assert all(row.keys() == keys for row in rows)
    assert {row["method"] for row in rows} == set(SCORES)
    at = {(row["method"], row["metric"], row["domain"]): row for row in rows}
    assert len(at) == len(rows)
    for name in SCORES:
        for metric in ("auroc", "fpr95"):
            values = [at[name, metric, domain]["mean"] for domain in SHIFTS]
            assert (
                at[name, metric, "average"]["mean"] == pytest.approx(sum(values) / 4)
                and 0 <= min(values) <= max(values) <= 1
            )
        assert (
            at[name, "cost_ratio", "average"]["mean"] > 0
            and (name, "cost_ratio", "near/1") not in at
        )
        for bayes in ("bnn", "bnn_total"):
            assert ((name, f"rank_correlation_{bayes}", "average") in at) == (name != bayes)
    assert at["msp", "auroc", "average"]["seeds"] == [0, 1] and at[
        "mc_dropout", "auroc", "average"
    ]["seeds"] == [0]


def test_the_figures_are_those_of_the_runs_own_scores(compared, runs):
    _, result, facts = compared
    task, made = tiny_task(), runs["uncertainty_guided", 1]
    net = made.load(task)
    part = {d.name: random_samples(d.load("test"), 50, 0) for d in (task.source, *task.targets)}
    told = next(r for r in facts["runs"] if r["method"] == "uncertainty_guided" and r["seed"] == 1)
    for name, batches in part.items():
        x, y = torch.cat([b.x[0] for b in batches]), torch.cat([b.y for b in batches])
        assert len(y) == 50
        assert told["values"][name] == pytest.approx(
            float((net.predict(x).argmax(1) == y).float().mean())
        )
        found = told["scores"]["uncertainty_guided"]["domains"][name]
        assert (
            found["score"] == pytest.approx(net.domain_score(x), rel=1e-4)
            and found["low"] < found["score"] < found["high"]
        )
    source, far = (
        torch.cat([net.uncertainty(b.x) for b in part[name]]).numpy() for name in ("lit", "far/2")
    )
    assert told["scores"]["uncertainty_guided"]["domains"]["far/2"]["auroc"] == pytest.approx(
        auroc(source, far)
    )
    # Against the error of the same run, against the bnn of the same seed, then the mean over seeds.
    of = {(r["method"], r["seed"]): r for r in facts["runs"]}
    by_seed = []
    for seed in (0, 1):
        ours = [
            of["uncertainty_guided", seed]["scores"]["energy"]["domains"][d]["score"]
            for d in SHIFTS
        ]
        theirs = [
            [of["bnn", seed]["scores"][b]["domains"][d]["score"] for d in SHIFTS]
            for b in ("bnn", "bnn_total")
        ]
        by_seed.append([rank_correlation(ours, scores) for scores in theirs])
    for bayes, (first, second) in zip(
        ("bnn", "bnn_total"), zip(*by_seed, strict=True), strict=True
    ):
        row = next(
            r
            for r in result["summary"]
            if (r["method"], r["metric"]) == ("energy", f"rank_correlation_{bayes}")
        )
        assert row["mean"] == pytest.approx((first + second) / 2)


def test_a_strong_shift_is_told_from_the_source_and_a_bnn_costs_its_passes(compared):
    at = {(r["method"], r["metric"], r["domain"]): r["mean"] for r in compared[1]["summary"]}
    assert (
        at["uncertainty_guided", "auroc", "far/2"]
        > 0.85
        > at["uncertainty_guided", "auroc", "near/1"]
    )
    assert at["mahalanobis", "fpr95", "far/2"] < 0.1
    assert at["bnn", "cost_ratio", "average"] > 2.5  # four passes
    assert at["bnn", "cost_ratio", "average"] > at["msp", "cost_ratio", "average"]


def test_the_page_says_how_little_few_domains_tell(compared):
    out, _, facts = compared
    text = (out / "table.md").read_text()
    assert (
        "With 4 unseen domains" in text
        and "probability 1/24" in text
        and "| far/2 |" in text
        and "lit (source)" in text
    )
    many = {**facts, "domains": [f"d{i}" for i in range(12)]}
    for one in many["runs"]:
        one["values"] |= {d: 0.5 for d in many["domains"]}
        for score in one["scores"].values():
            score["domains"] |= {d: score["domains"]["far/1"] for d in many["domains"]}
    rows = summarize(many)
    assert "a rank correlation takes few values" not in markdown_page(many, rows)
    assert not [
        r for r in rows if r["metric"].startswith("rank_correlation")
    ]  # all the same: there is no order


def test_the_same_samples_are_drawn_again():
    data = samples("test")
    one, two, other = (
        torch.cat([b.x[0] for b in random_samples(data, 20, seed)]) for seed in (0, 0, 1)
    )
    assert torch.equal(one, two) and not torch.equal(one, other) and len(one) == 20
    assert len(torch.cat([b.y for b in random_samples(data, 5000, 0)])) == 60


def test_times_alternate_and_the_first_round_does_not_count():
    order = []

    def act(name, seconds):
        order.append(name)
        time.sleep(seconds)

    times = alternating_seconds(
        {"a": lambda: act("a", 0), "b": lambda: act("b", 0.005)}, torch.device("cpu")
    )
    assert order[:4] == ["a", "b", "a", "b"] and len(order) == 2 * (len(times["a"]) + 1)
    assert min(times["b"]) > 0.004


def test_severities_share_a_colour_and_a_figure_needs_no_bnn(compared):
    assert group_domains(["fog/2", "snow/1", "fog/1"]) == (
        {"1": ["snow/1", "fog/1"], "2": ["fog/2"]},
        "severity",
    )
    assert group_domains(["svhn", "usps"]) == ({"unseen": ["svhn", "usps"]}, "")
    facts = json.loads((compared[0] / "scores.json").read_text())["tasks"][0]
    assert figure_name({"task": "t", "variant": "highway/fog"}) == "figure-t-highway-fog.png"
    alone = {**facts, "runs": [r for r in facts["runs"] if r["method"] == "uncertainty_guided"]}
    assert len(draw_scores(alone)) < len(draw_scores(facts))


def test_a_folder_collects_tasks_and_a_task_replaces_its_own(compared, runs, tmp_path):
    out, result, _ = compared
    shutil.copytree(out, tmp_path / "out")
    twin, folder = replace(tiny_task(), name="twin"), tmp_path / "twin"
    shutil.copytree(runs["uncertainty_guided", 0].folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "task": "twin"}))
    for again in range(2):
        compare([Run(folder)], twin, tmp_path / "out", samples=10 + again, progress=False)
    rows = json.loads((tmp_path / "out/summary.json").read_text())
    assert [row for row in rows if row["task"] == "light"] == result["summary"]
    assert {row["method"] for row in rows if row["task"] == "twin"} == {*SCORES} - {
        "bnn",
        "bnn_total",
        "mc_dropout",
    }
    tasks = json.loads((tmp_path / "out/scores.json").read_text())["tasks"]
    assert [(t["task"], t["samples"]) for t in tasks] == [("light", 50), ("twin", 11)]
    text = (tmp_path / "out/table.md").read_text()
    assert text.count("# light/default") == text.count("# twin/default") == 1
    assert (tmp_path / "out/figure-light.png").exists() and (
        tmp_path / "out/figure-twin.png"
    ).exists()
    (tmp_path / "out/scores.json").write_text('{"tasks": [{"task": "light"}]}')
    with pytest.raises(UnseenError, match="not a comparison of scores"):
        compare([Run(folder)], twin, tmp_path / "out", samples=10, progress=False)


def test_what_cannot_be_compared_is_named(runs, tmp_path):
    guided, task = runs["uncertainty_guided", 0], tiny_task()
    with pytest.raises(UnseenError, match="this one is of erm"):
        compare([guided, runs["erm", 0]], task, tmp_path / "out")
    with pytest.raises(UnseenError, match="at least one run of uncertainty_guided"):
        compare([runs["bnn", 0]], task, tmp_path / "out")
    with pytest.raises(UnseenError, match="both runs of uncertainty_guided with seed 0"):
        compare([guided, guided], task, tmp_path / "out")
    with pytest.raises(UnseenError, match="samples must be an integer of at least 2"):
        compare([guided], task, tmp_path / "out", samples=1)
    with pytest.raises(UnseenError, match="was trained on the task light, not on dark"):
        compare([guided], replace(task, name="dark"), tmp_path / "out")
    shutil.copytree(runs["uncertainty_guided", 1].folder, tmp_path / "elsewhere")
    recalibrate(Run(tmp_path / "elsewhere"), task, "embedding")
    with pytest.raises(
        UnseenError, match=r"guided0 at the site and \S+elsewhere at the embedding: make them alike"
    ):
        compare([guided, Run(tmp_path / "elsewhere")], task, tmp_path / "out")
    shutil.rmtree(tmp_path / "elsewhere")
    (tmp_path / "file").touch()
    with pytest.raises(UnseenError, match="is a file"):
        compare([guided], task, tmp_path / "file")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_command_prints_one_json_document_and_says_what_is_missing(runs, tmp_path):
    words = [
        sys.executable,
        "-m",
        "unseen.cli",
        "uncertainty",
        runs["uncertainty_guided", 0].folder,
        "--out",
        tmp_path / "out",
    ]
    words += ["--task", "test_uncertainty_command:tiny_task", "--samples", "20", "--json"]
    done = subprocess.run(
        list(map(str, words)),
        cwd=Path(__file__).parents[1] / "support",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (
        result["domains"] == list(SHIFTS)
        and result["out"] == str(tmp_path / "out")
        and "no bnn run" in done.stderr
    )
    assert not [r for r in result["summary"] if r["metric"] == "rank_correlation_bnn"]
    with pytest.raises(UnseenError, match="name finished runs of one task"):
        uncertainty(out=tmp_path / "none")
    assert not (tmp_path / "none").exists()
