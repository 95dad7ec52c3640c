"""`unseen export`."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import unseen
from light_task import light_task, samples

from unseen.deploy import OnnxDetector
from unseen.training.run import Run
from unseen.training.train import train

TASK = ("--task", "light_task:light_task")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "run"
    train(light_task(), "uncertainty_guided", folder, overrides={"steps": 30}, progress=False)
    return folder


@pytest.mark.usefixtures("quick_estimators")
def test_exported_run_judges_as_the_run(run, tmp_path):
    path = tmp_path / "model.onnx"
    result = unseen("export", run, "--out", path, "--json", *TASK).json()
    assert result["estimates_accuracy"] and result["bytes"] == path.stat().st_size
    net = Run(run).load(light_task(), "cpu")
    x = samples("test", 1.5).tensors[0]
    detector = OnnxDetector(path, threads=1)
    np.testing.assert_allclose(detector.predict(x.numpy()), net.predict(x), atol=1e-5)
    ours, theirs = detector.verdict(x.numpy()), net.verdict(x)
    assert ours.verdict == theirs.verdict
    assert ours.predicted_accuracy == pytest.approx(theirs.predicted_accuracy, abs=1e-5)
    assert ours.interval == pytest.approx(theirs.interval, abs=1e-5)
    assert detector.calibration.more["task"] == "light"


def test_bad_exports_write_nothing(run, tmp_path):
    wrong = unseen("export", run, "--out", tmp_path / "model.pt", *TASK)
    assert wrong.returncode == 2 and "must end in .onnx" in wrong.stderr
    other = unseen(
        "export", run, "--out", tmp_path / "model.onnx", "--format", "torch_export", *TASK
    )
    assert other.returncode == 2 and "must end in .pt2" in other.stderr
    missing = unseen("export", tmp_path / "none", "--out", tmp_path / "model.onnx", *TASK)
    assert missing.returncode == 2 and "none" in missing.stderr
    assert not list(tmp_path.iterdir())
