"""Training gives the weights of version 0.1: to the bit on the same processor, closely elsewhere.

`golden.json` was written by commit d57cf86, the last one before the package was restructured. The
weights of m_ada are newer: before, a fused Adam read its gradients in another memory layout.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from unseen.tasks import task_named
from unseen.training import train as training
from unseen.training.machine import processor

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
SETTINGS = {
    "uncertainty_guided": {"warmup": 20, "adversary": {"rounds": 3, "steps": 10}},
    "erm": {},
    "m_ada": {"rounds": 2, "every": 20, "capacity": 64, "ascent_steps": 5},
}


@pytest.mark.parametrize("method", GOLDEN["methods"])
def test_training_gives_the_weights_of_version_0_1(tmp_path, method, monkeypatch):
    monkeypatch.setattr(training, "MAX_SAMPLES", 64)  # of the calibration, after the last update
    settings = {"steps": 60, "batch_size": 16, **SETTINGS[method]}
    training.train(
        task_named("mini_digits"), method, tmp_path / "run", overrides=settings, progress=False
    )
    weights = load_file(tmp_path / "run" / "model.safetensors")
    expected = GOLDEN["methods"][method]
    for name, (norm, total) in expected["tensors"].items():
        values = weights[name].double()
        assert float(values.norm()) == pytest.approx(norm, rel=1e-3, abs=1e-6), name
        assert float(values.sum()) == pytest.approx(total, rel=1e-3, abs=1e-3 * norm), name
    if (processor(), torch.__version__) == (GOLDEN["processor"], GOLDEN["torch"]):
        digest = hashlib.sha256()
        for name in sorted(weights):
            digest.update(name.encode())
            digest.update(weights[name].contiguous().numpy().tobytes())
        assert digest.hexdigest() == expected["sha256"]
