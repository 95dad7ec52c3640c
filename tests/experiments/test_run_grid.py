"""Grids of runs: finished runs are skipped, crashes are reported, tables come from records."""

from __future__ import annotations

import json
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import unseen
from forked import start_unseen

from unseen import UnseenError
from unseen.experiments.grid import plan_runs, read_grid
from unseen.experiments.run_grid import run_grid, write_tables

EXAMPLES = Path(__file__).parents[2] / "examples"


def modification_times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}


def test_grid_writes_tables_of_every_row_and_seed(finished_grid):
    rows = json.loads((finished_grid / "results/summary.json").read_text())
    fields = "task variant method setting domain metric selection mean std seeds"
    assert {tuple(row) for row in rows} == {tuple(fields.split())}
    methods = {("erm", "default"), ("mixup", "default"), ("mixup", "sharp")}
    assert {(r["method"], r["setting"]) for r in rows} == methods
    assert {r["domain"] for r in rows} == {"hall", "street", "average"}
    assert {r["selection"] for r in rows} == {"last", "source-val", "oracle"}
    means = {(r["method"], r["setting"], r["domain"], r["selection"]): r["mean"] for r in rows}
    for row in (("erm", "default"), ("mixup", "sharp")):
        parts = [means[(*row, domain, "last")] for domain in ("hall", "street")]
        assert means[(*row, "average", "last")] == pytest.approx(sum(parts) / 2)
        assert means[(*row, "average", "oracle")] >= means[(*row, "average", "last")]
    page = (finished_grid / "results/table.md").read_text()
    assert "| erm |" in page and "60.0" in page and "mixup, sharp" in page


def test_finished_runs_are_skipped(grid_file, finished_grid, tmp_path):
    shutil.copytree(finished_grid / "runs", tmp_path / "runs")
    before = modification_times(tmp_path / "runs")
    assert run_grid(read_grid(grid_file), quiet=True)["runs"] == 6
    assert modification_times(tmp_path / "runs") == before


def test_other_number_of_samples_evaluates_again_without_training(
    grid_file, finished_grid, tmp_path
):
    text = grid_file.read_text().replace("seeds = [0, 1]", "seeds = [0]")
    shutil.copytree(finished_grid / "runs", tmp_path / "runs")
    before = modification_times(tmp_path / "runs")
    grid_file.write_text(text)
    rows = write_tables(read_grid(grid_file))["summary"]
    grid_file.write_text("samples = 4\n" + text)
    run_grid(read_grid(grid_file), quiet=True)
    page, records = tmp_path / "results/table.md", tmp_path / "runs/erm-default-seed0/records.jsonl"
    assert "At most 4 random samples" in page.read_text()
    assert '"samples_at_most", "value": 4' in records.read_text()
    grid_file.write_text(text)
    assert run_grid(read_grid(grid_file), quiet=True)["summary"] == rows
    assert "samples_at_most" not in records.read_text()
    assert modification_times(tmp_path / "runs") == before


def test_run_with_other_settings_is_never_tabled(grid_file, finished_grid, tmp_path):
    text = grid_file.read_text()
    shutil.copytree(finished_grid / "runs", tmp_path / "runs")
    grid_file.write_text(text.replace("alpha = 0.1", "alpha = 0.2"))
    for function in (lambda grid: run_grid(grid, quiet=True), write_tables):
        with pytest.raises(UnseenError, match=r"mixup-sharp-seed0 .* alpha = 0.1, .* 0.2"):
            function(read_grid(grid_file))
    grid_file.write_text(text.replace("set = { alpha = 0.1 }", ""))  # the method's default
    with pytest.raises(UnseenError, match=r"alpha = 0.1, .* 1.0"):
        write_tables(read_grid(grid_file))


def test_run_that_fails_is_reported_and_the_others_finish(grid_file):
    text = grid_file.read_text().replace("seeds = [0, 1]", "seeds = [0]").split("[[row]]")[0]
    rows = "".join(f'[[row]]\nmethod = "{name}"\n' for name in ("cutout", "erm"))
    grid_file.write_text(text + rows)  # cutout needs images; these are vectors
    finished = unseen("bench", grid_file, "--json")
    result = json.loads(finished.stdout)
    assert finished.returncode == 1 and result["runs"] == 1 and result["wanted"] == 2
    assert "cutout needs images" in result["failed"]["cutout seed 0"]
    assert "cutout seed 0 failed" in finished.stderr


def test_killed_grid_leaves_no_worker_and_resumes_with_the_same_bits(grid_file, tmp_path):
    text = grid_file.read_text().replace("steps = 20", "steps = 400").replace("[0, 1]", "[0]")
    text = text.replace("checkpoint_every = 5", "checkpoint_every = 20")
    grid_file.write_text(text.split("[[row]]")[0] + '[[row]]\nmethod = "erm"\n')
    words = ("bench", grid_file, "--workers", "1")
    process = start_unseen(*words, folder=tmp_path, path=EXAMPLES)
    folder = plan_runs(read_grid(grid_file))[0].folder
    for _ in range(1200):
        if (folder / "state.safetensors").exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)  # only the grid: its worker must end by itself
    process.wait()
    time.sleep(1)
    records = (folder / "records.jsonl").read_bytes()
    time.sleep(1)
    assert not (folder / "done").exists() and (folder / "records.jsonl").read_bytes() == records
    assert run_grid(read_grid(grid_file), workers=1, quiet=True)["failed"] == {}
    resumed = (folder / "model.safetensors").read_bytes()
    grid_file.write_text(grid_file.read_text().replace(f"{tmp_path}/runs", f"{tmp_path}/again"))
    run_grid(read_grid(grid_file), workers=1, quiet=True)
    assert (plan_runs(read_grid(grid_file))[0].folder / "model.safetensors").read_bytes() == resumed


def test_two_grids_on_one_folder_share_the_runs(grid_file, tmp_path):
    """Neither calls a run failed that the other one trains; both write the whole table."""
    text = grid_file.read_text().replace("steps = 20", "steps = 60").replace("[0, 1]", "[0]")
    grid_file.write_text(text)
    words = ("bench", grid_file, "--workers", "1", "--json")
    grids = [start_unseen(*words, folder=tmp_path, path=EXAMPLES) for _ in range(2)]
    for grid in grids:
        finished = grid.wait(240)
        result = finished.json()
        assert result["failed"] == {}, finished.stderr
        assert result["runs"] == result["wanted"] == 3
    assert not list((tmp_path / "runs").rglob(".*.tmp"))


def test_tables_of_nothing_write_nothing(grid_file, tmp_path):
    assert write_tables(read_grid(grid_file))["runs"] == 0
    assert not (tmp_path / "results").exists()


def test_rows_are_compared_with_the_first_row_of_the_grid(grid_file, finished_grid, tmp_path):
    shutil.copytree(finished_grid / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs/erm-default-seed0")
    write_tables(read_grid(grid_file))
    assert "Difference to erm, paired by seed" in (tmp_path / "results/table.md").read_text()
    shutil.rmtree(tmp_path / "runs/erm-default-seed1")
    write_tables(read_grid(grid_file))
    assert "paired by seed" not in (tmp_path / "results/table.md").read_text()


@pytest.mark.parametrize("field", ["runs", "results"])
def test_folder_that_cannot_be_written_is_an_error_before_training(grid_file, tmp_path, field):
    (tmp_path / "file").write_text("not a folder")
    grid = replace(read_grid(grid_file), **{field: tmp_path / "file/inside"})
    with pytest.raises(UnseenError, match=rf"{field} = .*inside: .*file is not a folder; name an"):
        run_grid(grid, quiet=True)
