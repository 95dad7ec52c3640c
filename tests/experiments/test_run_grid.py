"""Grids of runs: what is done is skipped, what crashed is reported, tables come from records alone."""

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

from unseen import UnseenError
from unseen.experiments.grid import jobs_of, read_grid, with_published, with_seeds
from unseen.experiments.run_grid import run_grid, write_tables
from unseen.report.statistics import confidence_half_width
from unseen.report.tables.grid_runs import select_checkpoints
from unseen.report.write import write_results

TASK = Path(__file__).parents[2] / "examples"
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
    monkeypatch.syspath_prepend(TASK)
    monkeypatch.setenv("PYTHONPATH", str(TASK))  # for the workers
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(folder=tmp_path))
    return path


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The folder of the grid's runs and results, trained once."""
    folder = tmp_path_factory.mktemp("once")
    (folder / "grid.toml").write_text(GRID.format(folder=folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TASK)
        patch.setenv("PYTHONPATH", str(TASK))
        run_grid(read_grid(folder / "grid.toml"), quiet=True)
    return folder


@pytest.fixture
def published(once, tmp_path):
    """The results of the grid, its runs being gone."""
    shutil.copytree(once / "results", tmp_path / "results")
    return tmp_path / "results"


def test_a_grid_runs_every_row_and_seed_and_writes_its_tables(grid_file, tmp_path):
    result = run_grid(read_grid(grid_file), workers=2, quiet=True)
    assert result["failed"] == {} and result["runs"] == result["wanted"] == 6
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
    assert {(r["method"], r["setting"]) for r in rows} == {
        ("erm", "default"),
        ("mixup", "default"),
        ("mixup", "sharp"),
    }
    assert {r["domain"] for r in rows} == {"hall", "street", "average"} and {r["selection"] for r in rows} == {
        "last", "source-val", "oracle"}  # fmt: skip
    by_name = {(r["method"], r["setting"], r["domain"], r["selection"]): r["mean"] for r in rows}
    for method, setting in (("erm", "default"), ("mixup", "sharp")):
        parts = [by_name[method, setting, d, "last"] for d in ("hall", "street")]
        assert by_name[method, setting, "average", "last"] == pytest.approx(sum(parts) / 2)
        assert (
            by_name[method, setting, "average", "oracle"]
            >= by_name[method, setting, "average", "last"]
        )
    page = (tmp_path / "results/table.md").read_text()
    assert (
        "| erm |" in page
        and "60.0" in page
        and "not a fair choice" in page
        and "mixup, sharp" in page
    )

    grid_file.write_text("samples = 4\n" + grid_file.read_text())
    run_grid(read_grid(grid_file), quiet=True)
    assert (
        "At most 4 random samples" in (tmp_path / "results/table.md").read_text()
        and "At most" not in page
    )
    records = tmp_path / "runs/erm-default-seed0/records.jsonl"
    assert '"samples_at_most", "value": 4' in records.read_text()
    grid_file.write_text(GRID.format(folder=tmp_path))  # and on all of them again
    run_grid(read_grid(grid_file), quiet=True)
    assert (
        "samples_at_most" not in records.read_text()
        and json.loads((tmp_path / "results/summary.json").read_text()) == rows
    )

    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("model.safetensors")}
    assert run_grid(read_grid(grid_file), workers=2, quiet=True)["runs"] == 6
    assert before == {
        p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("model.safetensors")
    }


def test_a_run_made_with_other_settings_is_never_tabled_under_the_new_ones(grid_file, tmp_path):
    text = grid_file.read_text().replace("seeds = [0, 1]", "seeds = [0]")
    grid_file.write_text(text)
    run_grid(read_grid(grid_file), workers=2, quiet=True)
    grid_file.write_text(text.replace("alpha = 0.1", "alpha = 0.2"))
    for ask in (lambda grid: run_grid(grid, quiet=True), write_tables):
        with pytest.raises(
            UnseenError, match=r"mixup-sharp-seed0 was started with alpha = 0.1, now it is 0.2"
        ):
            ask(read_grid(grid_file))
    grid_file.write_text(
        text.replace("set = { alpha = 0.1 }", "")
    )  # back to the method's own default
    with pytest.raises(UnseenError, match=r"was started with alpha = 0.1, now it is 1.0"):
        write_tables(read_grid(grid_file))


