"""Searches for settings: on shifts of the source alone, pruned, resumable, with usable results."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from command_line import unseen
from forked import start_unseen

from unseen import UnseenError
from unseen.experiments.grid import read_grid
from unseen.experiments.tuning.shifts import ShiftedSource, tuning_task, tuning_word
from unseen.experiments.tuning.space import corners, distributions, read_space, settings_from
from unseen.experiments.tuning.study import Search, load_optuna
from unseen.experiments.tuning.tune import tune

pytest.importorskip("optuna")
EXAMPLES = Path(__file__).parents[2] / "examples"
TASK = '''
"""The example task with targets that leave a trace when they are loaded."""
from dataclasses import replace
from pathlib import Path

from your_own_task import waves
from unseen import Domain


def guarded():
    def load(split):
        Path(__file__).with_name("loaded").touch()
        raise RuntimeError("a target was loaded")

    task = waves()
    return replace(task, targets=tuple(Domain(d.name, load) for d in task.targets))
'''
SPACE = """
method = "erm"
[set]
steps = 30
batch_size = 16
[space]
lr = [0.03, 0.02, 0.01, 0.000001]
weight_decay = { low = 0.00001, high = 0.01, log = true }
"""
WORDS = ("--trials", 8, "--samples", 30)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the task and the space."""
    folder = tmp_path_factory.mktemp("tune")
    (folder / "guarded_task.py").write_text(TASK)
    (folder / "space.toml").write_text(SPACE)
    with pytest.MonkeyPatch.context() as patch:
        for path in (EXAMPLES, folder):
            patch.syspath_prepend(path)
        yield folder


def search(place, out, *words):
    return ("tune", "guarded_task:guarded", "--space", place / "space.toml", "--out", out, *words)


@pytest.fixture(scope="module")
def finished(place):
    """The result of a search of eight trials."""
    return unseen(*search(place, place / "out", *WORDS, "--json")).json()


def tried(result):
    return [(t["settings"], t["state"], t["value"], t["reports"]) for t in result["trials"]]


def test_search_lists_every_trial_and_prunes_bad_ones_without_loading_a_target(place, finished):
    assert not (place / "loaded").exists()
    assert len(finished["trials"]) == finished["tried"] == 8
    states = {t["trial"]: t["state"] for t in finished["trials"]}
    assert set(states.values()) == {"complete", "pruned"}
    for trial in finished["trials"]:
        assert trial["settings"].keys() == {"lr", "weight_decay"}
        if trial["state"] == "pruned":
            assert trial["settings"]["lr"] == 0.000001 and len(trial["reports"]) < 5
        else:
            shifts = {k: v for k, v in trial["shifts"].items() if k != "average"}
            assert trial["value"] == pytest.approx(sum(shifts.values()) / len(shifts))
            assert len(shifts) == 35 and "noise 1" in shifts
    best = max((t for t in finished["trials"] if t["value"] is not None), key=lambda t: t["value"])
    assert finished["best"]["value"] == best["value"] and best["settings"]["lr"] > 0.001
    assert json.loads((place / "out/trials.json").read_text())["trials"] == finished["trials"]
    table = (place / "out/table.md").read_text()
    assert table.count("\n| ") == 2 + 8 and "No unseen domain of a benchmark was used" in table
    assert not any(p.is_dir() for p in (place / "out/trials").iterdir())  # all is in the study


def test_best_settings_are_a_grid_and_a_config_of_train(place, finished):
    grid = read_grid(place / "out/best.toml")
    best = finished["best"]["settings"]
    assert grid.task == "guarded_task:guarded" and grid.rows[0].set == {
        "steps": 30,
        "batch_size": 16,
        **best,
    }
    words = ("--config", finished["config"], "--out", place / "run", "--set", "steps=2", "--json")
    assert unseen("train", *words).json()["method"] == "erm"
    settings = json.loads((place / "run/config.json").read_text())
    assert settings["settings"]["lr"] == best["lr"] and settings["loop"]["steps"] == 2
    (place / "two.toml").write_text(
        'task = "guarded_task:guarded"\n[[row]]\nmethod = "erm"\n[[row]]\nmethod = "mixup"\n'
    )
    wrong = unseen("train", "--config", place / "two.toml", "--out", place / "other")
    assert wrong.returncode == 2 and "has 2 rows" in wrong.stderr


def finished_trials(path: Path, mode: str = "ro") -> int:
    try:
        with sqlite3.connect(f"file:{path}?mode={mode}", uri=True) as file:
            count = file.execute("select count(*) from trials where state = 'COMPLETE'")
            return int(count.fetchone()[0])
    except sqlite3.Error:  # not there yet, or being written
        return 0


def test_killed_search_keeps_its_trials_and_ends_like_one_that_was_not(place, finished):
    killed = start_unseen(*search(place, place / "killed", *WORDS), folder=place)
    for _ in range(4000):
        if finished_trials(place / "killed/study.db") >= 2:
            break
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    kept = finished_trials(place / "killed/study.db", "rw")  # undoes what was half written
    assert 2 <= kept < 8 and not (place / "killed/best.toml").exists()
    for _ in range(200):  # its worker ends by itself
        result = unseen(*search(place, place / "killed", *WORDS, "--json"))
        if "being written by another process" not in result.stderr:
            break
        time.sleep(0.1)
    assert tried(result.json()) == tried(finished)
    other = unseen(*search(place, place / "killed", "--samples", 31))
    assert (
        other.returncode == 2 and "holds a search with samples = 30, now it is 31" in other.stderr
    )


