"""The command line: JSON and nothing else on stdout, clear errors with exit code 2, help from the signatures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from unseen import METHODS, TASKS

QUICK = [
    "--set",
    "steps=6",
    "--set",
    "batch_size=8",
    "--set",
    "draws=1",
    "--set",
    "warmup=2",
    "--set",
    "adversary.rounds=1",
    "--set",
    "adversary.steps=1",
]


def unseen(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "unseen.cli", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


def as_json(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    result = as_json(unseen("train", "mini_digits", "--out", out, *QUICK, "--json"))
    assert result["run"] == str(out) and 0 <= result["source_val"] <= 1
    return out


def test_evaluate(trained):
    result = as_json(unseen("evaluate", trained, "--json"))
    assert set(result["domains"]) == {"photo", "printed", "street", "scanner"}
    assert result["source"]["n"] == 400 and 0 <= result["average"] <= 1
    few = as_json(unseen("evaluate", trained, "--samples", 50, "--json"))
    assert (
        few["source"]["n"] == 50 == few["domains"]["street"]["n"]
        and few["average"] != result["average"]
    )
    assert as_json(unseen("evaluate", trained, "--samples", 50, "--json")) == few  # the same fifty
    assert "samples must be an integer" in unseen("evaluate", trained, "--samples", 0).stderr
    shown = unseen("evaluate", trained)
    assert "average, unseen" in shown.stdout and shown.returncode == 0


def test_score(trained):
    result = as_json(unseen("score", trained, "--domain", "street", "--json"))
    assert {"domain", "score", "threshold", "alarm", "n"} <= set(result) and result["n"] == 600
    small = as_json(unseen("score", trained, "--domain", "source", "--batch", "32", "--json"))
    assert small["n"] == 32 and small["threshold"] > result["threshold"] / 10


def test_adapt(trained):
    result = as_json(
        unseen(
            "adapt",
            trained,
            "--domain",
            "scanner",
            "--shots",
            "2",
            "--draws",
            "2",
            "--steps",
            "3",
            "--json",
        )
    )
    assert {"before", "after_mean", "after_std", "source_before", "source_after"} <= set(result)


def test_every_ablation_can_be_set_from_the_command_line(tmp_path):
    for setting in (
        "noise.kind=deterministic",
        "mixup=none",
        "mixup=random",
        "adversary=none",
        "meta=none",
        "sites=conv1",
    ):
        out = tmp_path / setting.replace("=", "-")
        as_json(
            unseen(
                "train",
                "mini_digits",
                "--out",
                out,
                *QUICK,
                "--set",
                "steps=3",
                "--set",
                setting,
                "--json",
            )
        )
        name, value = setting.split("=")
        saved = json.loads((out / "config.json").read_text())["settings"][name]
        assert saved == {"false": False, "conv1": ["conv1"]}.get(value, value)


def test_score_of_erm_says_which_fallback_it_used(tmp_path):
    words = [
        "train",
        "mini_digits",
        "--method",
        "erm",
        "--out",
        tmp_path / "run",
        "--set",
        "steps=2",
        "--set",
        "batch_size=8",
        "--json",
    ]
    as_json(unseen(*words))
    done = unseen("score", tmp_path / "run", "--domain", "photo", "--json")
    assert as_json(done)["score_name"] == "max_softmax" and "fallback: max_softmax" in done.stderr


def test_tasks_and_methods_list_what_the_tables_hold():
    assert [t["name"] for t in as_json(unseen("tasks", "--json"))["tasks"]] == list(TASKS)
    methods = {m["name"]: m["settings"] for m in as_json(unseen("methods", "--json"))["methods"]}
    assert methods.keys() == METHODS.keys()
    for name, method in METHODS.items():
        assert methods[name].keys() == method.settings_of().keys()
    assert (
        methods["uncertainty_guided"]["draws"]
        == METHODS["uncertainty_guided"].settings_of()["draws"].default
    )


def test_a_tasks_presets_can_be_read_from_the_command_line():
    (task,) = as_json(unseen("tasks", "digits", "--json"))["tasks"]
    assert task["presets"]["fast"]["steps"] == 2000
    assert task["presets"]["fast"]["uncertainty_guided"] == {
        "sites": ["conv1"],
        "mixup": None,
    }
    shown = unseen("tasks", "cifar10_c").stdout
    assert (
        "preset fast" in shown and "width" in shown and "noise_scale=0.5" in shown.replace("\n", "")
    )


def test_help_has_the_defaults_of_the_signatures():
    text = " ".join(unseen("train", "--help").stdout.replace("│", " ").split())
    assert "default: uncertainty_guided" in text and "default: fast" in text and "--resume" in text


def test_demo_runs_reports_and_does_not_train_twice(tmp_path):
    words = ["demo", "--out", tmp_path / "demo", *QUICK[:4], "--json"]
    first = as_json(unseen(*words))
    assert first["report"] == str(tmp_path / "demo/report/report.html")
    page = (tmp_path / "demo/report/report.html").read_text()
    assert "What the domains look like" in page and "mini_digits: uncertainty and error" in page
    assert set(first["average"]) == {"erm", "uncertainty_guided"}
    assert as_json(unseen(*words)) == first
    shown = unseen(*words[:-1]).stdout
    assert (
        "average, unseen" in shown and "what to try next" in shown and "domain uncertainty" in shown
    )
    assert shown.strip().splitlines()[-1].endswith("demo/report/report.html")


@pytest.mark.parametrize(
    "words, text",
    [
        (["train", "mars", "--out", "x"], 'no task "mars"; there are: mini_digits'),
        (
            ["train", "mini_digits", "--out", "x", "--method", "magic"],
            'no method "magic"; there are: erm, mixup, cutout, ',
        ),
        (
            ["train", "mini_digits", "--out", "x", "--preset", "slow"],
            'no preset "slow"; it has: fast',
        ),
        (
            ["train", "mini_digits", "--out", "x", "--set", "stpes=3"],
            "no setting stpes; there are: steps, batch",
        ),
        (
            ["train", "mini_digits", "--out", "x", "--set", "steps"],
            'a setting is written key=value, not "steps"',
        ),
        (
            ["train", "mini_digits", "--out", "x", "--set", "meta=7"],
            "meta must be",
        ),
        (
            ["train", "mini_digits", "--out", "x", "--set", "sites=conv1,conv9"],
            'no site "conv9"; the model has: conv1, pool1',
        ),
        (["train", "mini_digits", "--out", "/dev/null/x", "--set", "steps=1"], "cannot write"),
        (["train", "no.such:thing", "--out", "x"], 'cannot make a task from "no.such:thing"'),
        (["train", "mini_digits"], "--out"),
        (["train", "mini_digits", "--out", "x", "--seed", "one"], "seed"),
        (["train", "mini_digits", "--out", "x", "--device", "tpu"], "device"),
        (["evaluate", "nowhere"], "config.json does not exist"),
        (["score", "nowhere", "--domain", "street"], "config.json does not exist"),
        (["nonsense"], "nonsense"),
        (["bench", "grid.toml", "--seeds", "0.6"], "--seeds: expected a whole number, not 0.6"),
        (["adapt", "nowhere", "--shots", "1.5"], "--shots: expected a whole number, not 1.5"),
        (
            ["train", "mini_digits", "erm", "--out", "x"],
            "unexpected argument erm: options must be named, e.g. --method NAME",
        ),
    ],
)
def test_bad_input_exits_with_2_a_clear_error_and_nothing_written(words, text, tmp_path):
    done = unseen(*words, cwd=tmp_path)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert (
        text in " ".join(done.stderr.split())
        and "Traceback" not in done.stderr
        and done.stdout == ""
    )
    assert not list(tmp_path.iterdir())


def test_a_task_of_ones_own_is_imported_only_if_named_on_the_command(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "from dataclasses import replace\n"
        "from unseen.tasks.mini_digits import task as mini_digits\n"
        "Path('imported').touch()\n"
        "def make():\n"
        "    print('what a task prints must not spoil the JSON')\n"
        "    return replace(mini_digits(), name='mine')\n"
    )
    as_json(unseen("train", "mine:make", "--out", "run", *QUICK, "--json", cwd=tmp_path))
    (tmp_path / "imported").unlink()
    refused = unseen("evaluate", "run", "--json", cwd=tmp_path)
    assert (
        refused.returncode == 2
        and "--task mine:make" in refused.stderr
        and not (tmp_path / "imported").exists()
    )
    assert (
        as_json(unseen("evaluate", "run", "--task", "mine:make", "--json", cwd=tmp_path))["task"]
        == "mine"
    )
    assert (tmp_path / "imported").exists()