def test_a_run_that_fails_is_reported_and_the_others_go_on(grid_file, tmp_path):
    text = grid_file.read_text().replace("seeds = [0, 1]", "seeds = [0]")
    grid_file.write_text(
        text + '[[row]]\nmethod = "cutout"\n'
    )  # needs images, and is given vectors
    words = [sys.executable, "-m", "unseen.cli", "bench", str(grid_file), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    result = json.loads(done.stdout)
    assert done.returncode == 1 and result["runs"] == 3 and result["wanted"] == 4
    assert "cutout needs images" in result["failed"]["cutout seed 0"]
    assert "cutout seed 0 failed" in done.stderr


def test_a_killed_grid_goes_on_where_it_was_and_ends_with_the_same_bits(grid_file, tmp_path):
    text = (
        grid_file.read_text()
        .replace("seeds = [0, 1]", "seeds = [0]")
        .replace("steps = 20", "steps = 1000")
    )
    text = text.replace("checkpoint_every = 5", "checkpoint_every = 50")
    grid_file.write_text(text.split("[[row]]")[0] + '[[row]]\nmethod = "erm"\n')
    words = [sys.executable, "-m", "unseen.cli", "bench", str(grid_file), "--workers", "1"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    folder = jobs_of(read_grid(grid_file))[0].folder
    for _ in range(600):
        if (folder / "state.safetensors").exists():
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)  # the grid alone: its worker must not outlive it
    process.wait()
    time.sleep(1)
    stood = (folder / "records.jsonl").read_bytes()
    time.sleep(1)
    assert not (folder / "done").exists() and (folder / "records.jsonl").read_bytes() == stood
    assert run_grid(read_grid(grid_file), workers=1, quiet=True)["failed"] == {}
    resumed = (folder / "model.safetensors").read_bytes()
    grid_file.write_text(grid_file.read_text().replace(f"{tmp_path}/runs", f"{tmp_path}/whole"))
    run_grid(read_grid(grid_file), workers=1, quiet=True)
    assert (jobs_of(read_grid(grid_file))[0].folder / "model.safetensors").read_bytes() == resumed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('task = "your_own_task:waves"', ""), '"task" is missing'),
        (('method = "mixup"', 'method = "mixdown"'), 'row mixdown: no method "mixdown"'),
        (("alpha = 0.1", "alfa = 0.1"), "row mixup, sharp: set: unknown setting alfa"),
        (("alpha = 0.1", 'alpha = "much"'), "alpha must be a number"),
        (('setting = "sharp"\n', ""), "two rows are called mixup default"),
        (("[set]", "[sets]"), "unknown sets"),
        (
            (
                'setting = "sharp"',
                'setting = "def/ault"\n[[row]]\nmethod = "mixup"\nsetting = "def ault"',
            ),
            "would share the folder",
        ),
        (("alpha = 0.1", "alpha = -1.0"), "row mixup, sharp: alpha must be a number above 0"),
        (("set = { alpha = 0.1 }", "set = 5"), "row 3: set must be a table"),
        (("street = 0.7", "street = 70"), "must lie in 0..1"),
        (("street = 0.7 }", "street = 0.7 }\n[averages]\nx = 5"), "unknown|an average has a name"),
        (("seeds = [0, 1]", "seeds = [1, 1]"), "seeds must be a list of different whole numbers"),
        (("seeds = [0, 1]", "seeds = [0, 1"), "is not TOML"),
        (("seeds = [0, 1]", "samples = 0"), "samples must be an integer of at least 1"),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_runs(grid_file, tmp_path, change, said):
    text = grid_file.read_text()
    assert change[0] in text
    grid_file.write_text(text.replace(*change))
    with pytest.raises(UnseenError, match=said):
        read_grid(grid_file)
    assert not (tmp_path / "runs").exists()


