"""A report tells what it leaves out, and calls nothing by a name that is not its own."""

from __future__ import annotations

import json

import pytest
from saved_runs import LOOP, saved_run, write_arrays

from unseen.report.groups import by_task
from unseen.report.page import report_files
from unseen.report.runs import find


def retold(folder, **changes):
    """The run with some of its configuration said otherwise."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def labels(*folders):
    return [group.label for task in by_task(find(folders).runs) for group in task.groups]


def page_of(folder) -> str:
    return report_files([folder])["report.html"].decode()


def test_an_augmented_run_alone_is_not_called_plain(tmp_path):
    augmented = {**LOOP, "augment": "randconv"}
    saved = retold(saved_run(tmp_path / "a", pictures=False), loop=augmented)
    assert labels(saved) == ["erm, augment randconv"]
    saved_run(tmp_path / "b", seed=1, pictures=False)
    retold(saved_run(tmp_path / "c", seed=2, pictures=False), loop=augmented)
    assert labels(tmp_path) == ["erm", "erm, augment randconv"]


def test_runs_are_named_by_what_they_were_told_beside_their_preset(tmp_path):
    for seed in (0, 1):
        no_mixup = saved_run(
            tmp_path / f"n{seed}", "uncertainty_guided", seed, pictures=False, mixup="none"
        )
        retold(no_mixup, overrides={"steps": 80, "mixup": "none"})
    assert labels(tmp_path) == ["uncertainty_guided, mixup none"]
    retold(
        saved_run(tmp_path / "full", "uncertainty_guided", pictures=False),
        overrides={"steps": 80, "keep": 4},
    )
    assert labels(tmp_path) == ["uncertainty_guided", "uncertainty_guided, mixup none"]


def test_an_adapted_run_is_no_second_seed_of_its_start(tmp_path):
    saved_run(tmp_path / "start", pictures=False)
    retold(
        saved_run(tmp_path / "adapted", pictures=False, figures={"usps": 0.9}),
        adapted={"domain": "usps"},
    )
    page = page_of(tmp_path)
    assert "adapted to usps with its labels" in page and labels(tmp_path) == ["erm"]
    assert [d for task in by_task(find([tmp_path]).runs) for d in task.domains] == [
        "svhn",
        "mnist_m",
        "usps",
    ]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "null", '"0.5"', "true"])
def test_a_value_that_is_no_number_leaves_the_run_out(tmp_path, value):
    saved_run(tmp_path / "good", pictures=False)
    bad = saved_run(tmp_path / "bad", seed=1, pictures=False) / "records.jsonl"
    lines = bad.read_text().splitlines()
    bad.write_text("\n".join([*lines[:-1], lines[-1].rpartition(":")[0] + f": {value}}}"]) + "\n")
    assert f"line {len(lines)} is not a record with a finite value" in page_of(tmp_path) and labels(
        tmp_path
    ) == ["erm"]


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": None},
        {"seed": "x"},
        {"task": []},
        {"variant": None},
        {"model": 3},
        {"loop": {}},
    ],
)
def test_a_configuration_of_the_wrong_kind_leaves_the_run_out(tmp_path, changes):
    saved_run(tmp_path / "good", pictures=False)
    retold(saved_run(tmp_path / "bad", seed=1, pictures=False), **changes)
    assert "its config.json must say" in page_of(tmp_path)


def test_fewer_domains_than_others_and_the_same_seed_again_are_left_out(tmp_path):
    saved_run(tmp_path / "a", pictures=False)
    saved_run(tmp_path / "b", seed=1, pictures=False, figures={"svhn": 0.3, "mnist_m": 0.5})
    retold(saved_run(tmp_path / "c", pictures=False), loop={**LOOP, "log_every": 1})
    page = page_of(tmp_path)
    assert (
        "not examined on usps, as others were" in page
        and "the same method, settings and seed as" in page
    )
    (task,) = by_task(find([tmp_path]).runs)
    assert task.groups[0].seeds == [0] and task.domains == ["svhn", "mnist_m", "usps"]


def test_spoilt_arrays_cost_their_figure_and_no_more(tmp_path):
    run = saved_run(tmp_path / "run", "uncertainty_guided")
    (run / "figures/step_x.safetensors").write_bytes(b"")
    whole = page_of(tmp_path)
    exam = run / "figures/exam.safetensors"
    write_arrays(exam, confusion__mnist=[1, 2, 3], x__mnist=[[1]])
    page = page_of(tmp_path)
    assert "what was saved for it cannot be used" in page and "what was saved" not in whole
    assert "Transport of the features" in page


def test_names_with_dollars_and_foreign_letters_are_names(tmp_path):
    saved_run(tmp_path / "a", task="a$\\bad{$b", pictures=False, figures={"x$\\y{$": 0.3, "z": 0.2})
    saved_run(tmp_path / "b", task="数字", pictures=False)
    saved_run(tmp_path / "c", task="字数", pictures=False)
    files = report_files([tmp_path])
    assert (
        len(
            [
                name
                for name in files
                if name.endswith("-results-accuracy.csv") or "results-accuracy" in name
            ]
        )
        == 3
    )
