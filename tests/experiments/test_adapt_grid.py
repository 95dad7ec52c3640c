"""Grids of adaptations: every start by every row, what is done is skipped, tables with the paper beside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shifted import strips

from unseen import UnseenError
from unseen.experiments import evaluate as exam
from unseen.experiments.adapt_grid import (
    adaptings_of,
    read_adaptation_grid,
    run_adaptation_grid,
    write_tables,
)
from unseen.report.tables.adaptation import summarize, write_adaptation_results
from unseen.training.train import train

HERE = Path(__file__).parents[1] / "support"
ROOT = HERE.parents[1]
GRID = """
task = "shifted:strips"
seeds = [0]
shots = [3, 5]
draws = 2
runs = "{folder}/runs"
results = "{folder}/results"
[set]
steps = 40
[[start]]
method = "erm"
[[start]]
method = "mixup"
[[row]]
with = "fine_tune"
set = {{ steps = 20, lr = 0.01 }}
[[row]]
with = "fine_tune"
setting = "source kept"
keep_source = 0.01
set = {{ steps = 20, lr = 0.05 }}
[[row]]
with = "ccsa"
set = {{ steps = 10 }}
[[row]]
with = "dirt_t"
starts = ["erm"]
set = {{ steps = 4 }}
[paper.ccsa]
3-shot = {{ right = 0.915 }}
"""


@pytest.fixture
def grid_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # for the workers
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(folder=tmp_path))
    return path


@pytest.fixture(scope="module")
def starts(tmp_path_factory):
    """The starts, trained once and in this process: what `unseen bench` makes of them is tested elsewhere."""
    folder = tmp_path_factory.mktemp("starts")
    for method in ("erm", "mixup"):
        where = folder / f"{method}-default-seed0"
        done = train(
            strips(),
            method,
            where,
            overrides={"steps": 40},
            task_word="shifted:strips",
            progress=False,
        )
        exam.evaluate(done, strips())
    return folder


def test_a_grid_adapts_every_start_by_every_row_and_skips_what_is_done(grid_file, tmp_path, starts):
    shutil.copytree(starts, tmp_path / "runs")
    few_shot = read_adaptation_grid(grid_file)
    result = run_adaptation_grid(few_shot, quiet=True)
    assert result["failed"] == {} and result["adapted"] == result["wanted"] == 3 * 2 * 2 * 2 + 1
    rows = json.loads((tmp_path / "results/summary.json").read_text())
    assert {tuple(row) for row in rows} == {
        (
            "task",
            "variant",
            "method",
            "setting",
            "domain",
            "metric",
            "selection",
            "mean",
            "std",
            "seeds",
        )
    }
    by_name = {(r["method"], r["setting"], r["metric"]): r for r in rows}
    assert {(m, s) for m, s, _ in by_name} == {
        *((m, s) for m in ("erm", "mixup") for s in ("0-shot", "3-shot", "5-shot", "3-shot, source kept", "5-shot, source kept")),
        ("ccsa", "3-shot"), ("ccsa", "5-shot"), ("ccsa", "3-shot from mixup"), ("ccsa", "5-shot from mixup"), ("dirt_t", "all"),
    }  # fmt: skip
    assert {r["domain"] for r in rows} == {"right"} and {r["metric"] for r in rows} == {
        "accuracy",
        "source_accuracy",
    }
    assert by_name["erm", "3-shot", "accuracy"]["seeds"] == [0, 1] and by_name[
        "dirt_t", "all", "accuracy"
    ]["seeds"] == [0]
    assert (
        by_name["erm", "5-shot", "accuracy"]["mean"] > by_name["erm", "0-shot", "accuracy"]["mean"]
    )
    kept = by_name["erm", "5-shot, source kept", "source_accuracy"]["mean"]
    assert kept >= by_name["erm", "0-shot", "source_accuracy"]["mean"] - 0.03
    page = (tmp_path / "results/table.md").read_text()
    assert (
        "[91.5]" in page
        and "Source test set after adaptation" in page
        and "coefficient, %" in page
        and "Budgets are for two cores" in page
    )
    told = json.loads((tmp_path / "results/runs.json").read_text())
    assert all(
        run["settings"]["steps"] and run["cpu_seconds"] > 0 for run in told["runs"] if run["with"]
    )

    files = {a.path: a.path.stat().st_mtime_ns for a in adaptings_of(few_shot)}
    lost, torn, foreign = sorted(files)[3:6]
    lost.unlink()
    torn.write_text(torn.read_text()[:20])
    foreign.write_text(sorted(files)[6].read_text())  # of another adaptation
    assert run_adaptation_grid(few_shot, quiet=True)["summary"] == rows  # the same bits again
    assert sorted(path for path in files if path.stat().st_mtime_ns != files[path]) == [
        lost,
        torn,
        foreign,
    ]
    other = GRID.format(folder=tmp_path).replace("steps = 10", "steps = 11")
    grid_file.write_text(other)
    assert (
        write_tables(read_adaptation_grid(grid_file))["adapted"] == 17
    )  # what was made with other settings does not count


def test_a_killed_grid_leaves_no_worker_and_goes_on(grid_file, tmp_path, starts):
    shutil.copytree(starts, tmp_path / "runs")
    grid_file.write_text(GRID.format(folder=tmp_path).replace("steps = 10 }", "steps = 400 }"))
    words = [sys.executable, "-m", "unseen.cli", "adapt-grid", str(grid_file)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for _ in range(3000):
        if len(list(tmp_path.glob("runs/adapted/*.json"))) >= 2:
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1.5)
    stood = sorted(tmp_path.glob("runs/adapted/*.json"))
    time.sleep(1.5)
    assert 2 <= len(stood) < 25 and sorted(tmp_path.glob("runs/adapted/*.json")) == stood
    done = subprocess.run([*words, "--tables-only", "--json"], capture_output=True, text=True)
    assert done.returncode == 1 and json.loads(done.stdout)["adapted"] == len(stood)


def test_the_average_is_over_variants_draw_by_draw(tmp_path):
    facts = {"task": "t", "metric": "accuracy", "command": "c", "paper": {"x": {"7-shot": {"average": 0.8}}},
             "variants": {"v": {"source": "s", "domain": "s->a"}, "w": {"source": "s", "domain": "s->b"}}}  # fmt: skip

    def made(variant, seed, target):
        return {"variant": variant, "method": "x", "setting": "7-shot", "start": "erm", "with": "fada", "seed": seed,
                "target": target, "source": 0.9, "settings": {"steps": 1},
                "seconds": 1.0, "cpu_seconds": 1.0, "commit": "c"}  # fmt: skip

    cells = [
        made("v", 0, 0.2),
        made("v", 1, 0.4),
        made("w", 0, 0.6),
        made("w", 1, 0.6),
        made("w", 2, 0.0),
    ]
    rows = {(r["variant"], r["domain"], r["metric"]): r for r in summarize(facts, cells)}
    assert rows["v", "s->a", "accuracy"]["mean"] == pytest.approx(0.3)
    assert rows["v", "s->a", "accuracy"]["std"] == pytest.approx(0.02**0.5)
    assert rows["all", "average", "accuracy"]["mean"] == pytest.approx(
        0.45
    )  # of 0.4 and 0.5; draw 2 lacks a variant
    assert rows["all", "average", "accuracy"]["seeds"] == [0, 1]
    write_adaptation_results(tmp_path, facts, cells)
    assert "45.0 ± 7.1 [80.0]" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('with = "ccsa"', 'with = "csa"'), 'row csa: no adaptation "csa"'),
        (("set = { steps = 10 }", "set = { stpes = 10 }"), "row ccsa: settings of ccsa: unknown setting stpes"),
        (
            ('setting = "source kept"\n', ""),
            "two rows are called default erm 3-shot seed 0: give one a setting",
        ),
        (
            ('starts = ["erm"]', 'starts = ["magic"]'),
            "row 4: starts must be some of erm, mixup, not .'magic'",
        ),
        (('method = "mixup"', 'method = "mixdown"'), 'no method "mixdown"'),
        (("[[start]]", "[[begin]]"), "has its starts as"),
        (("shots = [3, 5]", "shots = [0]"), "shots must be an integer of at least 1"),
        (("right = 0.915", "right = 91.5"), "must lie in 0..1, not 91.5"),
        (("draws = 2", 'draws = "2"'), "draws must be an integer"),
        (("keep_source = 0.01", "keep_source = 5"), "must lie between 0 and 1, not 5"),
        (
            ("keep_source = 0.01", "keep_source = true"),
            "keep_source = True is not of the right kind",
        ),
        (("shots = [3, 5]", "shots = [[3]]"), "shots must be an integer of at least 1"),
        (('starts = ["erm"]', 'starts = [["erm"]]'), "row 4: starts must be some of erm, mixup"),
        (("[set]", "[sets]"), "unknown sets"),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_runs(grid_file, tmp_path, change, said):
    text = grid_file.read_text()
    assert change[0] in text
    grid_file.write_text(text.replace(*change))
    with pytest.raises(UnseenError, match=said):
        read_adaptation_grid(grid_file)
    assert not (tmp_path / "runs").exists()


def test_the_papers_grid_has_the_rows_and_figures_the_paper_has(monkeypatch):
    few_shot = read_adaptation_grid(ROOT / "grids/few_shot_adaptation.toml")
    cells = adaptings_of(few_shot)
    assert {(a.method, a.setting) for a in cells} >= {
        (m, s) for m in ("erm", "uncertainty_guided", "fada", "ccsa") for s in ("7-shot", "10-shot")
    } | {(m, "all") for m in ("dirt_t", "se", "sbada")}
    assert {a.start.domains[0] for a in cells} == {"usps->mnist", "mnist->svhn", "svhn->mnist"}
    draws = [
        a.seed
        for a in cells
        if (a.method, a.setting, a.start.domains[0]) == ("fada", "7-shot", "usps->mnist")
    ]
    assert draws == [0, 1, 2, 3, 4]
    assert few_shot.paper["uncertainty_guided"]["10-shot"]["mnist->svhn"] == 0.5977
    known = {(a.method, a.setting) for a in cells}
    assert {(m, s) for m, settings in few_shot.paper.items() for s in settings} <= known