def test_tables_of_nothing_write_nothing(grid_file, tmp_path):
    assert write_tables(read_grid(grid_file))["runs"] == 0
    assert not (tmp_path / "results").exists()


def test_selections_choose_by_what_they_say():
    values = {100: {"a": 0.9, "b": 0.1}, 200: {"a": 0.5, "b": 0.7}, 300: {"a": 0.4, "b": 0.4}}
    assert select_checkpoints(values, {100: 0.8, 200: 0.6, 300: 0.8}, ["a", "b"]) == {
        "last": 300,
        "source-val": 300,
        "oracle": 200,
    }
    assert select_checkpoints(values, {100: 0.9, 200: 0.6, 300: 0.8}, ["a", "b"])["source-val"] == 100
    assert select_checkpoints({300: values[300]}, {300: 0.8}, ["a", "b"]) == {"last": 300}


def test_the_interval_is_students():
    assert confidence_half_width([0.01, 0.02, 0.03]) == pytest.approx(4.302653 * 0.01 / 3**0.5, rel=1e-5)
    assert confidence_half_width([0.5]) is None


def test_figures_are_means_and_stds_over_seeds_and_differences_are_paired(tmp_path):
    facts = {"task": "t", "metric": "accuracy", "variants": {"v": {"source": "s", "domains": ["a", "b"]}}, "command": "c",
             "averages": {"only a": ["a"], "with c": ["a", "c"]}}  # fmt: skip

    def made(method, seed, a, b):
        at = {"step": 10, "split": "test", "metric": "accuracy"}
        records = [{**at, "domain": d, "value": v} for d, v in (("s", 0.9), ("a", a), ("b", b))]
        config = {"loop": {"steps": 10}, "commit": "abc"}
        return {"variant": "v", "method": method, "setting": "default", "label": method, "seed": seed, "paper": {"average": 0.5},
                "config": config, "records": records}  # fmt: skip

    runs = [
        made("erm", 0, 0.2, 0.4),
        made("erm", 1, 0.4, 0.6),
        made("x", 0, 0.3, 0.5),
        made("x", 1, 0.5, 0.7),
    ]
    rows = write_results(tmp_path, facts, runs)
    by_name = {(r["method"], r["domain"]): (r["mean"], r["std"], r["seeds"]) for r in rows}
    assert by_name["erm", "a"] == (pytest.approx(0.3), pytest.approx(0.02**0.5), [0, 1])
    assert by_name["x", "average"][0] == pytest.approx(0.5) and by_name["x", "only a"][
        0
    ] == pytest.approx(0.4)
    assert ("x", "with c") not in by_name and ("x", "s") not in by_name
    page = (tmp_path / "table.md").read_text()
    assert "| x | +10.0 | ± 0.0 | higher | 2 of 2 | +10.0, +10.0 |" in page


def test_variants_have_their_own_rows_and_are_tabled_together(tmp_path):
    facts = {"task": "t", "metric": "miou", "command": "c", "averages": {"fogs": ["fog/*"]},
             "variants": {"v": {"source": "s", "domains": ["fog/1", "fog/2"]},
                          "w": {"source": "s", "domains": ["rain"]}}}  # fmt: skip

    def made(variant, method, **figures):
        at = {"step": 10, "split": "test", "metric": "miou"}
        records = [
            {**at, "domain": d.replace("_", "/"), "value": v}
            for d, v in {"s": 0.9, **figures}.items()
        ]
        records.append({**at, "metric": "iou/road", "domain": "rain", "value": 0.0})
        return {"variant": variant, "method": method, "setting": "default", "label": method, "seed": 0, "paper": {"rain": 0.9},
                "config": {"loop": {"steps": 10}}, "records": records}  # fmt: skip

    runs = [
        made("v", "erm", fog_1=0.2, fog_2=0.4),
        made("w", "erm", rain=0.6),
        made("v", "x", fog_1=0.3, fog_2=0.5),
    ]
    rows = {
        (r["variant"], r["method"], r["domain"]): r["mean"]
        for r in write_results(tmp_path, facts, runs)
    }
    assert rows["v", "erm", "average"] == rows["v", "erm", "fogs"] == pytest.approx(0.3)
    assert rows["w", "erm", "average"] == pytest.approx(0.6) and ("w", "erm", "fogs") not in rows
    assert rows["all", "erm", "average"] == pytest.approx(
        0.4
    )  # of three domains, not of two averages
    assert ("all", "x", "average") not in rows  # x has not run on w
    assert "60.0 [90.0]" in (tmp_path / "table.md").read_text()


