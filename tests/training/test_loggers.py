"""Loggers: TensorBoard, Weights & Biases and MLflow show the records of a training once."""

from __future__ import annotations

import os
import runpy
import struct
import sys
from pathlib import Path

import pytest
import torch
from forked import start_unseen
from light_task import light_task
from torch import nn

import unseen
from unseen.errors import UnseenError
from unseen.training.loggers import Logger, make_loggers
from unseen.training.train import train

EXAMPLES = Path(__file__).parents[2] / "examples"


def source():
    y = torch.arange(8) % 2
    return [(torch.randn(8, 4) + y[:, None], y)] * 4


class Memory(Logger):
    """Keeps what it is given; a step to fail at is an argument."""

    name = "memory"

    def __init__(self, fails_at=None):
        self.points, self.training, self.closed, self.fails_at = [], None, None, fails_at

    def start(self, training, points):
        self.training = training
        self.points += points

    def log(self, step, values):
        if step == self.fails_at:
            raise ConnectionError("no server")
        self.points.append((step, dict(values)))

    def close(self, failed):
        self.closed = failed


def erm():
    return unseen.ERM(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))


def fit(logger, **options):
    return unseen.fit(erm(), source(), held_out=source(), progress=False, logger=logger, **options)


def test_fit_logs_every_step():
    memory = Memory()
    history = fit(memory, steps=5)
    losses = [(step, values["train/loss"]) for step, values in memory.points]
    assert losses == list(zip(range(1, 6), history["loss"], strict=True))
    assert memory.training.settings["method"] == "erm" and memory.closed is False


def test_resumed_fit_gives_the_earlier_steps_once(tmp_path):
    file = tmp_path / "fit.safetensors"

    def stop(step, logs):
        if step == 4:
            raise KeyboardInterrupt

    cut, whole = Memory(), Memory()
    with pytest.raises(KeyboardInterrupt):
        fit(cut, steps=6, checkpoint=file, checkpoint_every=2, on_step=stop)
    assert cut.closed is True
    fit(whole, steps=6, checkpoint=file, checkpoint_every=2, resume=True)
    assert [step for step, _ in whole.points] == [1, 2, 3, 4, 5, 6]
    assert whole.training.key == cut.training.key


def test_logger_that_fails_does_not_stop_the_training(caplog):
    broken, whole = Memory(fails_at=3), Memory()
    fit([broken, whole], steps=5)
    assert len(broken.points) == 2 and len(whole.points) == 5
    assert "logger memory failed" in caplog.text and "no server" in caplog.text


@pytest.mark.parametrize("name", ["none", "tensorboard,none", ["none"]])
def test_unknown_logger_is_named_with_those_there_are(name):
    with pytest.raises(UnseenError, match="no logger 'none': choose tensorboard, wandb, mlflow"):
        make_loggers(name)


@pytest.mark.parametrize(("name", "module"), [("wandb", "wandb"), ("mlflow", "mlflow")])
def test_missing_package_names_its_extra(name, module, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnseenError, match=rf"pip install 'unseen\[{name}\]'"):
        train(light_task(), "erm", tmp_path / "run", logger=name, progress=False)
    assert not list(tmp_path.iterdir())


def leveldb_records(content, block=2**15, header=7, full=1, last=4):
    """Yield the records of a LevelDB log, which wandb writes after a header of its own."""
    place, parts = header, b""
    while place + header <= len(content):
        if (left := block - place % block) < header:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + header])
        parts += content[place + header : place + header + length]
        place += header + length
        if kind in (full, last):
            yield parts
            parts = b""


def wandb_history(folder):
    """Return the values of an offline run by name, from its file."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    found = {}
    for data in leveldb_records(path.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        items = {
            "/".join(item.nested_key) or item.key: item.value_json for item in record.history.item
        }
        for name, value in items.items():
            if "/" in name:
                found.setdefault(name, []).append((int(items["step"]), round(float(value), 5)))
    return found


def mlflow_history(folder, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = MlflowClient(folder.as_uri())
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    found = {
        name: sorted((m.step, round(m.value, 5)) for m in client.get_metric_history(
            run.info.run_id, name
        ))
        for name in run.data.metrics
    }  # fmt: skip
    return run, found


def recorded(run):
    found = {}
    for r in run.records():
        found.setdefault(f"{r['split']}/{r['metric']}", []).append(
            (r["step"], round(r["value"], 5))
        )
    return {name: sorted(points) for name, points in found.items()}


def test_wandb_and_mlflow_hold_every_record_once(tmp_path, monkeypatch):
    """One test: the imports of wandb and mlflow take seconds."""
    pytest.importorskip("wandb")
    pytest.importorskip("mlflow")
    for name in [n for n in os.environ if n.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_SILENT", "true")
    overrides = {"steps": 6, "checkpoint_every": 2, "log_every": 1}
    options = {"overrides": overrides, "progress": False}

    # A finished run gets its logs on resume, and a second resume repeats nothing.
    run = train(light_task(), "erm", tmp_path / "run", **options)
    for _ in range(2):
        train(light_task(), "erm", run.folder, resume=True, logger="wandb,mlflow", **options)
    expected = recorded(run)
    assert len(expected["train/loss"]) == 6 and len(expected["val/accuracy"]) == 1
    shown = wandb_history(run.folder)
    assert {name: sorted(points) for name, points in shown.items()} == expected
    logged, shown = mlflow_history(run.folder / "mlruns", monkeypatch)
    assert shown == expected
    assert logged.info.status == "FINISHED" and logged.info.run_name == "run"
    assert logged.data.params["method"] == "erm" and logged.data.params["loop.steps"] == "6"

    # The example logs to all three; a live training does too.
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    losses = runpy.run_path(str(EXAMPLES / "loggers.py"))["history"]["loss"]
    expected = [(step, round(loss, 5)) for step, loss in enumerate(losses, 1)]
    assert wandb_history(tmp_path / "logs")["train/loss"] == expected
    assert mlflow_history(tmp_path / "logs/mlruns", monkeypatch)[1]["train/loss"] == expected
    assert list(tmp_path.glob("logs/events.out.tfevents.*"))

    # The user's own active run is used, and left open.
    import mlflow

    mlflow.set_tracking_uri((tmp_path / "mine").as_uri())
    with mlflow.start_run() as active:
        fit("mlflow", steps=2)
        assert mlflow.active_run().info.run_id == active.info.run_id
    client = mlflow.MlflowClient()
    assert len(client.get_metric_history(active.info.run_id, "train/loss")) == 2


def test_command_writes_logs_and_says_how_to_see_them(tmp_path):
    words = ("--method", "erm", "--set", "steps=2", "--set", "batch_size=8", "--out", "run")
    result = start_unseen(
        "train", "your_own_task:waves", *words, "--logger", "tensorboard",
        folder=tmp_path, path=EXAMPLES,
    ).wait()  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "curves: tensorboard --logdir run/tensorboard" in result.stdout
    assert list(tmp_path.glob("run/tensorboard/events.out.tfevents.*"))
    refused = start_unseen(
        "train", "your_own_task:waves", "--out", "other", "--logger", "paper",
        folder=tmp_path, path=EXAMPLES,
    ).wait()  # fmt: skip
    assert refused.returncode == 2 and "choose tensorboard, wandb, mlflow" in refused.stderr
    assert not (tmp_path / "other").exists()
