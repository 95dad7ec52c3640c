"""What the score of a whole domain leaves in the run: records of the verdict, reliability bins."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import torch
from torch.utils.data import TensorDataset
from toy_domains import bars, make

from unseen import Domain, UnseenError
from unseen.experiments import verdict_records
from unseen.experiments.evaluate import RELIABILITY, evaluate, recalibrate
from unseen.experiments.score import score
from unseen.functional.reliability import reliability_bins
from unseen.nn.tensor_files import read_tensors
from unseen.report.page import report_files
from unseen.training.run import Run
from unseen.training.train import train

DOMAINS = ("bars", "grainy", "foggy", "dark")


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A run, and the results of scoring every domain."""
    out = tmp_path_factory.mktemp("runs") / "erm"
    run = train(make(), "erm", out, progress=False, task_word="toy_domains:make")
    evaluate(run, make())
    names = ("source", *DOMAINS[1:])
    return run, {d: score(run, make(), n) for d, n in zip(DOMAINS, names, strict=True)}


@pytest.fixture
def copied(scored, tmp_path):
    return Run(shutil.copytree(scored[0].folder, tmp_path / "run"))


def verdict_of(run, domain):
    return {
        r["metric"]: r["value"]
        for r in run.records()
        if (r["split"], r["domain"]) == ("verdict", domain)
    }


def test_score_records_the_verdict_on_every_domain(scored):
    run, results = scored
    for domain, result in results.items():
        low, high = result["interval"]
        names = ("predicted_accuracy", "source_accuracy", "p_value", "score", "threshold")
        assert verdict_of(run, domain) == {
            **{name: result[name] for name in names},
            "predicted_low": low,
            "predicted_high": high,
            f"verdict_{result['verdict']}": 1.0,
        }


def test_a_second_score_replaces_the_records_of_its_domain_only(scored, copied):
    before = copied.records()
    other = "ok" if scored[1]["grainy"]["verdict"] != "ok" else "failing"
    stale = {**before[-1], "domain": "grainy", "split": "verdict", "metric": f"verdict_{other}"}
    copied.append([stale])
    score(copied, make(), "grainy")
    after = copied.records()
    assert sorted(map(str, after)) == sorted(map(str, before))


def test_the_score_of_a_batch_leaves_the_run_as_it_is(copied):
    files = {p: p.read_bytes() for p in copied.folder.rglob("*") if p.is_file()}
    score(copied, make(), "grainy", batch=20)
    assert {p: p.read_bytes() for p in copied.folder.rglob("*") if p.is_file()} == files


def test_bins_by_hand():
    confidence = torch.tensor([0.0, 0.05, 0.62, 0.68, 1.0], dtype=torch.float64)
    count, mean, accuracy = reliability_bins(confidence, torch.tensor([0, 1, 1, 1, 0]).bool())
    assert count.tolist() == [2, 0, 0, 0, 0, 0, 2, 0, 0, 1]
    assert mean.tolist() == pytest.approx([0.025, 0, 0, 0, 0, 0, 0.65, 0, 0, 1])
    assert accuracy.tolist() == [0.5, 0, 0, 0, 0, 0, 1, 0, 0, 0]


def test_score_saves_reliability_bins_of_labelled_domains(scored):
    run, _ = scored
    saved = read_tensors(run.folder / RELIABILITY)
    assert set(saved) == {f"{kind}/{d}" for d in DOMAINS for kind in ("before", "after")}
    net = run.load(make())
    for domain in DOMAINS:
        x, y = make().domain(domain).load("test").tensors
        with torch.no_grad():
            logits = net.predict(x)
        seen = net.accuracy_estimator.one_pass.observe((x,))
        confidence = {
            "before": logits.double().softmax(1).amax(1),
            "after": net.accuracy_estimator.correctness_from(seen),
        }
        right = logits.argmax(1) == y
        for kind, values in confidence.items():
            bins = saved[f"{kind}/{domain}"]
            for b in range(10):
                inside = (values >= b / 10) & ((values < (b + 1) / 10) | (b == 9))
                count, mean, accuracy = bins[:, b].tolist()
                assert count == inside.sum()
                if count:
                    assert mean == pytest.approx(float(values[inside].mean()), abs=1e-6)
                    assert accuracy == pytest.approx(float(right[inside].double().mean()))


@pytest.mark.parametrize("label", [7, -100])
def test_a_domain_without_labels_is_scored_and_loses_its_bins(copied, label):
    x, y = bars(100, 50)
    data = TensorDataset(x, torch.full_like(y, label))
    task = dataclasses.replace(make(), targets=(Domain("grainy", lambda split: data),))
    score(copied, task, "grainy")
    assert verdict_of(copied, "grainy")
    saved = read_tensors(copied.folder / RELIABILITY)
    assert "before/grainy" not in saved and "before/foggy" in saved


def test_damaged_bins_are_replaced(copied, caplog):
    (copied.folder / RELIABILITY).write_bytes(b"damaged")
    score(copied, make(), "dark")
    assert set(read_tensors(copied.folder / RELIABILITY)) == {"before/dark", "after/dark"}
    assert "older reliability bins are left out" in caplog.text


@pytest.mark.parametrize("error", [UnseenError("read-only"), OSError(30, "read-only")])
def test_a_folder_that_cannot_be_written_is_a_warning(scored, copied, monkeypatch, caplog, error):
    def refuse(*_):
        raise error

    before = (copied.folder / "records.jsonl").read_bytes()
    monkeypatch.setattr(verdict_records, "replace_files", refuse)
    assert score(copied, make(), "foggy") == scored[1]["foggy"]
    assert "the verdict is not saved" in caplog.text and "read-only" in caplog.text
    assert (copied.folder / "records.jsonl").read_bytes() == before


def test_recalibrate_removes_verdicts(copied):
    recalibrate(copied, make(), "site")
    assert not any(r["split"] == "verdict" for r in copied.records())
    assert not (copied.folder / RELIABILITY).exists()


def test_evaluate_keeps_verdicts(scored, copied):
    evaluate(copied, make())
    for domain in DOMAINS:
        assert verdict_of(copied, domain) == verdict_of(scored[0], domain)


def test_report_of_a_scored_run_has_its_verdicts(scored):
    run, results = scored
    files = report_files([run.folder])
    page = files["report.html"].decode()
    assert ">Verdicts</h2>" in page and "toy: reliability" in page
    rows = files["tables/toy-verdicts.csv"].decode().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["bars (source)", *DOMAINS[1:]]
    assert [row.split(",")[3] for row in rows] == [r["verdict"] for r in results.values()]
