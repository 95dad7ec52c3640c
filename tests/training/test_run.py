"""Training into a folder: reproducible, resumable, and clean after errors."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace

import pytest
import torch
from forked import start_unseen
from tiny import TinyNet
from torch.utils.data import Dataset, TensorDataset

from unseen import Domain, Task, UnseenError
from unseen.experiments import adapt as adapting
from unseen.experiments import evaluate as exam
from unseen.experiments.score import score as score_domain
from unseen.nn.tensor_files import read_tensors
from unseen.training import train as training
from unseen.training.run import Run
from unseen.training.train import train

QUICK = {"steps": 12, "batch_size": 8, "log_every": 2, "checkpoint_every": 4}

GUIDED = {"warmup": 3, "adversary": {"rounds": 2, "steps": 2}, "draws": 2}


def data(shift=0.0, n=48):
    g = torch.Generator().manual_seed(3)
    y = torch.arange(n) % 3
    return TensorDataset(torch.randn(n, 2, 8, 8, generator=g) + y.view(-1, 1, 1, 1) + shift, y)


def tiny_task(**changes):
    task = Task(
        name="tiny",
        summary="a toy",
        classes=3,
        model=TinyNet,
        sites=("conv1", "conv2"),
        embedding="fc1",
        source=Domain("near", lambda split: data()),
        targets=(
            Domain("far", lambda split: data(2.0)),
            Domain("farther", lambda split: data(5.0)),
        ),
        presets={"fast": {**QUICK, "uncertainty_guided": GUIDED}},
    )
    return replace(task, **changes)


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("method", ["erm", "uncertainty_guided"])
def test_seed_determines_the_weights(tmp_path, method):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(tiny_task(), method, tmp_path / name, seed=seed, progress=False)
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")


def test_resuming_a_finished_run_changes_no_file(tmp_path):
    out = tmp_path / "run"
    train(tiny_task(), "uncertainty_guided", out, progress=False)
    assert {p.name for p in out.iterdir()} == {
        "config.json", "records.jsonl", "model.safetensors", "source.safetensors", "figures",
        "done",
    }  # fmt: skip
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in out.rglob("*") if p.is_file()}
    train(tiny_task(), "uncertainty_guided", out, resume=True, progress=False)
    assert before == {
        p: (p.stat().st_mtime_ns, p.read_bytes()) for p in out.rglob("*") if p.is_file()
    }


def test_records_and_snapshots_hold_what_the_figures_need(tmp_path):
    done = train(tiny_task(), "uncertainty_guided", tmp_path / "run", progress=False)
    records = done.records()
    assert all({"run", "step", "domain", "split", "metric", "value"} == set(r) for r in records)
    metrics = {r["metric"] for r in records if r["split"] == "train"}
    assert metrics >= {
        "loss", "source_loss", "perturbed_loss", "mixed_loss", "transport", "sigma/conv1",
        "clamped/conv1", "sigma/conv2",
        "a", "b", "tau", "lambda", "seconds_per_step",
    }  # fmt: skip
    last = sorted((tmp_path / "run/figures").iterdir())[-1]
    assert last.name == "step_000012.safetensors"
    arrays = read_tensors(last)
    assert set(arrays) == {"embedding", "embedding_plus", "labels", "shift", "y_plus", "lambda"}
    assert arrays["shift"].shape == (8, 6, 6) and (arrays["shift"] >= 0).all()
    torch.testing.assert_close(arrays["y_plus"].sum(1), torch.ones(len(arrays["y_plus"])))
    before_ascent = read_tensors(tmp_path / "run/figures/step_000002.safetensors")
    assert not torch.equal(before_ascent["embedding_plus"], arrays["embedding_plus"])


def test_snapshots_and_logging_leave_training_unchanged(tmp_path):
    train(tiny_task(), "uncertainty_guided", tmp_path / "a", progress=False)
    task = tiny_task(
        presets={"fast": {**tiny_task().presets["fast"], "log_every": 1, "checkpoint_every": 1}}
    )
    train(task, "uncertainty_guided", tmp_path / "b", progress=False)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("method", ["erm", "uncertainty_guided"])
@pytest.mark.parametrize("at", [2, 5, 9])
def test_interrupted_run_resumes_to_the_same_bits(tmp_path, monkeypatch, method, at):
    whole = train(tiny_task(), method, tmp_path / "whole", progress=False)
    original = training.training_indices

    def failing(source, size, seed, step):
        if step == at:
            raise Interrupted
        return original(source, size, seed, step)

    monkeypatch.setattr(training, "training_indices", failing)
    with pytest.raises(Interrupted):
        train(tiny_task(), method, tmp_path / "cut", progress=False)
    monkeypatch.setattr(training, "training_indices", original)
    resumed = train(tiny_task(), method, tmp_path / "cut", resume=True, progress=False)
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")
    assert (tmp_path / "whole/source.safetensors").read_bytes() == (
        tmp_path / "cut/source.safetensors"
    ).read_bytes()

    def told(r):
        return [
            (x["step"], x["metric"], x["value"])
            for x in r.records()
            if x["metric"] != "seconds_per_step"
        ]

    assert told(whole) == told(resumed)


def test_signal_at_the_end_of_a_checkpoint_names_it(tmp_path, monkeypatch, caplog):
    original = training.write_tensors

    def stopped(path, tensors):
        original(path, tensors)
        if path.name == "state.safetensors":
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "write_tensors", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_task(), "erm", tmp_path / "run", progress=False)
    step = tiny_task().presets["fast"]["checkpoint_every"]
    assert f"run keeps the checkpoint of step {step}" in caplog.text


def test_killed_process_resumes_to_the_same_bits(tmp_path):
    """A real process, killed at an arbitrary moment after its first checkpoint, more than once."""
    words = ["train", "light_task:light_task", "--method", "uncertainty_guided", "--seed", "3"]
    for setting in (
        "steps=150",
        "batch_size=8",
        "draws=1",
        "warmup=2",
        "adversary.rounds=3",
        "adversary.steps=2",
        "checkpoint_every=10",
    ):
        words += ["--set", setting]
    finished = start_unseen(*words, "--out", tmp_path / "whole", folder=tmp_path).wait()
    assert finished.returncode == 0, finished.stderr
    cut = tmp_path / "cut"
    kills = 0
    for pause in (0.0, 0.35):
        process = start_unseen(*words, "--out", cut, "--resume", folder=tmp_path)
        stamp = cut / "state.safetensors"
        seen = stamp.stat().st_mtime_ns if stamp.exists() else None
        deadline = time.monotonic() + 60
        while process.running and time.monotonic() < deadline:
            if stamp.exists() and stamp.stat().st_mtime_ns != seen:
                time.sleep(pause)
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        returncode = process.wait().returncode
        kills += returncode == -signal.SIGKILL
        assert not (cut / "done").exists() or returncode == 0
    assert kills >= 1
    finished = start_unseen(*words, "--out", cut, "--resume", folder=tmp_path).wait()
    assert finished.returncode == 0, finished.stderr
    assert weights(tmp_path / "whole") == weights(cut)
    assert not list(cut.rglob(".*")), "what a kill in the middle of a write leaves is swept away"


def test_call_after_a_checkpoint_is_repeated_when_a_kill_came_before_it(tmp_path):
    calls = []

    def killed(step, steps, net):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny_task(), "erm", tmp_path / "a", progress=False, after_checkpoint=killed)
    train(
        tiny_task(), "erm", tmp_path / "a", progress=False, resume=True,
        after_checkpoint=lambda step, steps, net: calls.append((step, steps)),
    )  # fmt: skip
    assert calls == [(4, 12), (8, 12), (12, 12)]


def test_training_never_loads_a_target(tmp_path):
    def refuse(split):
        raise AssertionError("training touched a target")

    def only_train_and_val(split):
        assert split in ("train", "val")
        return data()

    task = tiny_task(targets=(Domain("far", refuse),), source=Domain("near", only_train_and_val))
    train(task, "uncertainty_guided", tmp_path / "run", progress=False)
    with pytest.raises(AssertionError):
        exam.evaluate(Run(tmp_path / "run"), task)


def test_evaluate_returns_its_keys_and_writes_records_once(tmp_path):
    done = train(tiny_task(), "erm", tmp_path / "run", progress=False)
    for _ in range(2):
        result = exam.evaluate(done, tiny_task())
    assert set(result["domains"]) == {"far", "farther"} and result["source"]["name"] == "near"
    assert all(
        set(d) == {"accuracy", "n"} and 0 <= d["accuracy"] <= 1 and d["n"] == 48
        for d in result["domains"].values()
    )
    assert result["average"] == pytest.approx(
        sum(d["accuracy"] for d in result["domains"].values()) / 2
    )
    tests = [r for r in done.records() if r["split"] == "test"]
    assert sorted(r["domain"] for r in tests) == ["far", "farther", "near"]


def test_score_and_adapt_return_their_keys(tmp_path):
    done = train(
        tiny_task(),
        "uncertainty_guided",
        tmp_path / "run",
        overrides={"steps": 30, "lr": 0.003},
        progress=False,
    )
    near, far = (score_domain(done, tiny_task(), name) for name in ("source", "farther"))
    assert {"domain", "score", "threshold", "alarm", "n"} <= set(far)
    assert far["alarm"] and not near["alarm"] and far["score_name"] == "sigma"
    adapted = adapting.adapt(
        done, tiny_task(), "far", 4, draws=3, settings={"steps": 60, "lr": 0.01}, progress=False
    )
    assert {"before", "after_mean", "after_std", "source_before", "source_after"} <= set(adapted)
    assert len(set(adapted["after"])) > 1 and adapted["after_mean"] > adapted["before"]


def test_run_without_heads_names_its_fallback_score(tmp_path):
    done = train(tiny_task(), "erm", tmp_path / "run", progress=False)
    result = score_domain(done, tiny_task(), "far")
    assert result["score_name"] == "max_softmax" and result["fallback"]


class Augmented(Dataset):
    """A data set that draws random numbers."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return data().tensors[0][i] + 0.1 * torch.randn(2, 8, 8), i % 3


