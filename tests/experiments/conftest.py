"""A small grid on the example task, trained once for all tests of grids."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from unseen.experiments.grid import read_grid
from unseen.experiments.run_grid import run_grid

EXAMPLES = Path(__file__).parents[2] / "examples"
GRID = """
task = "your_own_task:waves"
seeds = [0, 1]
runs = "{folder}/runs"
results = "{folder}/results"
[set]
steps = 20
num_checkpoints = 2
checkpoint_every = 5
[[row]]
method = "erm"
paper = {{ hall = 0.5, street = 0.7 }}
[[row]]
method = "mixup"
[[row]]
method = "mixup"
setting = "sharp"
set = {{ alpha = 0.1 }}
"""


@pytest.fixture
def grid_file(tmp_path, monkeypatch):
    """The grid in a folder of its own; nothing is trained."""
    monkeypatch.syspath_prepend(EXAMPLES)
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(folder=tmp_path))
    return path


@pytest.fixture(scope="session")
def finished_grid(tmp_path_factory):
    """The folder of the grid, with its runs and results."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "grid.toml").write_text(GRID.format(folder=folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        result = run_grid(read_grid(folder / "grid.toml"), workers=2, quiet=True)
    assert result["failed"] == {} and result["runs"] == result["wanted"] == 6
    return folder


@pytest.fixture
def published(finished_grid, tmp_path):
    """The results of the grid, without its run folders."""
    shutil.copytree(finished_grid / "results", tmp_path / "results")
    return tmp_path / "results"
