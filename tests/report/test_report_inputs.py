"""The report with unusual and damaged inputs."""

from __future__ import annotations

import json

import pytest
from saved_runs import FLAT_GUIDED, FLAT_LOOP, GUIDED, LOOP, saved_run, write_arrays

from unseen.report.groups import group_by_task
from unseen.report.page import report_files
from unseen.report.paper import ablation_name
from unseen.report.runs import read_folders


def change_config(folder, **changes):
    """Change fields of a run's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def labels(*folders):
    return [
        group.label for task in group_by_task(read_folders(folders).runs) for group in task.groups
    ]


def page_of(folder) -> str:
    return report_files([folder])["report.html"].decode()


def test_augmented_run_is_labelled_by_its_augmentation(tmp_path):
    augmented = {**LOOP, "augment": "randconv"}
    saved = change_config(saved_run(tmp_path / "a", pictures=False), loop=augmented)
    assert labels(saved) == ["erm, augment randconv"]
    saved_run(tmp_path / "b", seed=1, pictures=False)
    change_config(saved_run(tmp_path / "c", seed=2, pictures=False), loop=augmented)
    assert labels(tmp_path) == ["erm", "erm, augment randconv"]


def test_groups_are_labelled_by_overrides_of_the_preset(tmp_path):
    for seed in (0, 1):
        no_mixup = saved_run(
            tmp_path / f"n{seed}", "uncertainty_guided", seed, pictures=False, mixup=None
        )
        change_config(no_mixup, overrides={"steps": 80, "mixup": None})
    assert labels(tmp_path) == ["uncertainty_guided, mixup none"]
    change_config(
        saved_run(tmp_path / "full", "uncertainty_guided", pictures=False),
        overrides={"steps": 80, "num_checkpoints": 4},
    )
    assert labels(tmp_path) == ["uncertainty_guided", "uncertainty_guided, mixup none"]


def test_adapted_run_is_left_out(tmp_path):
    saved_run(tmp_path / "start", pictures=False)
    change_config(
        saved_run(tmp_path / "adapted", pictures=False, figures={"usps": 0.9}),
        adapted={"domain": "usps"},
    )
    page = page_of(tmp_path)
    assert "adapted to usps with its labels" in page and labels(tmp_path) == ["erm"]
    assert [d for task in group_by_task(read_folders([tmp_path]).runs) for d in task.domains] == [
        "svhn",
        "mnist_m",
        "usps",
    ]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "null", '"0.5"', "true"])
def test_run_with_a_non_finite_value_is_left_out(tmp_path, value):
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
def test_run_with_a_mistyped_config_is_left_out(tmp_path, changes):
    saved_run(tmp_path / "good", pictures=False)
    change_config(saved_run(tmp_path / "bad", seed=1, pictures=False), **changes)
    assert "config.json: " in page_of(tmp_path)


def test_runs_with_fewer_domains_and_duplicates_are_left_out(tmp_path):
    saved_run(tmp_path / "a", pictures=False)
    saved_run(tmp_path / "b", seed=1, pictures=False, figures={"svhn": 0.3, "mnist_m": 0.5})
    change_config(saved_run(tmp_path / "c", pictures=False), loop={**LOOP, "log_every": 1})
    page = page_of(tmp_path)
    assert (
        "not evaluated on usps, as other runs are" in page
        and "the same method, settings and seed as" in page
    )
    (task,) = group_by_task(read_folders([tmp_path]).runs)
    assert task.groups[0].seeds == [0] and task.domains == ["svhn", "mnist_m", "usps"]


def test_damaged_arrays_remove_only_their_figure(tmp_path):
    run = saved_run(tmp_path / "run", "uncertainty_guided")
    (run / "figures/step_x.safetensors").write_bytes(b"")
    whole = page_of(tmp_path)
    exam = run / "figures/exam.safetensors"
    write_arrays(exam, confusion__mnist=[1, 2, 3], x__mnist=[[1]])
    page = page_of(tmp_path)
    assert "the saved data cannot be used" in page and "the saved data" not in whole
    assert "Distance of perturbed features" in page


def test_task_names_may_have_any_letters(tmp_path):
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


def test_runs_of_format_1_and_2_with_equal_settings_are_one_group(tmp_path):
    for seed, (loop, settings) in enumerate([(LOOP, GUIDED), (FLAT_LOOP, FLAT_GUIDED)]):
        run = saved_run(tmp_path / f"{seed}", "uncertainty_guided", seed, pictures=False)
        change_config(run, format=2 - seed, loop=loop, settings=settings)
    no_mixup = saved_run(tmp_path / "no_mixup", "uncertainty_guided", pictures=False)
    flat = {**FLAT_GUIDED, "mixup": "none"}
    change_config(no_mixup, format=1, loop=FLAT_LOOP, settings=flat)
    (task,) = group_by_task(read_folders([tmp_path]).runs)
    assert [(group.label, group.seeds) for group in task.groups] == [
        ("uncertainty_guided", [0, 1]),
        ("uncertainty_guided, mixup none", [0]),
    ]
    assert [ablation_name(group.changes) for group in task.groups] == ["full", "no_mixup"]


def test_run_that_was_not_evaluated_shows_held_out_source_data(tmp_path):
    saved_run(tmp_path / "run", "uncertainty_guided", evaluated=False)
    page = page_of(tmp_path)
    assert "98.0" in page and "not evaluated on unseen domains" in page
    assert "Held-out source data only" in page and "Accuracy over training" in page


def test_domain_scores_of_evaluated_runs_are_shown_without_further_commands(tmp_path):
    saved_run(tmp_path / "run", scored=True, pictures=False)
    page = page_of(tmp_path)
    assert "Domain score and error" in page and "Domain scores" in page
    table = report_files([tmp_path])["tables/digits-domain-scores.csv"].decode().splitlines()
    assert table[0] == 'method,domain,"accuracy, %",domain score,threshold,score alarms'
    assert table[1:3] == [
        "erm,mnist (source),97.0000,0.03,0.1,0 of 1",
        "erm,svhn,30.0000,0.7,0.1,1 of 1",
    ]


def test_source_called_source_is_not_named_twice(tmp_path):
    saved_run(tmp_path / "a", source="source", pictures=False)
    saved_run(tmp_path / "b", "uncertainty_guided", source="source", pictures=False)
    text = page_of(tmp_path)
    assert "source source" not in text and "source (source)" not in text