@pytest.mark.parametrize("settings_drawn", [0, 1, 2])
def test_trial_killed_while_its_settings_were_drawn_gets_the_same(place, tmp_path, settings_drawn):
    _, parameters = read_space(place / "space.toml")
    space = distributions(parameters)
    facts = {"less_is_better": False, "seed": 0}
    drawn = []
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        search = Search(tmp_path / name, facts)
        study = search.open()
        study.tell(search.next_trial(study, space, 8), 0.5)
        if name == "killed":
            study.sampler = load_optuna().samplers.TPESampler(seed=1, constant_liar=True)
            study.ask(dict(list(space.items())[:settings_drawn]))
            search.release_interrupted(study, parameters)
        drawn.append(search.next_trial(study, space, 8).params)
    assert drawn[0] == drawn[1] and drawn[0].keys() == space.keys()


def test_targets_of_a_benchmark_are_refused():
    assert tuning_word("digits", None) == ("digits_shifts", True)
    assert tuning_word("digits", "generic") == ("digits", False)
    assert tuning_word("amazon_reviews/dvd", None) == ("amazon_shifts/dvd", True)
    assert tuning_word("mini_digits", None) == ("mini_digits", False)
    assert tuning_word("cifar_shifts", None) == ("cifar_shifts", True)
    for word, shifts, problem in (
        ("digits", "digits", "must not be chosen on them"),
        ("mini_digits", "your:task", "must not be chosen on them"),
        ("digits", "cifar_shifts", "not shifts of the source of digits"),
    ):
        with pytest.raises(UnseenError, match=problem):
            tuning_word(word, shifts)
    with pytest.raises(UnseenError, match="unseen domains of a benchmark"):
        tuning_task("digits", on_targets=True)
    task = tuning_task("mini_digits", on_targets=False)
    with pytest.raises(UnseenError, match="must not load unseen domains"):
        ShiftedSource.of(task, True, 10)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("lr = 3", r"\[space\] lr: expected a list of choices or"),
        ("lr = [0.1]", "at least two"),
        ("lr = [0.1, 0.1]", "different choices"),
        ("lr = { low = 1, high = 0.1 }", "low must be below high"),
        ("lr = { low = 0, high = 1, log = true }", "low must be above 0"),
        ("lr = { low = 0.1, high = 1, sort = true }", "unknown setting sort"),
        ("lr = { low = 0.1, high = 1.0, step = 0.4 }", "cannot be reached from 0.1 in steps of"),
        ("lr = { low = 0.1, high = 0.2, step = 5.0 }", "cannot be reached"),
        ("lr = { low = 0.1, high = 0.2, step = 0.0 }", "cannot be reached"),
        ("lr = { low = 0.1, high = 0.2, step = -0.1 }", "cannot be reached"),
        ("lr = { low = true, high = 2 }", "low must be an integer or a number, not True"),
        ("lr = [-1.0, 0.1]", "lr"),
        ("rl = [0.1, 0.2]", "unknown setting rl"),
        ("'noise.scale' = [0.1, 0.2]\nnoise.scale = [1, 2]", "noise.scale: is given twice"),
        ("", "space must be of length 1 or more"),
    ],
)
def test_bad_spaces_are_refused_before_training(place, tmp_path, entry, problem):
    path = tmp_path / "space.toml"
    path.write_text(f'method = "erm"\n[space]\n{entry}\n')
    with pytest.raises(UnseenError, match=problem):
        tune("guarded_task:guarded", path, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_space_reads_nested_names_and_whole_numbers(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text("[space]\nema = { low = 0.1, high = 1.0, step = 0.3 }\n")
    assert [c["ema"] for c in corners(read_space(path)[1])] == [0.1, 1.0]
    path.write_text(
        "[space]\nnoise.scale = { low = 0.5, high = 8, log = true }\n"
        'draws = { low = 1, high = 4 }\nmeta = ["first", "none"]\n'
    )
    _, space = read_space(path)
    assert list(space) == ["noise.scale", "draws", "meta"]
    assert space["draws"].whole and not space["noise.scale"].whole
    assert len(list(corners(space))) == 6
    assert settings_from({"noise": {"per": "channel"}}, {"noise.scale": 2.0, "meta": "none"}) == {
        "noise": {"per": "channel", "scale": 2.0},
        "meta": None,
    }


def test_missing_study_of_trials_that_are_there_is_named(tmp_path):
    search = Search(tmp_path, {"less_is_better": False, "seed": 0})
    search.open()
    (tmp_path / "trials" / "0").mkdir(parents=True)
    search.open()
    (tmp_path / "study.db").write_bytes(b"")
    with pytest.raises(UnseenError, match=r"study\.db is missing or empty.*another --out"):
        search.open()


@pytest.mark.parametrize("keep", [0.5, 0.0])
def test_damaged_study_is_named(tmp_path, keep):
    search = Search(tmp_path, {"less_is_better": False, "seed": 0})
    search.open()
    content = (tmp_path / "study.db").read_bytes()
    (tmp_path / "study.db").write_bytes(content[: int(keep * len(content))] or b"no database" * 99)
    with pytest.raises(UnseenError, match=r"study\.db is damaged .*in another --out"):
        search.open()
