"""README, examples, cards and the README's picture agree with the code and with results/."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
import torch
from forked import start_script
from torch.utils.data import DataLoader, TensorDataset

from unseen import METHODS, TASKS
from unseen.models import DigitsNet

ROOT = Path(__file__).parents[2]
PROSE = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("results/*.md")]


@pytest.mark.usefixtures("quick_estimators")
def test_readme_example_runs_as_written(tmp_path, monkeypatch):
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
        "few_x": data.tensors[0][:10],
        "few_y": data.tensors[1][:10],
    }
    exec(code.replace("steps=3000", "steps=2").replace("steps=100", "steps=2"), names)
    assert names["logits"].shape == (4, 10)
    assert names["score"].shape == (4,)
    assert names["alarm"] in (True, False)
    assert (tmp_path / "run/model.safetensors").exists()


def test_readme_has_at_most_100_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


@pytest.mark.parametrize("page", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_has_lines_of_at_most_100_characters(page):
    long = [
        f"{page.name}:{number}"
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > 100 and not line.startswith(("|", "    ")) and "](" not in line
    ]
    assert not long


def test_readme_states_the_measured_step_cost():
    cost = json.loads((ROOT / "results/step_cost/step_cost.json").read_text())
    row = next(
        row
        for row in cost["rows"]
        if (row["draws"], row["order"], row["heads"]) == (10, 1, "clean")
    )
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"costs {row['ratio_to_own_erm']:.1f} times an ERM step" in readme
    assert f"costs {cost['predict_and_score_ratio']:.2f} times prediction" in readme


def test_readme_picture_shows_the_published_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/figures")
    fingerprint = runpy.run_path(str(ROOT / "docs/figures/overview.py"))["fingerprint"]()
    for theme in ("light", "dark"):
        text = (ROOT / f"docs/figures/overview-{theme}.svg").read_text()
        assert fingerprint in text, "run python docs/figures/overview.py"


@pytest.mark.parametrize("name", ["huggingface_vit", "huggingface_text"])
def test_example_of_transformers_runs(name, capsys):
    """In this process: the import of transformers takes longer than the example."""
    pytest.importorskip("transformers")
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    first, second, *_ = [line for line in capsys.readouterr().out.splitlines() if "score" in line]
    assert "ALARM" not in first and "ALARM" in second


# Examples whose imports take seconds run in the process of a test: above, and in these.
ELSEWHERE = {
    "huggingface_text", "huggingface_vit",
    "lightning_callback",  # tests/integrations/test_lightning.py
    "loggers",  # tests/training/test_loggers.py
}  # fmt: skip


@pytest.mark.parametrize(
    "example",
    sorted(p for p in (ROOT / "examples").glob("*.py") if p.stem not in ELSEWHERE),
    ids=lambda p: p.stem,
)
def test_example_runs(example, tmp_path):
    result = start_script(example, folder=tmp_path).wait()
    assert result.returncode == 0, result.stderr
    assert "ALARM" in result.stdout or "average" in result.stdout


def test_every_method_and_task_has_a_card():
    for name in METHODS:
        assert (ROOT / "docs/methods" / f"{name}.md").exists(), name
    for name in TASKS:
        assert (ROOT / "docs/tasks" / f"{name}.md").exists(), name


def test_mini_digits_task_lists_the_domains_of_its_data():
    from unseen.data import mini_digits
    from unseen.tasks.mini_digits import UNSEEN

    assert UNSEEN == mini_digits.DOMAINS


def test_step_cost_benchmark_prints_the_documented_fields(tmp_path):
    words = ("--json", "--quick", "--repeats", "1")
    output = start_script(ROOT / "benchmarks/step_cost.py", *words, folder=tmp_path).wait()
    assert output.returncode == 0, output.stderr
    result = json.loads(output.stdout)
    assert result.keys() >= {
        "erm_ms",
        "gemm_gflops",
        "rows",
        "predict_ms",
        "predict_and_score_ratio",
        "memory_growth_mb",
    }
    assert result["rows"][0].keys() >= {
        "draws",
        "order",
        "heads",
        "ratio_to_erm",
        "ratio_to_ideal",
        "peak_mb",
    }
