"""The examples for one's own data run, with fewer images and steps."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import unseen

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def read_script():
    """Return the Python part of image_folder.sh and its commands, as lists of words."""
    text = (ROOT / "examples/image_folder.sh").read_text()
    python = re.search(r"<<'PYTHON'\n(.*?)\nPYTHON\n", text, re.DOTALL).group(1)
    settings = re.search(r'SETTINGS="(.*)"', text).group(1)
    lines = re.findall(r"^\$unseen (.*)$", text, re.MULTILINE)
    return python, [shlex.split(line.replace("$SETTINGS", settings)) for line in lines]


def test_image_folder_script_runs(tmp_path):
    python, commands = read_script()
    assert len(commands) <= 5
    exec(python.replace("150)", "20)").replace("40,", "6,"), {})
    for words in commands:
        quick = [
            word.replace("steps=120", "steps=6").replace("warmup=40", "warmup=2") for word in words
        ]
        done = unseen(*quick)
        assert done.returncode == 0, (words, done.stderr)
        if words[0] == "score":
            assert re.search(r"night: (ok|shifted|failing|unknown)", done.stdout)
            assert "predicted accuracy" in done.stdout and "alarm" in done.stdout
    assert "night" in (tmp_path / "report/report.html").read_text()
    assert (tmp_path / "sheet.png").exists()
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 13


def test_image_folder_script_is_valid_shell():
    script = ROOT / "examples/image_folder.sh"
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0


def test_start_page_shows_the_commands_of_the_script():
    page = (ROOT / "docs/start.md").read_text()
    for words in read_script()[1]:
        command = " ".join(w for i, w in enumerate(words) if w != "--set" and "=" not in w)
        assert f"unseen {command}" in page


def test_tour_notebook_runs(monkeypatch):
    notebook = json.loads((ROOT / "examples/tour.ipynb").read_text())
    assert notebook["nbformat"] == 4
    names: dict[str, object] = {}
    shown = io.StringIO()
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [] and cell["execution_count"] is None
        code = "".join(cell["source"]).replace("COUNT = 150", "COUNT = 20")
        with contextlib.redirect_stdout(shown):
            exec(code.replace("STEPS = 120", "STEPS = 6"), names)
    assert names["verdict"]["verdict"] in ("ok", "shifted", "failing", "unknown")
    assert "sample,prediction,probability" in shown.getvalue()


def test_data_loading_benchmark_prints_the_documented_fields():
    command = [sys.executable, str(ROOT / "benchmarks/data_loading.py"), "--json"]
    output = subprocess.run(
        [*command, "--images", "60", "--steps", "2", "--width", "0.1"],
        capture_output=True,
        text=True,
    )
    assert output.returncode == 0, output.stderr
    result = json.loads(output.stdout)
    assert {"loading_decoding", "loading_decoded", "within_limit", "peak_mb"} <= result.keys()
    assert 0 < result["loading_decoding"] < 1


def test_python_of_the_page_runs(capsys):
    page = (ROOT / "docs/your_own_data.md").read_text()
    blocks = re.findall(r"```python title=.*?\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    for code in blocks:
        exec(code, names)
    assert "('dark', 'light') torch.Size([3, 16, 16])" in capsys.readouterr().out
    task = names["task_from_files"]("photos", model=names["build"])
    assert task.model(width=2)(names["images"][0][None]).shape == (1, 2)
