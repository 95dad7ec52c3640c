"""Grids of runs on one's own data."""

from __future__ import annotations

import pytest
from own_images import write_images

from unseen.errors import UnseenError
from unseen.experiments.grid import plan_runs, read_grid
from unseen.experiments.run_grid import _train_and_evaluate, is_evaluated, write_tables
from unseen.training.run import Run


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path_factory.mktemp("cache")))


def write_grid(folder, data, more=""):
    path = folder / "grid.toml"
    path.write_text(f"""
        {data}
        {more}
        seeds = [0]
        runs = "{folder}/runs"
        results = "{folder}/results"
        set = {{steps = 2, batch_size = 8, width = 0.0625}}
        [[row]]
        method = "erm"
    """)
    return path


def test_grid_trains_and_evaluates_on_own_data(tmp_path):
    for i, name in enumerate(("day", "night", "new")):
        write_images(tmp_path / "set" / name, 6, seed=i)
    for file in (tmp_path / "set" / "new").rglob("*.png"):  # no labels
        file.rename(tmp_path / "set" / "new" / f"{file.parent.name}{file.name}")
    for folder in list((tmp_path / "set" / "new").iterdir()):
        if folder.is_dir():
            folder.rmdir()
    data = f'data = {{path = "{tmp_path}/set", source = "day"}}'
    grid = read_grid(write_grid(tmp_path, data))
    (planned,) = plan_runs(grid)
    assert planned.domains == ("night",) and not is_evaluated(planned, None)
    _train_and_evaluate(grid.task, "erm", "fast", dict(grid.set), 0, planned.folder, None)
    assert is_evaluated(planned, None)
    assert write_tables(grid)["runs"] == 1
    assert "| night |" in (tmp_path / "results" / "table.md").read_text()
    write_images(tmp_path / "set" / "day", 7, seed=9)  # another source
    with pytest.raises(UnseenError, match="was started with"):
        is_evaluated(plan_runs(grid)[0], None)


@pytest.mark.parametrize("length", ["steps = 2", "epochs = 1"])
def test_grid_plans_the_settings_that_training_counts_and_adjusts(tmp_path, length):
    """Else its runs are other runs when they are finished."""
    for i, name in enumerate(("day", "night")):
        write_images(tmp_path / "set" / name, 6, seed=i)
    data = f'data = {{path = "{tmp_path}/set", source = "day"}}'
    path = write_grid(tmp_path, data)
    written = path.read_text().replace("steps = 2", length)
    path.write_text(written.replace('"erm"', '"uncertainty_guided"'))
    grid = read_grid(path)
    (planned,) = plan_runs(grid)
    assert planned.warnings == ()  # the warm-up is shorter than the training
    _train_and_evaluate(
        grid.task, "uncertainty_guided", "fast", dict(grid.set), 0, planned.folder, None
    )
    assert (
        is_evaluated(planned, None) and planned.steps == Run(planned.folder).config["loop"]["steps"]
    )


@pytest.mark.parametrize("data, more, message", [
    ("", "", "task is missing: name one, or your own data"),
    ('task = "mini_digits"', 'data = "x"', "give either task or data"),
    ('data = "PATH"', 'variants = ["a"]', "has no variants"),
    ('data = "PATH"', "", "no labelled domain beside the source to test on: give folders"),
    ('data = {path = "PATH", smell = 1}', "", "smell"),
])  # fmt: skip
def test_grid_with_bad_data_is_refused(tmp_path, data, more, message):
    write_images(tmp_path / "set", 4)
    data = data.replace("PATH", str(tmp_path / "set"))
    with pytest.raises(UnseenError, match=message):
        read_grid(write_grid(tmp_path, data, more))