def test_a_grid_over_variants_has_a_folder_for_each(tmp_path, monkeypatch):
    grid = 'task = "amazon_reviews"\nvariants = {}\nseeds = [3]\n[[row]]\nmethod = "erm"\n'
    path = tmp_path / "reviews.toml"
    path.write_text(grid.format('["books", "dvd"]'))
    jobs = jobs_of(read_grid(path))
    assert [(j.task, j.folder.as_posix(), j.label) for j in jobs] == [
        ("amazon_reviews/books", "runs/reviews/books/erm-default-seed3", "books erm seed 3"),
        ("amazon_reviews/dvd", "runs/reviews/dvd/erm-default-seed3", "dvd erm seed 3"),
    ]
    assert jobs[0].domains == ("books->dvd", "books->electronics", "books->kitchen")
    path.write_text(grid.format('["toys"]'))
    with pytest.raises(
        UnseenError, match='amazon_reviews has no variant "toys"; it has: books, dvd'
    ):
        read_grid(path)
    path.write_text(grid.format('"books"'))
    with pytest.raises(UnseenError, match="variants must be a list of different names"):
        read_grid(path)


def test_runs_whose_folders_are_gone_are_tabled_as_published_where_they_are_the_same(
    grid_file, published, tmp_path
):
    text = grid_file.read_text()
    before = json.loads((published / "summary.json").read_text())
    again = run_grid(with_published(read_grid(grid_file), [published]), quiet=True)
    assert again["summary"] == before and again["runs"] == 6
    assert not list((tmp_path / "runs").glob("*-seed*"))  # nothing was trained
    page = (published / "table.md").read_text()
    assert f"--published {published}" in page and "6 of 6 runs from an earlier publication" in page

    # Another setting, another number of samples: neither is what was published.
    grid_file.write_text(text.replace("alpha = 0.1", "alpha = 0.2"))
    changed = with_published(read_grid(grid_file), [published])
    assert [job.row.setting for job in jobs_of(changed) if job.earlier is None] == [
        "sharp",
        "sharp",
    ]
    grid_file.write_text("samples = 4\n" + text)
    assert not any(
        job.earlier for job in jobs_of(with_published(read_grid(grid_file), [published]))
    )
    # Averages are of the grid that asks.
    grid_file.write_text(text.replace("[set]", '[averages]\n"the hall" = ["hall"]\n[set]'))
    rows = write_tables(with_published(read_grid(grid_file), [published]))["summary"]
    assert any(row["domain"] == "the hall" for row in rows)


def test_runs_that_learned_from_other_data_or_on_another_processor_are_told(
    grid_file, published, caplog
):
    path = published / "runs.json"
    said = json.loads(path.read_text())
    assert (
        said["runs"][0]["trained_on"] == {"train": 300, "val": 300, "classes": 3}
        and "processor" in said["runs"][0]
    )
    said["runs"][0]["trained_on"]["train"] = 299
    said["runs"][1]["processor"] = "another one"
    del said["runs"][2]["trained_on"]  # from before it was recorded: it counts
    path.write_text(json.dumps(said))
    wanted = with_published(read_grid(grid_file), [published])
    gone = [(run["method"], run["setting"], run["seed"]) for run in said["runs"][:1]]
    assert [
        (j.row.method, j.row.setting, j.seed) for j in jobs_of(wanted) if j.earlier is None
    ] == gone
    assert "with trained_on = {'train': 299" in caplog.text
    assert "1 published runs do not say how much data they learned from" in caplog.text
    said["runs"][0]["trained_on"]["train"] = 300
    path.write_text(json.dumps(said))
    write_tables(wanted)
    assert (
        "5 runs on" in (published / "table.md").read_text()
        and "1 runs on another one" in (published / "table.md").read_text()
    )


