"""What the documents say is what the code does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from unseen import METHODS, TASKS
from unseen.models import DigitsNet

ROOT = Path(__file__).parents[2]


def test_the_readmes_example_runs_as_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(32, 3, 32, 32), torch.arange(32) % 10)
    names = {
        "model": DigitsNet(),
        "loader": DataLoader(data, 8),
        "val_loader": DataLoader(data, 8),
        "x": data.tensors[0][:4],
    }
    names |= {"few_x": data.tensors[0][:10], "few_y": data.tensors[1][:10]}
    exec(code.replace("steps=3000", "steps=2").replace("steps=100", "steps=2"), names)
    assert (
        names["logits"].shape == (4, 10)
        and names["doubt"].shape == (4,)
        and names["alarm"] in (True, False)
    )
    assert (tmp_path / "run/model.safetensors").exists()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_every_example_runs(example, tmp_path):
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "ALARM" in done.stdout or "average" in done.stdout


def test_every_method_and_task_has_a_card():
    for name in METHODS:
        assert (ROOT / "docs/methods" / f"{name}.md").exists(), name
    for name in TASKS:
        assert (ROOT / "docs/tasks" / f"{name}.md").exists(), name


def test_the_tasks_keep_their_own_list_of_domains():
    from unseen.data import mini_digits
    from unseen.tasks.mini_digits import UNSEEN

    assert UNSEEN == mini_digits.DOMAINS


def test_the_step_cost_benchmark_prints_what_it_promises():
    words = [
        sys.executable,
        str(ROOT / "benchmarks/step_cost.py"),
        "--json",
        "--quick",
        "--repeats",
        "1",
    ]
    result = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert {
        "erm_ms",
        "gemm_gflops",
        "rows",
        "predict_ms",
        "predict_and_score_ratio",
        "memory_growth_mb",
    } <= result.keys()
    assert {"draws", "order", "heads", "ratio_to_erm", "ratio_to_ideal", "peak_mb"} <= result[
        "rows"
    ][0].keys()
