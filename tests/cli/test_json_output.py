"""--json gives one strict JSON document on stdout, whatever a task prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import own_task
import pytest
import torch
from command_line import unseen
from own_task import COMMANDS, OWN

from unseen.cli.output import strict, wants_json

NOISY = """
import atexit, ctypes, os, sys
from own_task import *

print("at import")
print("to the real stdout", file=sys.__stdout__)
os.system("echo from a child")
ctypes.CDLL(None).puts(b"from C")
os.write(1, b"to the descriptor")
atexit.register(print, "at exit")
"""


def loads(text):
    def refuse(name):
        raise AssertionError(f"{name} is not strict JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json") / "run"
    assert unseen("train", "own_task:make", "--out", folder).returncode == 0
    return folder


@pytest.fixture
def printing():
    """A task that prints wherever its code runs."""

    def note(value):
        print("printed by the task")
        return value

    own_task.faults.update({place: note for place in ("load", "item", "model", "forward")})
    yield
    own_task.faults.clear()


@pytest.mark.parametrize("flag", ["--json", "--json=true", "--json=1"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_one_document(run, tmp_path, printing, command, flag):
    done = unseen(*COMMANDS[command](run, tmp_path / "new"), flag)
    assert done.returncode == 0, done.stderr
    assert isinstance(loads(done.stdout), dict)
    assert "printed by the task" in done.stderr


def test_grids_and_reports_print_one_document(run, tmp_path, printing):
    grid = tmp_path / "grid.toml"
    grid.write_text(
        f'task = "own_task:make"\nseeds = [0]\nruns = "{tmp_path}/runs"\n'
        f'results = "{tmp_path}/results"\n[[row]]\nmethod = "erm"\n'
    )
    done = unseen("bench", grid, "--tables-only", "--json=true")
    assert done.returncode == 1 and loads(done.stdout)["runs"] == 0
    assert unseen("evaluate", run, *OWN).returncode == 0
    assert loads(unseen("report", run, "--out", tmp_path / "report", "--json").stdout)["page"]
    assert loads(unseen("tasks", "own_task:make", "--json").stdout)["tasks"]


def test_errors_leave_stdout_empty(run, printing):
    done = unseen("score", run, "--domain", "nowhere", *OWN, "--json")
    assert done.returncode == 2 and done.stdout == "" and 'no domain "nowhere"' in done.stderr


def test_nothing_else_reaches_the_stdout_of_the_process(tmp_path):
    (tmp_path / "noisy_task.py").write_text(NOISY)
    support = Path(own_task.__file__).parent
    path = os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "unseen", "tasks", "noisy_task:make", "--json=true"]
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert loads(done.stdout)["tasks"][0]["source"] == "bars"
    for text in ("at import", "real stdout", "a child", "from C", "descriptor", "at exit"):
        assert text in done.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--json"], True),
        (["--json=True"], True),
        (["--json=no"], False),
        (["--json=FALSE"], False),
        (["--json-lines"], False),
        (["--", "--json"], False),
        ([], False),
    ],
)
def test_json_is_asked_for(words, wanted):
    assert wants_json(["tasks", *words]) is wanted


def test_human_output_stays_on_stdout_without_json():
    assert "mini_digits" in unseen("tasks", "--json=false").stdout


def test_values_that_json_does_not_know_become_null_or_text():
    value = {
        "nan": float("nan"), 3: [float("inf"), (1, True)], "numpy": np.float32(0.5),
        "array": np.array([1.0, np.nan]), "tensor": torch.tensor([2]), "path": Path("a"),
        "half": "\ud800", "none": None,
    }  # fmt: skip
    text = json.dumps(strict(value), allow_nan=False)
    assert loads(text) == {
        "nan": None, "3": [None, [1, True]], "numpy": 0.5, "array": [1.0, None], "tensor": [2],
        "path": "a", "half": "\ud800", "none": None,
    }  # fmt: skip