def test_published_tables_are_never_written_over_with_fewer_runs(
    grid_file, published, tmp_path, caplog
):
    text = grid_file.read_text()
    before = (published / "runs.json").read_bytes()
    for ask in (lambda grid: run_grid(grid, quiet=True), write_tables):
        with pytest.raises(
            UnseenError, match=r"has 3 runs that these tables leave out, default erm seed 1 first"
        ):
            ask(with_published(with_seeds(read_grid(grid_file), [0]), [published]))
    assert not (tmp_path / "runs").exists()
    grid_file.write_text(text.replace("alpha = 0.1", "alpha = 0.2"))
    with pytest.raises(
        UnseenError,
        match=r"has 2 runs that these tables leave out, default mixup sharp seed 0 first",
    ):
        write_tables(with_published(read_grid(grid_file), [published]))
    assert (
        "has default mixup sharp seed 0, but with alpha = 0.1, now it is 0.2: it does not count"
        in caplog.text
    )
    assert (published / "runs.json").read_bytes() == before
    # Trained anew, they take the places of the old ones.
    assert run_grid(with_published(read_grid(grid_file), [published]), quiet=True)["runs"] == 6
    assert "4 of 6 runs from an earlier publication" in (published / "table.md").read_text()


def spoilt(published, spoil):
    said = json.loads((published / "runs.json").read_text())
    spoil(said["runs"][0])
    (published / "runs.json").write_text(json.dumps(said))


@pytest.mark.parametrize("figure", [37.5, -2, "0.99", True, float("nan"), float("inf"), None])
def test_impossible_figures_are_not_published_again(grid_file, published, figure):
    spoilt(published, lambda run: run["figures"]["last"].update(hall=figure))
    with pytest.raises(UnseenError, match=r"a figure must lie in 0\.\.1"):
        with_published(read_grid(grid_file), [published])


@pytest.mark.parametrize("spoil", [
    lambda run: run["figures"].pop("last"), lambda run: run.pop("settings"), lambda run: run.update(loop=5),
    lambda run: run.pop("chosen"), lambda run: run.update(seconds="long"),
])  # fmt: skip
def test_published_runs_that_lack_something_are_named(grid_file, published, spoil):
    spoilt(published, spoil)
    with pytest.raises(UnseenError, match=r"runs.json is not what `unseen bench` writes"):
        with_published(read_grid(grid_file), [published])


def test_two_published_runs_that_contradict_each_other_are_named(grid_file, published, once):
    folders = [published, once / "results"]
    with_published(read_grid(grid_file), folders)  # the same twice is no contradiction
    spoilt(published, lambda run: run["figures"]["last"].update(hall=0.0123))
    with pytest.raises(UnseenError, match="say different things of default erm seed 0"):
        with_published(read_grid(grid_file), folders)


def test_rows_are_compared_with_the_grids_first_row_or_not_at_all(grid_file, once, tmp_path):
    shutil.copytree(once / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs/erm-default-seed0")
    write_tables(read_grid(grid_file))
    assert "Against erm, seed by seed" in (tmp_path / "results/table.md").read_text()
    shutil.rmtree(tmp_path / "runs/erm-default-seed1")
    write_tables(read_grid(grid_file))
    assert "Against" not in (tmp_path / "results/table.md").read_text()


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"task": "t", "runs": [{}]}', '{"task": "t", "runs": 5}', "[]"]
)
def test_published_runs_that_cannot_be_read_are_named(grid_file, tmp_path, text):
    with pytest.raises(
        UnseenError, match=r"runs.json cannot be read: .* name a folder that `unseen bench` wrote"
    ):
        with_published(read_grid(grid_file), [tmp_path])
    (tmp_path / "runs.json").write_text(text)
    with pytest.raises(UnseenError, match=r"runs.json is not what `unseen bench` writes"):
        with_published(read_grid(grid_file), [tmp_path])
