"""Progress on a terminal and without one, and TensorBoard curves."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time
import traceback
from dataclasses import replace
from fcntl import ioctl

import pytest
import torch
from test_run import tiny_task
from torch.utils.data import DataLoader, TensorDataset

import unseen
from unseen import cli
from unseen.errors import UnseenError
from unseen.experiments import run_grid as bench
from unseen.experiments.grid import plan_runs, read_grid
from unseen.experiments.runners.jobs import Job
from unseen.training import progress
from unseen.training import train as training
from unseen.training.progress import GridProgress, RunState, TrainingProgress, format_seconds
from unseen.training.train import train

TRAIN = [
    "train",
    "mini_digits",
    "--method",
    "erm",
    "--set",
    "steps=8",
    "--set",
    "batch_size=8",
    "--set",
    "checkpoint_every=2",
]
BENCH = """
task = "mini_digits"
seeds = [0]
set = { steps = 4, batch_size = 8, checkpoint_every = 1 }
[[row]]
method = "erm"
"""


def on_a_terminal(act, cwd, columns, seconds=120):
    """Return what a function writes to a terminal of that width; a fork saves importing torch."""
    child, fd = pty.fork()
    if child == 0:
        code = 1
        try:
            ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            os.chdir(cwd)
            for name in ("COLUMNS", "LINES", "NO_COLOR"):
                os.environ.pop(name, None)
            os.environ["TERM"] = "xterm-256color"
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
    seen, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([fd], [], [], 1)[0]:
            try:
                part = os.read(fd, 65536)
            except OSError:  # the other end is closed
                break
            seen += part
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, seen.decode()
    return seen.decode()


def command(*words):
    def act():
        sys.argv = ["unseen", *words]
        with contextlib.suppress(SystemExit):
            cli.main()

    return act


def fit():
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.rand(64, 8), torch.arange(64) % 3), 16)
    unseen.fit(unseen.ERM(torch.nn.Linear(8, 3)), data, steps=300, held_out=data)


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_train_shows_a_live_line_on_a_narrow_terminal(tmp_path):
    seen = on_a_terminal(command(*TRAIN, "--out", "run"), tmp_path, columns=80)
    lines = [line for line in plain(seen).replace("\r", "\n").splitlines() if "loss" in line]
    assert any(
        re.search(
            r"\d+/8\s+loss \d\.\d{3}\s+source accuracy [01]\.\d{3}\s+\d+\.\d/s\s+\d+ s left", line
        )
        for line in lines
    ), lines
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b[?25l" in seen and re.search(r"\x1b\[\d*A|\r", seen), (
        "a live line hides the cursor and goes over itself"
    )


def test_fit_shows_a_live_line_on_a_terminal(tmp_path):
    text = plain(on_a_terminal(fit, tmp_path, columns=120))
    assert re.search(
        r"erm\s+[━╸╺]+\s+\d+/300\s+loss \d+\.\d{3}\s+source accuracy [01]\.\d{3}"
        r"\s+\d+\.\d/s\s+\d+ s left",
        text,
    ), text


def test_grid_shows_every_run_on_a_terminal(tmp_path):
    (tmp_path / "grid.toml").write_text(BENCH)
    grid = replace(read_grid(tmp_path / "grid.toml"), runs=tmp_path / "runs")
    job = plan_runs(grid)[0]
    running = Job(job.label, print, (), tmp_path / "log", lambda: True, "running")
    made = train(
        bench.task_named("mini_digits"), "erm", job.folder, overrides=grid.set, progress=False
    )
    with (made.folder / "records.jsonl").open("a") as file:
        file.write('{"run": "torn by a ki')

    def act():
        with GridProgress("grid.toml") as shown:
            shown.show(
                [
                    bench.run_state(job, running)._replace(step=1),
                    RunState("erm seed 1", "waiting", 0, 4, ""),
                ]
            )
            time.sleep(0.2)
            shown.show([bench.run_state(job, running), RunState("erm seed 1", "waiting", 0, 4, "")])

    text = plain(on_a_terminal(act, tmp_path, columns=120))
    assert re.search(r"grid.toml: 1 running, 1 waiting, about 0 s left", text)
    assert re.search(
        r"erm seed 0 +│ running +│ +4/4 +│ +0\.\d\d +│ loss \d\.\d{3}  source accuracy [01]\.\d{3}",
        text,
    ), text


def test_train_prints_lines_without_a_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["unseen", *TRAIN, "--out", "run", "--json"])
    with contextlib.suppress(SystemExit):
        cli.main()
    said = capsys.readouterr()
    assert re.search(
        r"mini_digits erm seed 0: step 8/8  loss \d\.\d+  source accuracy [01]\.\d+"
        r"  \d+\.\d/s  0 s left\n",
        said.err,
    )
    assert "\x1b" not in said.err and json.loads(said.out)["run"] == "run"


def test_lines_are_rare_and_show_the_time_left(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with TrainingProgress("a run", total=100) as shown:
        for step in range(1, 41):
            clock[0] += 1.0
            shown.metrics = {"loss": 0.5, "source accuracy": 0.25}
            shown.show(step)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"a run: step {n}/100  loss 0.500  source accuracy 0.250  1.0/s  {100 - n} s left"
        for n in (15, 30)
    ]


def test_time_left_is_not_shown_before_the_first_step(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with TrainingProgress("predict", total=400, done=100, unit="sample") as shown:
        clock[0] = 20.0
        shown.show(100)
    assert capsys.readouterr().err == "predict: sample 100/400    0.0/s\n"


def test_speed_of_a_resumed_run_counts_its_own_steps(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with TrainingProgress("a run", total=100, done=90) as shown:
        clock[0] = 20.0
        shown.metrics = {"loss": 1.0}
        shown.show(95)
    assert "0.2/s  20 s left" in capsys.readouterr().err


def test_grid_prints_changes_at_once_and_the_rest_every_minute(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    said = "loss 0.100  source accuracy 0.900"
    with GridProgress("grid") as shown:
        for second, step in ((0, 0), (30, 3), (61, 6), (70, 7)):
            clock[0] = float(second)
            shown.show(
                [
                    RunState("erm seed 0", "running", step, 10, said),
                    RunState("erm seed 1", "waiting", 0, 10, ""),
                ]
            )
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("erm")] == [
        f"erm seed 0: running 0/10 {said}",
        f"erm seed 0: running 6/10 {said}  10.17 s/step",
    ]
    assert lines[-1] == "grid: 1 running, 1 waiting, about 2:22 left"  # 4 + 10 steps of 10.17 s


@pytest.mark.parametrize(
    "seconds, text",
    [(0.4, "0 s"), (99, "99 s"), (125, "2:05"), (3600, "1:00:00"), (90061, "25:01:01")],
)
def test_durations_are_formatted(seconds, text):
    assert format_seconds(seconds) == text


def test_progress_leaves_training_unchanged():
    def trained(progress):
        torch.manual_seed(0)
        data = TensorDataset(torch.rand(64, 8), torch.arange(64) % 3)
        net = unseen.ERM(
            torch.nn.Sequential(
                torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)
            ),
            lr=0.01,
        )
        loader = DataLoader(data, 16, shuffle=True)
        return unseen.fit(
            net, loader, steps=60, held_out=loader, progress=progress
        ).net.state_dict()

    loud, quiet = trained(True), trained(False)
    assert all(torch.equal(loud[name], quiet[name]) for name in quiet)


# ---- TensorBoard


def curves(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(e.step, round(e.value, 5)) for e in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def recorded(made):
    found = {}
    for r in made.records():
        found.setdefault(f"{r['split']}/{r['metric']}", []).append(
            (r["step"], round(r["value"], 5))
        )
    return {tag: sorted(points) for tag, points in found.items()}


def test_tensorboard_curves_hold_every_record_of_the_training(tmp_path):
    made = train(
        tiny_task(), "uncertainty_guided", tmp_path / "run", tensorboard=True, progress=False
    )
    seen = curves(made.folder / "tensorboard")
    assert seen == recorded(made)
    assert {"train/loss", "train/source_accuracy", "val/accuracy"} < set(seen)
    assert any("sigma" in tag for tag in seen), "what the method logs is there too"


def test_resumed_run_repeats_no_step_in_its_curves(tmp_path, monkeypatch):
    whole = train(tiny_task(), "erm", tmp_path / "whole", tensorboard=True, progress=False)
    steps = whole.config["loop"]["steps"]
    write, written = training.write_tensors, []

    def dies(path, tensors):
        write(path, tensors)
        if path.name == "state.safetensors":
            written.append(path)
            if len(written) == 1:
                raise KeyboardInterrupt

    overrides = {"checkpoint_every": max(1, steps // 3), "log_every": 1}
    monkeypatch.setattr(training, "write_tensors", dies)
    with pytest.raises(KeyboardInterrupt):
        train(
            tiny_task(),
            "erm",
            tmp_path / "cut",
            overrides=overrides,
            tensorboard=True,
            progress=False,
        )
    resumed = train(
        tiny_task(),
        "erm",
        tmp_path / "cut",
        overrides=overrides,
        resume=True,
        tensorboard=True,
        progress=False,
    )
    seen = curves(resumed.folder / "tensorboard")
    assert seen == recorded(resumed)
    assert [step for step, _ in seen["train/loss"]] == list(range(1, steps + 1))


def test_finished_run_gets_its_curves_on_resume(tmp_path):
    made = train(tiny_task(), "erm", tmp_path / "run", progress=False)
    assert not (made.folder / "tensorboard").exists()
    train(tiny_task(), "erm", tmp_path / "run", resume=True, tensorboard=True, progress=False)
    assert curves(made.folder / "tensorboard") == recorded(made)


def test_missing_tensorboard_names_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UnseenError, match=r"pip install 'unseen\[tensorboard\]'"):
        train(tiny_task(), "erm", tmp_path / "run", tensorboard=True, progress=False)
    assert not list(tmp_path.iterdir())
