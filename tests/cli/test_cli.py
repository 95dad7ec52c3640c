"""The command line: only JSON on stdout, exit code 2 with a clear error, help from signatures."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from command_line import unseen
from torch.utils.data import Subset

from unseen import METHODS, TASKS, __version__
from unseen.experiments import demo
from unseen.tasks import task_named

pytestmark = pytest.mark.usefixtures("quick_estimators")

FEW_STEPS = ["--set", "steps=6", "--set", "batch_size=8"]
QUICK = [
    *FEW_STEPS,
    *("--set", "draws=1", "--set", "warmup=2"),
    *("--set", "adversary.rounds=1", "--set", "adversary.steps=1"),
]


def small(task, samples=24):
    """Return the task with few samples of each split."""

    def shorten(domain):
        return replace(domain, load=lambda split: Subset(domain.load(split), range(samples)))

    targets = tuple(map(shorten, task.targets))
    return replace(task, source=shorten(task.source), targets=targets)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, quick_estimators):
    out = tmp_path_factory.mktemp("runs") / "run"
    result = unseen("train", "mini_digits", "--out", out, *QUICK, "--json").json()
    assert result["run"] == str(out) and 0 <= result["source_val"] <= 1
    return out


def test_module_trains_in_a_process_of_its_own(tmp_path):
    words = ["train", "mini_digits", "--method", "erm", "--out", str(tmp_path / "run"), *FEW_STEPS]
    command = [sys.executable, "-m", "unseen.cli", *words, "--json"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["run"] == str(tmp_path / "run")


def test_evaluate_reports_every_domain(trained):
    result = unseen("evaluate", trained, "--json").json()
    assert set(result["domains"]) == {"photo", "printed", "street", "scanner"}
    assert result["source"]["n"] == 400 and 0 <= result["average"] <= 1
    shown = unseen("evaluate", trained, "--samples", 20)
    assert "average, unseen" in shown.stdout and shown.returncode == 0


def test_evaluate_takes_the_same_random_samples_each_time(trained):
    words = ("evaluate", trained, "--samples", 50, "--json")
    result = unseen(*words).json()
    assert result["source"]["n"] == 50 == result["domains"]["street"]["n"]
    assert unseen(*words).json() == result
    refused = unseen("evaluate", trained, "--samples", 0)
    assert refused.returncode == 2 and "samples must be" in refused.stderr


def test_score_has_a_threshold_for_its_batch_size(trained):
    result = unseen("score", trained, "--domain", "street", "--json").json()
    assert {"domain", "score", "threshold", "alarm", "n"} <= set(result) and result["n"] == 600
    small = unseen("score", trained, "--domain", "source", "--batch", "32", "--json").json()
    assert small["n"] == 32 and small["threshold"] > result["threshold"] / 10


def test_score_of_erm_names_its_fallback(tmp_path):
    words = ("train", "mini_digits", "--method", "erm", "--out", tmp_path / "run", *FEW_STEPS)
    unseen(*words, "--json").json()
    scored = unseen("score", tmp_path / "run", "--domain", "photo", "--json")
    assert scored.json()["score_name"] == "max_softmax"
    assert "fallback: max_softmax" in scored.stderr


def test_adapt_reports_target_and_source(trained):
    shots = ("--domain", "scanner", "--shots", 2, "--draws", 2, "--steps", 3)
    result = unseen("adapt", trained, *shots, "--json").json()
    assert {"before", "after_mean", "after_std", "source_before", "source_after"} <= set(result)


@pytest.mark.parametrize(
    "setting",
    ["sites=conv2", "noise.kind=deterministic", "mixup=random", "adversary=none", "meta=none"],
)
def test_ablation_can_be_set_on_the_command_line(setting, trained, tmp_path):
    words = ("train", "mini_digits", "--out", tmp_path / "run", *QUICK, "--set", "steps=2")
    unseen(*words, "--set", setting, "--json").json()
    settings, usual = (
        json.loads((run / "config.json").read_text())["settings"]
        for run in (tmp_path / "run", trained)
    )
    assert settings != usual


def test_tasks_and_methods_are_listed():
    assert [t["name"] for t in unseen("tasks", "--json").json()["tasks"]] == list(TASKS)
    methods = {m["name"]: m["settings"] for m in unseen("methods", "--json").json()["methods"]}
    assert methods.keys() == METHODS.keys()
    for name, method in METHODS.items():
        assert methods[name].keys() == method.settings_of().keys()


def test_methods_shows_grouped_settings_with_dotted_names():
    assert "adversary.rounds" in unseen("methods", "uncertainty_guided").stdout


def test_tasks_shows_presets():
    (task,) = unseen("tasks", "digits", "--json").json()["tasks"]
    assert task["presets"]["fast"]["steps"] == 2000
    shown = unseen("tasks", "cifar10_c").stdout
    assert "preset fast" in shown and "width" in shown


def test_help_has_the_defaults_of_the_signatures():
    text = " ".join(unseen("train", "--help").stdout.replace("│", " ").split())
    assert "else uncertainty_guided" in text and "default: fast" in text and "--resume" in text


def test_version_is_that_of_the_package():
    assert unseen("--version").stdout.strip() == __version__


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("few-shot", "adapt-grid"),
        ("pictures", "segmentation-images"),
        ("results", "update-readme"),
    ],
)
def test_old_command_name_still_works_with_a_warning(old, new, tmp_path):
    words = {
        "few-shot": [tmp_path / "none.toml"],
        "pictures": ["--domain", "dusk", "--out", tmp_path / "x.png"],
        "results": [tmp_path / "none.md"],
    }[old]
    before, after = unseen(old, *words), unseen(new, *words)
    assert before.returncode == after.returncode == 2
    assert f"`unseen {old}` is now `unseen {new}`" in before.stderr
    assert before.stderr.splitlines()[1:] == after.stderr.splitlines()
    assert f"│ {old} " not in unseen("--help").stdout


def test_demo_writes_a_report_and_does_not_train_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "task_named", lambda name: small(task_named(name)))
    words = ["demo", "--out", tmp_path / "demo", *FEW_STEPS]
    first = unseen(*words, "--json").json()
    assert first["report"] == str(tmp_path / "demo/report/report.html")
    page = (tmp_path / "demo/report/report.html").read_text()
    assert "mini_digits: score and error" in page
    assert set(first["average"]) == {"erm", "uncertainty_guided"}
    weights = tmp_path / "demo/erm-seed0/model.safetensors"
    written = weights.stat().st_mtime_ns
    monkeypatch.setattr(demo, "compare", lambda *_, **__: None)  # the slow parts
    monkeypatch.setattr(demo, "score", lambda run, task, name, **_: first["uncertainty"][name])
    monkeypatch.setattr(demo, "write_report", lambda *_: {"page": first["report"]})
    shown = unseen(*words).stdout
    assert weights.stat().st_mtime_ns == written
    assert "average, unseen" in shown and "verdict" in shown
    assert shown.strip().splitlines()[-1].endswith("demo/report/report.html")


TRAIN = ["train", "mini_digits", "--out", "x"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "mars", "--out", "x"], 'no task "mars"; there are: mini_digits'),
        ([*TRAIN, "--method", "magic"], 'no method "magic"; there are: erm, mixup, cutout, '),
        ([*TRAIN, "--preset", "slow"], 'no preset "slow"; it has: fast'),
        ([*TRAIN, "--set", "stpes=3"], "stpes"),
        ([*TRAIN, "--set", "steps"], 'a setting is written key=value, not "steps"'),
        ([*TRAIN, "--set", "meta=7"], "meta must be"),
        ([*TRAIN, "--set", "sites=conv1,conv9"], 'no site "conv9"; the model has: conv1, pool1'),
        (["train", "mini_digits", "--out", "/dev/null/x", "--set", "steps=1"], "cannot write"),
        (["train", "no.such:thing", "--out", "x"], '"no.such:thing"'),
        (["train", "mini_digits"], "--out"),
        ([*TRAIN, "--seed", "one"], "seed"),
        ([*TRAIN, "--device", "tpu"], "device"),
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
def test_bad_input_exits_with_2_and_writes_nothing(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = unseen(*words)
    assert refused.returncode == 2, (refused.returncode, refused.stderr)
    assert message in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr and refused.stdout == ""
    assert not list(tmp_path.iterdir())


def test_task_of_ones_own_is_imported_only_if_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "from dataclasses import replace\n"
        "from unseen.tasks.mini_digits import task as mini_digits\n"
        "Path('imported').touch()\n"
        "def make():\n"
        "    print('what a task prints must not spoil the JSON')\n"
        "    return replace(mini_digits(), name='mine')\n"
    )
    unseen("train", "mine:make", "--out", "run", *FEW_STEPS, "--method", "erm", "--json").json()
    (tmp_path / "imported").unlink()
    monkeypatch.delitem(sys.modules, "mine")
    refused = unseen("evaluate", "run", "--json")
    assert refused.returncode == 2 and "--task mine:make" in refused.stderr
    assert not (tmp_path / "imported").exists()
    result = unseen("evaluate", "run", "--task", "mine:make", "--samples", 20, "--json").json()
    assert result["task"] == "mine" and (tmp_path / "imported").exists()
