"""`unseen export`."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import unseen
from light_task import light_task, samples

from unseen.deploy import OnnxDetector, export_onnx
from unseen.training.run import Run
from unseen.training.train import train

TASK = ("--task", "light_task:light_task")


def test_exported_run_judges_as_the_run(light_run):
    path, result = light_run.exported, light_run.printed
    assert result["estimates_accuracy"] and result["bytes"] == path.stat().st_size
    net = Run(light_run.folder).load(light_run.task, "cpu")
    x = samples("test", 1.5).tensors[0]
    detector = OnnxDetector(path, threads=1)
    np.testing.assert_allclose(detector.predict(x.numpy()), net.predict(x), atol=1e-5)
    ours, theirs = detector.verdict(x.numpy()), net.verdict(x)
    assert ours.verdict == theirs.verdict
    assert ours.predicted_accuracy == pytest.approx(theirs.predicted_accuracy, abs=1e-5)
    assert ours.interval == pytest.approx(theirs.interval, abs=1e-5)
    assert detector.calibration.more["task"] == "light"


def test_run_with_averaged_weights_exports_the_average(tmp_path):
    task, settings = light_task(), {"steps": 8, "ema": 0.9}
    train(task, "erm", tmp_path / "run", overrides=settings, progress=False)
    train(task, "erm", tmp_path / "raw", overrides={"steps": 8}, progress=False)
    net, raw = (Run(tmp_path / name).load(task, "cpu") for name in ("run", "raw"))
    net.keep_held_out(None)  # without the estimator
    x = samples("test").tensors[0]
    export_onnx(net, x[:2], tmp_path / "model.onnx")
    exported = OnnxDetector(tmp_path / "model.onnx", threads=1).predict(x.numpy())
    np.testing.assert_allclose(exported, net.predict(x), atol=1e-5)
    assert np.abs(exported - raw.predict(x).numpy()).max() > 1e-3  # the last weights


def test_bad_exports_write_nothing(light_run, tmp_path):
    wrong = unseen("export", light_run.folder, "--out", tmp_path / "model.pt", *TASK)
    assert wrong.returncode == 2 and "must end in .onnx" in wrong.stderr
    other = unseen(
        "export",
        light_run.folder,
        "--out",
        tmp_path / "model.onnx",
        "--format",
        "torch_export",
        *TASK,
    )
    assert other.returncode == 2 and "must end in .pt2" in other.stderr
    missing = unseen("export", tmp_path / "none", "--out", tmp_path / "model.onnx", *TASK)
    assert missing.returncode == 2 and "none" in missing.stderr
    assert not list(tmp_path.iterdir())
