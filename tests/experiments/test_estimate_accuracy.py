"""Label-free accuracy estimates of runs: the saved estimator, the tables, the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toy_domains import make

from unseen import AccuracyEstimator, UnseenError
from unseen.cli import app
from unseen.cli.options import stdout_for_results_only
from unseen.experiments.estimate_accuracy import FILE, estimate_run, estimator_of, write_tables
from unseen.training.run import Run
from unseen.training.train import train


@pytest.fixture(scope="module", params=["erm", "uncertainty_guided"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / request.param
    return train(make(), request.param, out, progress=False, task_word="toy_domains:make")


def test_estimator_is_fitted_once_and_on_the_source_only(run, monkeypatch):
    (run.folder / FILE).unlink(missing_ok=True)

    def refuse(*_):
        raise AssertionError("a target was read, or the estimator fitted again")

    task, net = make(), run.load(make())
    for target in task.targets:
        object.__setattr__(target, "load", refuse)
    first = estimator_of(run, task, net)
    monkeypatch.setattr(AccuracyEstimator, "fit", refuse)
    assert estimator_of(run, task, net) == first


def test_damaged_estimator_is_fitted_again(run, caplog):
    (run.folder / FILE).write_text("[]")
    estimator = estimator_of(Run(run.folder), make(), run.load(make()))
    assert AccuracyEstimator.load(run.folder / FILE) == estimator
    assert "must hold a JSON object" in caplog.text


def test_estimator_of_another_score_is_fitted_again(run, caplog):
    net = run.load(make())
    estimator = estimator_of(run, make(), net)
    AccuracyEstimator(
        "another",
        estimator.classes,
        estimator.confidence_threshold,
        estimator.samples,
        estimator.points,
    ).save(run.folder / FILE)
    assert estimator_of(run, make(), net).detector == net.detector.name
    assert "belongs to another score" in caplog.text


def test_results_of_a_run_hold_true_accuracies_and_errors(run):
    net, result = run.load(make()), estimate_run(run, make())
    assert list(result["domains"]) == ["bars", "grainy", "foggy", "dark"]
    for name, d in result["domains"].items():
        x, y = make().domain(name).load("test").tensors
        expected = float((net.predict(x).argmax(1) == y).float().mean())
        assert d["accuracy"] == pytest.approx(expected, abs=1e-6)
        assert d["errors"]["atc"] == pytest.approx(d["estimates"]["atc"] - d["accuracy"])


def test_tables_hold_the_mean_errors(run, tmp_path):
    result, out = estimate_run(run, make()), tmp_path / "out"
    errors = [abs(result["domains"][d]["errors"]["score"]) for d in ("grainy", "foggy", "dark")]
    rows = write_tables(out, [result, {**result, "seed": 1}], "a command")
    average = next(r for r in rows if r["domain"] == "average" and r["method"] == result["method"])
    assert average["mean"] == pytest.approx(np.mean(errors)) and average["std"] == 0
    assert average["seeds"] == [0, 1]
    assert {r["method"] for r in rows} == {result["method"], "average_confidence", "atc"}
    assert {r["domain"] for r in rows} == {"grainy", "foggy", "dark", "average"}
    keys = "task,variant,method,setting,domain,metric,selection,mean,std,seeds"
    assert all(",".join(r) == keys and r["metric"] == "accuracy_error" for r in rows)
    assert json.loads((out / "summary.json").read_text()) == rows
    assert "mean absolute error, unseen" in (out / "table.md").read_text()
    with pytest.raises(UnseenError, match="two runs have one seed"):
        write_tables(out, [result, result], "a command")
    with pytest.raises(UnseenError, match="differ in their seed only"):
        write_tables(out, [result, {**result, "method": "other"}], "a command")


def invoke(*words):
    app(
        ["estimate", *map(str, words), "--task", "toy_domains:make"],
        exit_on_error=False,
        result_action="return_value",
    )


def test_command_prints_one_domain_or_all(run, tmp_path, capsys):
    with stdout_for_results_only():
        invoke(run.folder, "--domain", "foggy", "--json")
    out = capsys.readouterr()
    result = json.loads(out.out)["domains"]["foggy"]
    keys = {"estimates", "intervals", "accuracy", "errors", "extrapolates", "n"}
    assert keys <= set(result) and result["n"] == 300
    assert ("fallback: max_softmax" in out.err) == (run.config["method"] == "erm")
    invoke(run.folder, "--all", "--out", tmp_path / "out")
    assert "mean error" in capsys.readouterr().out
    assert (tmp_path / "out" / "summary.json").exists()


def test_command_names_bad_arguments(run, tmp_path):
    for words, text in (
        ([run.folder], "--domain, or use --all"),
        ([run.folder, "--all", "--domain", "foggy"], "--domain, or use --all"),
        ([run.folder, "--domain", "mars"], 'no domain "mars"'),
        ([run.folder, "--domain", "foggy", "--out", tmp_path], "add --all"),
        ([run.folder, "--all", "--level", "2"], "--level must lie between 0 and 1"),
        (["--all"], "name a finished run"),
    ):
        with pytest.raises(UnseenError, match=text):
            invoke(*words)