def test_run_on_random_data_resumes_to_the_same_bits(tmp_path, monkeypatch):
    task = tiny_task(source=Domain("near", lambda split: Augmented()))
    train(task, "erm", tmp_path / "whole", progress=False)
    original = training.training_indices

    def failing(source, size, seed, step):
        if step == 9:
            raise Interrupted
        return original(source, size, seed, step)

    monkeypatch.setattr(training, "training_indices", failing)
    with pytest.raises(Interrupted):
        train(task, "erm", tmp_path / "cut", progress=False)
    monkeypatch.setattr(training, "training_indices", original)
    train(task, "erm", tmp_path / "cut", resume=True, progress=False)
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")


class OnDemand(Dataset):
    """A data set that is not tensors in memory."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return data().tensors[0][i], i % 3


def test_map_style_data_set_trains(tmp_path):
    task = tiny_task(source=Domain("near", lambda split: OnDemand()))
    assert train(task, "erm", tmp_path / "run", overrides={"steps": 2}, progress=False).done


# ---- errors


def wrong_labels(split):
    return TensorDataset(torch.randn(20, 2, 8, 8), torch.full((20,), 7))


def not_a_number(split):
    return TensorDataset(torch.full((20, 2, 8, 8), float("nan")), torch.arange(20) % 3)


@pytest.mark.parametrize(
    "changes, overrides, text",
    [
        ({}, {"stpes": 3}, "--set: unknown setting stpes; known settings: steps, batch_size"),
        ({}, {"steps": 0}, "steps must be at least 1, not 0"),
        ({}, {"steps": 1.5}, "steps must be an integer"),
        ({}, {"lr": "fast"}, "lr must be a number, not 'fast'"),
        ({}, {"batch_size": 1000}, "near/train has 48 samples, fewer than one batch of 1000"),
        (
            {
                "source": Domain(
                    "near",
                    lambda split: TensorDataset(torch.zeros(0, 2, 8, 8), torch.zeros(0).long()),
                )
            },
            {},
            "has 0 samples",
        ),
        (
            {"source": Domain("near", wrong_labels)},
            {},
            "labels run from 7 to 7; a model with 3 outputs takes 0 to 2",
        ),
        (
            {"source": Domain("near", not_a_number)},
            {},
            "near/train, sample index .*: the input holds NaN",
        ),
        ({"embedding": "fc9"}, {}, 'no embedding "fc9"'),
    ],
)
def test_early_error_leaves_no_folder(tmp_path, changes, overrides, text):
    with pytest.raises(UnseenError, match=text):
        train(tiny_task(**changes), "erm", tmp_path / "run", overrides=overrides, progress=False)
    assert not (tmp_path / "run").exists()


def test_site_that_is_never_reached_leaves_no_folder(tmp_path):
    class Spare(TinyNet):
        def __init__(self):
            super().__init__()
            self.spare = torch.nn.Linear(2, 2)

    with pytest.raises(UnseenError, match="never reached spare"):
        task = tiny_task(model=Spare, sites=("spare",))
        train(task, "uncertainty_guided", tmp_path / "run", overrides={"warmup": 0}, progress=False)
    assert not (tmp_path / "run").exists()


def test_folder_that_is_not_empty_is_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UnseenError, match="is not empty: add --resume"):
        train(tiny_task(), "erm", tmp_path, progress=False)
    with pytest.raises(UnseenError, match=r"config.json does not exist"):
        train(tiny_task(), "erm", tmp_path, resume=True, progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(UnseenError, match="is a file; --out names a folder"):
        train(tiny_task(), "erm", tmp_path / "notes.txt", progress=False)


def test_resume_with_another_setting_names_it(tmp_path):
    train(tiny_task(), "erm", tmp_path / "run", progress=False)
    for changed, text in (
        ({"overrides": {"lr": 0.5}}, "started with lr = 0.0001, now it is 0.5"),
        ({"seed": 4}, "seed = 0, now it is 4"),
    ):
        with pytest.raises(UnseenError, match=text):
            train(tiny_task(), "erm", tmp_path / "run", resume=True, progress=False, **changed)


def test_corrupt_checkpoint_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "calibrate", lambda *a: (_ for _ in ()).throw(Interrupted()))
    with pytest.raises(Interrupted):
        train(tiny_task(), "erm", tmp_path / "run", progress=False)
    monkeypatch.undo()
    state = tmp_path / "run/state.safetensors"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(UnseenError, match=r"state.safetensors is not a complete safetensors file"):
        train(tiny_task(), "erm", tmp_path / "run", resume=True, progress=False)


def test_unfinished_run_cannot_be_evaluated(tmp_path):
    with pytest.raises(UnseenError, match="no run"):
        exam.evaluate(Run(tmp_path / "none"), tiny_task())
    half = train(tiny_task(), "erm", tmp_path / "half", progress=False)
    (half.folder / "done").unlink()
    with pytest.raises(UnseenError, match="not finished: continue it with unseen train"):
        exam.evaluate(half, tiny_task())
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/config.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(UnseenError, match=r"use unseen.load for a folder that net.save wrote"):
        exam.evaluate(Run(tmp_path / "saved"), tiny_task())


def test_invalid_arguments_are_named(tmp_path):
    done = train(tiny_task(), "erm", tmp_path / "run", progress=False)
    with pytest.raises(
        UnseenError, match='no domain "mars" in tiny; it has: source, near, far, farther'
    ):
        score_domain(done, tiny_task(), "mars")
    with pytest.raises(UnseenError, match="--batch must lie between 1 and the 48 samples"):
        score_domain(done, tiny_task(), "far", batch=1000)
    with pytest.raises(UnseenError, match="false-alarm rate must lie between 0 and 1"):
        score_domain(done, tiny_task(), "far", false_alarm_rate=2)
    with pytest.raises(UnseenError, match="near is the source"):
        adapting.adapt(done, tiny_task(), "near", 3)
    with pytest.raises(
        UnseenError, match="class 0 has 16 labelled samples in this domain, 99 were asked for"
    ):
        adapting.adapt(done, tiny_task(), "far", 99, progress=False)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("records.jsonl", b"\xff\xfe\x00\n", "records.jsonl, line 1 is not a record"),
        ("records.jsonl", b'{"run": "a"}\n{"run": "a"}\n', "line 1 is not a record"),
        (
            "config.json",
            b'{"format": 1, "method": "erm", "settings": {}}',
            "does not describe a run: it lacks run, task, seed, loop",
        ),
    ],
)
def test_corrupt_file_of_a_run_is_named(tmp_path, name, content, said):
    done = train(tiny_task(), "erm", tmp_path / "run", progress=False)
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(UnseenError, match=said):
        exam.evaluate(done, tiny_task())


def test_finished_run_without_weights_is_an_error(tmp_path):
    train(tiny_task(), "erm", tmp_path / "run", progress=False)
    (tmp_path / "run/model.safetensors").unlink()
    with pytest.raises(UnseenError, match=r"is finished but model.safetensors is missing"):
        train(tiny_task(), "erm", tmp_path / "run", resume=True, progress=False)
