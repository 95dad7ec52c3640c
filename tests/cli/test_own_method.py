"""A user's own method on the command line and in a grid."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from command_line import unseen

from unseen.experiments.grid import plan_runs, read_grid
from unseen.experiments.run_grid import _job
from unseen.methods.own import OWN_METHODS

SPEC = "own_method:Shrunk"
TASK = ("--task", "own_task:make")


@pytest.fixture(autouse=True)
def forget():
    """Start as a new process does: no method of the user's has been imported."""
    OWN_METHODS.clear()
    yield
    OWN_METHODS.clear()


def test_own_method_trains_and_is_imported_only_with_permission(tmp_path):
    run = tmp_path / "run"
    done = unseen("train", "own_task:make", "--method", SPEC, "--set", "penalty=0.2", "--out", run)
    assert done.returncode == 0, done.stderr
    config = json.loads((run / "config.json").read_text())
    assert (config["method"], config["method_word"]) == ("shrunk", SPEC)
    assert config["settings"]["penalty"] == 0.2
    OWN_METHODS.clear()
    refused = unseen("evaluate", run, *TASK)
    assert refused.returncode == 2 and f"add --method {SPEC}" in refused.stderr
    assert not OWN_METHODS
    for permission in (("--method", SPEC), ("--trust-code",)):
        OWN_METHODS.clear()
        done = unseen("evaluate", run, *TASK, *permission, "--json")
        assert done.json()["method"] == "shrunk"


def test_own_method_in_a_grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(
        f'task = "own_task:make"\nruns = "{tmp_path}/runs"\nresults = "{tmp_path}/out"\n'
        f'[[row]]\nmethod = "{SPEC}"\nset = {{ penalty = 0.3 }}\n'
    )
    grid = replace(read_grid(path), seeds=(0,))
    (planned,) = plan_runs(grid)
    OWN_METHODS.clear()  # a worker is a new process
    job = _job(grid, planned)
    job.function(*job.arguments)
    OWN_METHODS.clear()
    done = unseen("bench", path, "--seeds", 0, "--tables-only", "--json")
    assert done.returncode == 0, done.stderr
    assert SPEC in (tmp_path / "out/table.md").read_text()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("own_method:NoMethod", "must be a subclass of unseen.Method, it is NoMethod"),
        ("own_method:Nothing", "has no attribute 'Nothing'; name a subclass of unseen.Method"),
        ("no_module:Shrunk", 'cannot import the method "no_module:Shrunk"'),
        ("own_method:Clash", 'has the name "mixup" of a built-in method'),
        ("shrunk", "or name your own as package.module:Class"),
    ],
)
def test_what_is_no_method_is_named(spec, text, tmp_path):
    refused = unseen("train", "own_task:make", "--method", spec, "--out", tmp_path / "run")
    assert refused.returncode == 2 and text in refused.stderr
    assert not (tmp_path / "run").exists() and not OWN_METHODS
