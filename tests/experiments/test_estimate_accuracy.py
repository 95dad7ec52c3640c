"""Label-free accuracy estimates of runs: the saved estimator, the tables, the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toy_domains import make

from unseen import AccuracyEstimator, UnseenError
from unseen.cli import app
from unseen.cli.options import stdout_for_results_only
from unseen.detection.accuracy import FILE
from unseen.experiments.estimate_accuracy import estimate_run
from unseen.experiments.run_estimator import estimator_of
from unseen.report.tables.estimates import write_estimates
from unseen.training.run import Run
from unseen.training.train import train


@pytest.fixture(scope="module", params=["erm", "uncertainty_guided"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / request.param
    return train(make(), request.param, out, progress=False, task_word="toy_domains:make")


@pytest.fixture(scope="module")
def result(run):
    return estimate_run(run, make())


def test_estimator_is_fitted_once_and_on_the_source_only(run, monkeypatch):
    (run.folder / FILE).unlink(missing_ok=True)

    def refuse(*_):
        raise AssertionError("a target was read, or the estimator fitted again")

    task, net = make(), run.load(make())
    for target in task.targets:
        object.__setattr__(target, "load", refuse)
    estimator_of(run, task, net)
    monkeypatch.setattr(AccuracyEstimator, "fit", refuse)
    estimator_of(run, task, run.load(make()))


def test_damaged_estimator_is_fitted_again(run, caplog):
    (run.folder / FILE).write_text("[]")
    estimator_of(Run(run.folder), make(), run.load(make()))
    assert "not a complete safetensors file" in caplog.text
    assert run.load(make()).has_accuracy_estimator


def test_results_of_a_run_hold_true_accuracies_and_errors(run, result):
    net = run.load(make())
    assert list(result["domains"]) == ["bars", "grainy", "foggy", "dark"]
    for name, d in result["domains"].items():
        x, y = make().domain(name).load("test").tensors
        expected = float((net.predict(x).argmax(1) == y).float().mean())
        assert d["accuracy"] == pytest.approx(expected, abs=1e-6)
        assert d["errors"]["atc"] == pytest.approx(d["estimates"]["atc"] - d["accuracy"])
        low, high = d["interval"]
        assert d["covered"] == (low <= d["accuracy"] <= high)
    protocols = result["protocols"]
    assert {"default", "samples_of_100", "blend_0.00", "blend_1.00"} <= set(protocols)
    assert protocols["samples_of_100"]["estimates"] == 3 * 5
    assert protocols["blend_0.00"]["accuracy_error"]["combined"] < 0.1


def test_tables_hold_the_mean_errors(result, tmp_path):
    out = tmp_path / "out"
    errors = [abs(result["domains"][d]["errors"]["combined"]) for d in ("grainy", "foggy", "dark")]
    rows = write_estimates(out, [result, {**result, "seed": 1}], "a command")
    average = next(r for r in rows if r["domain"] == "average" and r["setting"] == "default")
    assert average["mean"] == pytest.approx(np.mean(errors)) and average["std"] == 0
    assert average["method"] == "combined" and average["metric"] == "accuracy_error"
    assert average["seeds"] == [0, 1]
    assert {r["metric"] for r in rows} == {"accuracy_error", "coverage", "width"}
    assert {"combined", "doc", "atc", "cot", "energy"} <= {r["method"] for r in rows}
    keys = "task,variant,method,setting,domain,metric,selection,mean,std,seeds"
    assert all(",".join(r) == keys for r in rows)
    assert json.loads((out / "summary.json").read_text()) == rows
    assert "mean absolute error, unseen" in (out / "table.md").read_text()
    with pytest.raises(UnseenError, match="two runs have one seed"):
        write_estimates(out, [result, result], "a command")
    with pytest.raises(UnseenError, match="differ in their seed only"):
        write_estimates(out, [result, {**result, "method": "other"}], "a command")


def invoke(command, *words):
    app(
        [command, *map(str, words), "--task", "toy_domains:make"],
        exit_on_error=False,
        result_action="return_value",
    )


def test_command_prints_one_domain_or_all(run, tmp_path, capsys):
    with stdout_for_results_only():
        invoke("estimate", run.folder, "--domain", "foggy", "--json")
    out = capsys.readouterr()
    found = json.loads(out.out)["domains"]["foggy"]
    keys = {"estimates", "interval", "accuracy", "errors", "extrapolates", "n", "covered"}
    assert keys <= set(found) and found["n"] == 300
    assert ("fallback: max_softmax" in out.err) == (run.config["method"] == "erm")
    invoke("estimate", run.folder, "--all", "--out", tmp_path / "out")
    assert "mean" in capsys.readouterr().out
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
            invoke("estimate", *words)


def test_score_gives_a_verdict(run, tmp_path, capsys):
    samples = tmp_path / "samples.csv"
    with stdout_for_results_only():
        invoke("score", run.folder, "--domain", "grainy", "--per-sample", samples, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] in ("ok", "shifted", "failing", "unknown")
    low, high = found["interval"]
    assert low <= found["predicted_accuracy"] <= high and 0 < found["p_value"] <= 1
    assert found["alarm"] == (found["verdict"] != "ok")
    assert samples.read_text().startswith("sample,score,correctness\n")
    invoke("score", run.folder, "--domain", "source")
    assert "predicted accuracy" in capsys.readouterr().out


def test_predict_hands_the_least_certain_to_a_person(run, tmp_path, capsys):
    out = tmp_path / "predictions.csv"
    with stdout_for_results_only():
        invoke("predict", run.folder, "--domain", "grainy", "--out", out, "--reject-rate", "0.2",
               "--json")  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert found["rejected"] == 60 and found["n"] == 300
    rows = [line.split(",") for line in out.read_text().splitlines()[1:]]
    kept = [float(r[3]) for r in rows if r[4] == "0"]
    rejected = [float(r[3]) for r in rows if r[4] == "1"]
    assert len(rejected) == 60 and max(rejected) <= min(kept)
    for rate in ("1", "-0.1"):
        with pytest.raises(UnseenError, match="reject_rate"):
            invoke(
                "predict", run.folder, "--domain", "grainy", "--out", out, f"--reject-rate={rate}"
            )
