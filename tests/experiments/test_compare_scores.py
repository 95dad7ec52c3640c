"""Comparison of scores over domains: files, rows, correlations, costs, and errors."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace

import pytest
import torch
from forked import start_unseen
from light_task import SHIFTS, light_task, samples

from unseen import UnseenError
from unseen.cli.compare_scores import compare_scores
from unseen.experiments.compare_scores import alternating_seconds, compare, random_samples
from unseen.experiments.evaluate import recalibrate
from unseen.report.figures.scores import draw_scores, figure_name, group_domains
from unseen.report.statistics import auroc, rank_correlation
from unseen.report.tables.scores import markdown_page, summarize
from unseen.training.run import Run
from unseen.training.train import train

BAYES = ("bnn", "bnn_total")
OTHERS = {*BAYES, "mc_dropout"}
ROWS = {"uncertainty_guided", "msp", "entropy", "energy", "mahalanobis", *OTHERS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    keys = [("uncertainty_guided", 0), ("uncertainty_guided", 1), ("bnn", 0), ("bnn", 1)]
    return {
        (method, seed): train(
            light_task(), method, root / f"{method}{seed}", seed=seed, progress=False
        )
        for method, seed in [*keys, ("mc_dropout", 0), ("erm", 0)]
    }


@pytest.fixture(scope="module")
def compared(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "results"
    chosen = [run for (method, _), run in runs.items() if method != "erm"]
    result = compare(chosen, light_task(), out, samples=50, progress=False)
    return out, result, json.loads((out / "scores.json").read_text())["tasks"][0]


def test_all_files_are_written(compared):
    out, result, _ = compared
    files = ["scores.json", "summary.json", "table.md", "figure-light.png"]
    assert result["files"] == files and sorted(p.name for p in out.iterdir()) == sorted(files)
    assert (out / "figure-light.png").read_bytes()[:4] == b"\x89PNG"
    rows = json.loads((out / "summary.json").read_text())
    assert rows == result["summary"]


def test_summary_has_a_row_for_each_score_metric_and_domain(compared):
    rows = compared[1]["summary"]
    keys = {"task", "variant", "method", "setting", "domain", "metric", "selection", "mean"}
    assert all(row.keys() == keys | {"std", "seeds"} for row in rows)
    assert {row["method"] for row in rows} == ROWS
    at = {(row["method"], row["metric"], row["domain"]): row for row in rows}
    assert len(at) == len(rows)
    for name in ROWS:
        for metric in ("auroc", "fpr95"):
            values = [at[name, metric, domain]["mean"] for domain in SHIFTS]
            assert at[name, metric, "average"]["mean"] == pytest.approx(sum(values) / 4)
            assert 0 <= min(values) <= max(values) <= 1
        assert at[name, "cost_ratio", "average"]["mean"] > 0
        assert (name, "cost_ratio", "near/1") not in at
        for bayes in BAYES:
            assert ((name, f"rank_correlation_{bayes}", "average") in at) == (name != bayes)
    assert at["msp", "auroc", "average"]["seeds"] == [0, 1]
    assert at["mc_dropout", "auroc", "average"]["seeds"] == [0]


def test_values_are_those_of_predict_and_of_the_detector(compared, runs):
    task, facts = light_task(), compared[2]
    for method in ("uncertainty_guided", "bnn"):
        net = runs[method, 1].load(task)
        facts_of_run = next(r for r in facts["runs"] if (r["method"], r["seed"]) == (method, 1))
        for domain in (task.source, *task.targets):
            batches = random_samples(domain.load("test"), 50, 0)
            x, y = torch.cat([b.x[0] for b in batches]), torch.cat([b.y for b in batches])
            accuracy = float((net.predict(x).argmax(1) == y).float().mean())
            assert len(y) == 50
            assert facts_of_run["values"][domain.name] == pytest.approx(accuracy)
            score = facts_of_run["scores"][method]["domains"][domain.name]
            assert score["score"] == pytest.approx(net.domain_score(x), rel=1e-4)
            assert score["low"] < score["score"] < score["high"]
        source, far = (
            net.uncertainty(torch.cat([b.x[0] for b in random_samples(d.load("test"), 50, 0)]))
            for d in (task.source, task.domain("far/2"))
        )
        result = facts_of_run["scores"][method]["domains"]["far/2"]
        assert result["auroc"] == pytest.approx(auroc(source.numpy(), far.numpy()))


def test_correlations_pair_runs_of_one_seed_and_average_over_seeds(compared):
    _, result, facts = compared
    runs = {(r["method"], r["seed"]): r["scores"] for r in facts["runs"]}
    for bayes in BAYES:
        correlations = []
        for seed in (0, 1):
            energy = runs["uncertainty_guided", seed]["energy"]["domains"]
            other = runs["bnn", seed][bayes]["domains"]
            pairs = [[scores[d]["score"] for d in SHIFTS] for scores in (energy, other)]
            correlations.append(rank_correlation(*pairs))
        key = ("energy", f"rank_correlation_{bayes}")
        row = next(r for r in result["summary"] if (r["method"], r["metric"]) == key)
        assert row["mean"] == pytest.approx(sum(correlations) / 2)


def test_strong_shift_is_separated_and_a_bnn_costs_its_passes(compared):
    at = {(r["method"], r["metric"], r["domain"]): r["mean"] for r in compared[1]["summary"]}
    ours = [at["uncertainty_guided", "auroc", domain] for domain in ("far/2", "near/1")]
    assert ours[0] > 0.85 > ours[1]
    assert at["mahalanobis", "fpr95", "far/2"] < 0.1
    assert at["bnn", "cost_ratio", "average"] > 2.5  # four passes
    assert at["bnn", "cost_ratio", "average"] > at["msp", "cost_ratio", "average"]


def test_page_warns_of_few_domains(compared):
    out, _, facts = compared
    text = (out / "table.md").read_text()
    for words in ("With 4 unseen domains", "probability 1/24", "| far/2 |", "lit (source)"):
        assert words in text
    many = {**facts, "domains": [f"d{i}" for i in range(12)]}
    for run in many["runs"]:
        run["values"] |= dict.fromkeys(many["domains"], 0.5)
        for score in run["scores"].values():
            score["domains"] |= dict.fromkeys(many["domains"], score["domains"]["far/1"])
    rows = summarize(many)
    assert "a rank correlation takes few values" not in markdown_page(many, rows)
    # All domains are the same: there is no order.
    assert not [r for r in rows if r["metric"].startswith("rank_correlation")]


def test_random_samples_are_repeatable():
    data = samples("test")
    one, two, other = (
        torch.cat([b.x[0] for b in random_samples(data, 20, seed)]) for seed in (0, 0, 1)
    )
    assert torch.equal(one, two) and not torch.equal(one, other) and len(one) == 20
    assert len(torch.cat([b.y for b in random_samples(data, 5000, 0)])) == 60


def test_times_alternate_and_the_first_round_does_not_count():
    order = []

    def call(name, seconds):
        order.append(name)
        time.sleep(seconds)

    calls = {"a": lambda: call("a", 0), "b": lambda: call("b", 0.005)}
    times = alternating_seconds(calls, torch.device("cpu"))
    assert order[:4] == ["a", "b", "a", "b"] and len(order) == 2 * (len(times["a"]) + 1)
    assert min(times["b"]) > 0.004


def test_severities_share_a_colour_and_a_figure_needs_no_bnn(compared):
    severities = {"1": ["snow/1", "fog/1"], "2": ["fog/2"]}
    assert group_domains(["fog/2", "snow/1", "fog/1"]) == (severities, "severity")
    assert group_domains(["svhn", "usps"]) == ({"unseen": ["svhn", "usps"]}, "")
    facts = json.loads((compared[0] / "scores.json").read_text())["tasks"][0]
    assert figure_name({"task": "t", "variant": "highway/fog"}) == "figure-t-highway-fog.png"
    alone = {**facts, "runs": [r for r in facts["runs"] if r["method"] == "uncertainty_guided"]}
    assert len(draw_scores(alone)) < len(draw_scores(facts))


def test_folder_collects_tasks_and_a_task_replaces_its_own(compared, runs, tmp_path):
    out, result, _ = compared
    shutil.copytree(out, tmp_path / "out")
    twin, folder = replace(light_task(), name="twin"), tmp_path / "twin"
    shutil.copytree(runs["uncertainty_guided", 0].folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "task": "twin"}))
    out = tmp_path / "out"
    for samples_drawn in (10, 11):
        compare([Run(folder)], twin, out, samples=samples_drawn, progress=False)
    rows = json.loads((out / "summary.json").read_text())
    assert [row for row in rows if row["task"] == "light"] == result["summary"]
    assert {row["method"] for row in rows if row["task"] == "twin"} == ROWS - OTHERS
    tasks = json.loads((out / "scores.json").read_text())["tasks"]
    assert [(t["task"], t["samples"]) for t in tasks] == [("light", 50), ("twin", 11)]
    text = (out / "table.md").read_text()
    assert text.count("# light/default") == text.count("# twin/default") == 1
    assert (out / "figure-light.png").exists() and (out / "figure-twin.png").exists()
    (out / "scores.json").write_text('{"tasks": [{"task": "light"}]}')
    with pytest.raises(UnseenError, match="not a comparison of scores"):
        compare([Run(folder)], twin, out, samples=10, progress=False)


def test_runs_that_cannot_be_compared_are_refused(runs, tmp_path):
    guided, task, out = runs["uncertainty_guided", 0], light_task(), tmp_path / "out"
    with pytest.raises(UnseenError, match="this one is of erm"):
        compare([guided, runs["erm", 0]], task, out)
    with pytest.raises(UnseenError, match="at least one run of uncertainty_guided"):
        compare([runs["bnn", 0]], task, out)
    with pytest.raises(UnseenError, match="both runs of uncertainty_guided with seed 0"):
        compare([guided, guided], task, out)
    with pytest.raises(UnseenError, match="samples must be an integer of at least 2"):
        compare([guided], task, out, samples=1)
    with pytest.raises(UnseenError, match="trained on light/default, not on dark"):
        compare([guided], replace(task, name="dark"), out)
    shutil.copytree(runs["uncertainty_guided", 1].folder, tmp_path / "elsewhere")
    recalibrate(Run(tmp_path / "elsewhere"), task, "embedding")
    text = r"different scores: \S+guided0 sigma and \S+elsewhere embedding_shift; use one"
    with pytest.raises(UnseenError, match=text):
        compare([guided, Run(tmp_path / "elsewhere")], task, out)
    (tmp_path / "file").touch()
    with pytest.raises(UnseenError, match="is a file"):
        compare([guided], task, tmp_path / "file")
    assert not out.exists()


def test_runs_without_a_learned_scale_are_refused(tmp_path):
    run = train(
        light_task(),
        "uncertainty_guided",
        tmp_path / "run",
        overrides={"steps": 5, "noise": {"kind": "deterministic"}},
        progress=False,
    )
    with pytest.raises(UnseenError, match="no learned noise scale, only max_softmax"):
        compare([run], light_task(), tmp_path / "out")


@pytest.mark.parametrize("command", ["compare-scores", "uncertainty"])
def test_command_prints_one_json_document_and_reports_a_missing_bnn(command, runs, tmp_path):
    words = [command, runs["uncertainty_guided", 0].folder, "--task", "light_task:light_task"]
    words += ["--samples", "20", "--json", "--out", tmp_path / "out"]
    done = start_unseen(*words, folder=tmp_path).wait()
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["domains"] == list(SHIFTS) and result["out"] == str(tmp_path / "out")
    assert "no bnn run" in done.stderr
    assert ("is now `unseen compare-scores`" in done.stderr) == (command == "uncertainty")
    assert not [r for r in result["summary"] if r["metric"] == "rank_correlation_bnn"]


def test_command_needs_runs(tmp_path):
    with pytest.raises(UnseenError, match="name finished runs of one task"):
        compare_scores(out=tmp_path / "none")
