"""Grids of adaptations: every start by every row; finished adaptations are skipped."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from command_line import unseen
from forked import start_unseen
from shifted import strips

from unseen import UnseenError
from unseen.experiments.adapt_grid import plan_adaptations, read_adaptation_grid
from unseen.experiments.evaluate import evaluate
from unseen.experiments.run_adapt_grid import run_adaptation_grid, write_tables
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
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(folder=tmp_path))
    return path


@pytest.fixture(scope="module")
def starts(tmp_path_factory):
    """The starting points, trained once and in this process."""
    folder = tmp_path_factory.mktemp("starts")
    for method in ("erm", "mixup"):
        run = train(
            strips(),
            method,
            folder / f"{method}-default-seed0",
            overrides={"steps": 40},
            task_word="shifted:strips",
            progress=False,
        )
        evaluate(run, strips())
    return folder


@pytest.fixture(scope="module")
def adapted(starts, tmp_path_factory):
    """The folder of the finished grid, and its rows."""
    folder = tmp_path_factory.mktemp("adapted")
    shutil.copytree(starts, folder / "runs")
    (folder / "grid.toml").write_text(GRID.format(folder=folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        result = run_adaptation_grid(read_adaptation_grid(folder / "grid.toml"), 2, quiet=True)
    assert result["failed"] == {} and result["adapted"] == result["wanted"] == 3 * 2 * 2 * 2 + 1
    return folder


def test_every_start_is_adapted_by_every_row(adapted):
    rows = json.loads((adapted / "results/summary.json").read_text())
    fields = "task variant method setting domain metric selection mean std seeds"
    assert {tuple(row) for row in rows} == {tuple(fields.split())}
    by_name = {(r["method"], r["setting"], r["metric"]): r for r in rows}
    fine_tuned = ("0-shot", "3-shot", "5-shot", "3-shot, source kept", "5-shot, source kept")
    others = ("3-shot", "5-shot", "3-shot from mixup", "5-shot from mixup")
    assert {(m, s) for m, s, _ in by_name} == {
        *((m, s) for m in ("erm", "mixup") for s in fine_tuned),
        *(("ccsa", s) for s in others),
        ("dirt_t", "all"),
    }
    assert {r["domain"] for r in rows} == {"right"}
    assert {r["metric"] for r in rows} == {"accuracy", "source_accuracy"}
    assert by_name["erm", "3-shot", "accuracy"]["seeds"] == [0, 1]
    assert by_name["dirt_t", "all", "accuracy"]["seeds"] == [0]
    zero, five = (by_name["erm", s, "accuracy"]["mean"] for s in ("0-shot", "5-shot"))
    assert five > zero
    kept = by_name["erm", "5-shot, source kept", "source_accuracy"]["mean"]
    assert kept >= by_name["erm", "0-shot", "source_accuracy"]["mean"] - 0.03
    assert "[91.5]" in (adapted / "results/table.md").read_text()
    runs = json.loads((adapted / "results/runs.json").read_text())["runs"]
    assert all(run["settings"]["steps"] and run["cpu_seconds"] > 0 for run in runs if run["with"])


def test_only_missing_and_damaged_adaptations_are_repeated(adapted, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    grid = read_adaptation_grid(adapted / "grid.toml")
    rows = write_tables(grid)["summary"]
    files = {a.path: a.path.stat().st_mtime_ns for a in plan_adaptations(grid)}
    lost, torn, foreign, other = sorted(files)[3:7]
    lost.unlink()
    torn.write_text(torn.read_text()[:20])
    foreign.write_text(other.read_text())  # the result of another adaptation
    assert run_adaptation_grid(grid, quiet=True)["summary"] == rows  # the same bits
    changed = [path for path in files if path.stat().st_mtime_ns != files[path]]
    assert sorted(changed) == [lost, torn, foreign]


def test_adaptations_with_other_settings_do_not_count(adapted, grid_file):
    text = GRID.format(folder=adapted).replace("steps = 10", "steps = 11")
    grid_file.write_text(text)
    assert write_tables(read_adaptation_grid(grid_file))["adapted"] == 17


def test_adaptation_that_fails_is_reported_and_the_others_finish(grid_file, tmp_path, starts):
    shutil.copytree(starts, tmp_path / "runs")
    text = GRID.format(folder=tmp_path).replace("shots = [3, 5]", "shots = [3, 100000]")
    text = text.replace("draws = 2", "draws = 1").split('[[row]]\nwith = "fine_tune"\nsetting')[0]
    grid_file.write_text(text)
    finished = unseen("adapt-grid", grid_file, "--json")
    result = json.loads(finished.stdout)
    assert finished.returncode == 1 and result["adapted"] == 2 and result["wanted"] == 4
    assert set(result["failed"]) == {f"default {m} 100000-shot seed 0" for m in ("erm", "mixup")}
    assert all("100000" in message for message in result["failed"].values()), result["failed"]


def test_killed_grid_leaves_no_worker(grid_file, tmp_path, starts):
    shutil.copytree(starts, tmp_path / "runs")
    grid_file.write_text(GRID.format(folder=tmp_path).replace("steps = 10 }", "steps = 400 }"))
    process = start_unseen("adapt-grid", grid_file, folder=tmp_path, path=HERE)
    for _ in range(6000):
        if len(list(tmp_path.glob("runs/adapted/*.json"))) >= 2:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1.5)
    files = sorted(tmp_path.glob("runs/adapted/*.json"))
    time.sleep(1.5)
    assert 2 <= len(files) < 25 and sorted(tmp_path.glob("runs/adapted/*.json")) == files
    tables = unseen("adapt-grid", grid_file, "--tables-only", "--json")
    assert tables.returncode == 1 and json.loads(tables.stdout)["adapted"] == len(files)


def test_average_over_variants_is_taken_draw_by_draw(tmp_path):
    facts = {
        "task": "t",
        "metric": "accuracy",
        "command": "c",
        "paper": {"x": {"7-shot": {"average": 0.8}}},
        "variants": {
            "v": {"source": "s", "domain": "s->a"},
            "w": {"source": "s", "domain": "s->b"},
        },
    }
    common = {"method": "x", "setting": "7-shot", "start": "erm", "with": "fada", "source": 0.9}
    common |= {"settings": {"steps": 1}, "seconds": 1.0, "cpu_seconds": 1.0, "commit": "c"}

    def made(variant, seed, target):
        return {**common, "variant": variant, "seed": seed, "target": target}

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
    ("change", "message"),
    [
        (('with = "ccsa"', 'with = "csa"'), 'row csa: no adaptation "csa"'),
        (("set = { steps = 10 }", "set = { stpes = 10 }"), "row ccsa: .*stpes"),
        (('setting = "source kept"\n', ""), "two rows are called default erm 3-shot seed 0"),
        (('starts = ["erm"]', 'starts = ["magic"]'), "row 4: starts must be some of erm, mixup"),
        (('method = "mixup"', 'method = "mixdown"'), 'no method "mixdown"'),
        (("[[start]]", "[[begin]]"), "start is missing.*unknown setting begin"),
        (('with = "ccsa"\n', ""), r"row\[2\].with is missing"),
        (("shots = [3, 5]", "shots = [0]"), r"shots\[0\] must be at least 1"),
        (("shots = [3, 5]", "shots = [3, 3]"), "shots must be a list of different values"),
        (
            ("right = 0.915", "right = 91.5"),
            "3-shot.right must be at most 1.*, not 91.5",
        ),
        (("draws = 2", 'draws = "2"'), "draws must be an integer"),
        (("keep_source = 0.01", "keep_source = 5"), "must lie between 0 and 1, not 5"),
        (("keep_source = 0.01", "keep_source = true"), "keep_source must be a number or none"),
        (("shots = [3, 5]", "shots = [[3]]"), "shots.* must be an integer"),
        (('starts = ["erm"]', 'starts = [["erm"]]'), r"row\[3\].starts"),
        (("[set]", "[sets]"), "unknown setting sets"),
    ],
)
def test_wrong_grid_is_refused_before_anything_runs(grid_file, tmp_path, change, message):
    text = grid_file.read_text()
    assert change[0] in text
    grid_file.write_text(text.replace(*change))
    with pytest.raises(UnseenError, match=message):
        read_adaptation_grid(grid_file)
    assert not (tmp_path / "runs").exists()


def test_grid_of_the_paper_has_its_rows_and_figures():
    grid = read_adaptation_grid(ROOT / "grids/few_shot_adaptation.toml")
    planned = plan_adaptations(grid)
    names = {(a.method, a.setting) for a in planned}
    labelled = ("erm", "uncertainty_guided", "fada", "ccsa")
    assert names >= {(m, s) for m in labelled for s in ("7-shot", "10-shot")}
    assert names >= {(m, "all") for m in ("dirt_t", "se", "sbada")}
    domains = {a.start.domains[0] for a in planned}
    assert domains == {"usps->mnist", "mnist->svhn", "svhn->mnist"}
    cell = ("fada", "7-shot", "usps->mnist")
    draws = [a.seed for a in planned if (a.method, a.setting, a.start.domains[0]) == cell]
    assert draws == [0, 1, 2, 3, 4]
    assert grid.paper["uncertainty_guided"]["10-shot"]["mnist->svhn"] == 0.5977
    assert {(m, s) for m, settings in grid.paper.items() for s in settings} <= names
