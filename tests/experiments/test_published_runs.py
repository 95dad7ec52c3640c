"""Published runs count as finished if their configuration is the same, also in an older format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unseen import UnseenError
from unseen.experiments.grid import plan_runs, read_grid, with_published, with_seeds
from unseen.experiments.published_runs import read_published_runs
from unseen.experiments.run_grid import run_grid, write_tables

ROOT = Path(__file__).parents[2]


def missing(grid):
    """Return the runs that are not published."""
    return [(r.row.method, r.row.setting, r.seed) for r in plan_runs(grid) if r.published is None]


def change(published, edit):
    content = json.loads((published / "runs.json").read_text())
    edit(content["runs"])
    (published / "runs.json").write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["digits", "digits_beta", "digits_draws"])
def test_runs_published_in_format_1_count_for_the_grid(name, monkeypatch, tmp_path):
    monkeypatch.setenv("UNSEEN_DATA", str(tmp_path))  # counts without a look at the data, too
    folder = ROOT / "results" / name
    grid = with_published(read_grid(ROOT / "grids" / f"{name}.toml"), [folder])
    keys = {run.key for run in read_published_runs(folder)}
    assert len(keys) >= 5
    runs = {run.key: run.published for run in plan_runs(grid)}
    assert [key for key in keys if key in runs and runs[key] is None] == []


def test_published_runs_are_tabled_without_training(grid_file, published, tmp_path):
    before = json.loads((published / "summary.json").read_text())
    result = run_grid(with_published(read_grid(grid_file), [published]), quiet=True)
    assert result["summary"] == before and result["runs"] == 6
    assert not list((tmp_path / "runs").glob("*-seed*"))
    page = (published / "table.md").read_text()
    assert f"--published {published}" in page and "6 of 6 runs from an earlier publication" in page


def test_published_runs_do_not_count_for_other_settings_or_samples(grid_file, published):
    text = grid_file.read_text()
    grid_file.write_text(text.replace("alpha = 0.1", "alpha = 0.2"))
    grid = with_published(read_grid(grid_file), [published])
    assert missing(grid) == [("mixup", "sharp", 0), ("mixup", "sharp", 1)]
    grid_file.write_text("samples = 4\n" + text)
    assert len(missing(with_published(read_grid(grid_file), [published]))) == 6


def test_averages_are_those_of_the_grid(grid_file, published):
    text = grid_file.read_text()
    grid_file.write_text(text.replace("[set]", '[averages]\n"the hall" = ["hall"]\n[set]'))
    rows = write_tables(with_published(read_grid(grid_file), [published]))["summary"]
    assert any(row["domain"] == "the hall" for row in rows)


def test_runs_on_other_data_do_not_count(grid_file, published, caplog):
    def edit(runs):
        assert runs[0]["trained_on"] == {"train": 300, "val": 300, "classes": 3}
        runs[0]["trained_on"]["train"] = 299
        del runs[2]["trained_on"]  # older runs do not record it and count

    change(published, edit)
    grid = with_published(read_grid(grid_file), [published])
    assert missing(grid) == [("erm", "default", 0)]
    assert "with trained_on = {'train': 299" in caplog.text
    assert "1 published runs do not record the size of their training data" in caplog.text


def test_runs_on_another_processor_count_and_are_named(grid_file, published):
    change(published, lambda runs: runs[1].update(processor="another one"))
    write_tables(with_published(read_grid(grid_file), [published]))
    page = (published / "table.md").read_text()
    assert "5 runs on" in page and "1 runs on another one" in page


def test_published_tables_are_never_overwritten_with_fewer_runs(grid_file, published, tmp_path):
    before = (published / "runs.json").read_bytes()
    grid = with_published(with_seeds(read_grid(grid_file), [0]), [published])
    for function in (lambda grid: run_grid(grid, quiet=True), write_tables):
        with pytest.raises(UnseenError, match=r"has 3 runs .* leave out, default erm seed 1 first"):
            function(grid)
    assert not (tmp_path / "runs").exists()
    assert (published / "runs.json").read_bytes() == before


def test_changed_rows_are_trained_and_replace_published_ones(
    grid_file, published, tmp_path, caplog
):
    grid_file.write_text(grid_file.read_text().replace("alpha = 0.1", "alpha = 0.2"))
    grid = with_published(read_grid(grid_file), [published])
    message = "has default mixup sharp seed 0, but with alpha = 0.1, now it is 0.2: it does not"
    assert message in caplog.text
    with pytest.raises(UnseenError, match=r"has 2 runs .* default mixup sharp seed 0 first"):
        write_tables(grid)
    assert run_grid(grid, quiet=True)["runs"] == 6
    assert "4 of 6 runs from an earlier publication" in (published / "table.md").read_text()


@pytest.mark.parametrize("figure", [37.5, -2, "0.99", True, float("nan"), float("inf"), None])
def test_impossible_figures_are_refused(grid_file, published, figure):
    change(published, lambda runs: runs[0]["figures"]["last"].update(hall=figure))
    with pytest.raises(UnseenError, match=r"figures\.last\.hall must be (a|at) "):
        with_published(read_grid(grid_file), [published])


@pytest.mark.parametrize(
    "damage",
    [
        lambda runs: runs[0]["figures"].pop("last"),
        lambda runs: runs[0].pop("settings"),
        lambda runs: runs[0].update(loop=5),
        lambda runs: runs[0].pop("chosen"),
        lambda runs: runs[0].update(seconds="long"),
    ],
)
def test_incomplete_published_runs_are_refused(grid_file, published, damage):
    change(published, damage)
    with pytest.raises(UnseenError, match=r"runs.json is not what `unseen bench` writes"):
        with_published(read_grid(grid_file), [published])


def test_contradicting_published_runs_are_refused(grid_file, published, finished_grid):
    folders = [published, finished_grid / "results"]
    with_published(read_grid(grid_file), folders)  # equal results are no contradiction
    change(published, lambda runs: runs[0]["figures"]["last"].update(hall=0.0123))
    with pytest.raises(UnseenError, match="have different results of default erm seed 0"):
        with_published(read_grid(grid_file), folders)


@pytest.mark.parametrize(
    "text", ["{}", '{"task": "t", "runs": [{}]}', '{"task": "t", "runs": 5}', "[]"]
)
def test_unreadable_published_runs_are_refused(grid_file, tmp_path, text):
    with pytest.raises(UnseenError, match=r"runs.json does not exist; .* that `unseen bench`"):
        with_published(read_grid(grid_file), [tmp_path])
    (tmp_path / "runs.json").write_text(text)
    with pytest.raises(UnseenError, match=r"runs.json is not what `unseen bench` writes"):
        with_published(read_grid(grid_file), [tmp_path])
