"""After a kill or a full disk at any write, a folder holds the old files or the new ones, whole.

`make torture` sets UNSEEN_TORTURE: every point, not a sample, and faults during the recovery too.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from faults import FULL, INTERRUPT, KILL, count_calls, fail_at, faulty
from light_task import light_task, samples
from saved_runs import saved_run
from tiny import TinyNet
from torch.utils.data import DataLoader

import unseen
from unseen import UnseenError
from unseen.experiments.adapt import adapt
from unseen.experiments.evaluate import evaluate
from unseen.report import page, write
from unseen.training.run import Run
from unseen.training.train import train

TORTURE = "UNSEEN_TORTURE" in os.environ
QUICK = {"steps": 4, "batch_size": 8, "log_every": 2, "checkpoint_every": 2, "num_checkpoints": 2}
SECOND_FAULTS = 3 if TORTURE else 1  # faults in the recovery, at random points


@pytest.fixture(autouse=True)
def fast_disk():
    """A disk without faults, on which fsync costs nothing."""
    with faulty():
        yield


def points(calls: int, sample: int) -> list[tuple[int, str]]:
    """Return calls to fail, the first and the last among them, each in every way."""
    n = calls if TORTURE else min(calls, sample)
    chosen = sorted({1 + round(i * (calls - 1) / max(n - 1, 1)) for i in range(n)})
    every_fault = TORTURE or n == calls
    return [(at, f) for at in chosen for f in (FULL, KILL, *([INTERRUPT] if every_fault else []))]


def attack(prepare, act, check, sample, second_faults=SECOND_FAULTS):
    """Fail `act` at each point, check, fail the repetition at a random point, check, repeat.

    `prepare` makes the folder; `check(finished)` states what must hold in it.
    """
    prepare()
    calls = count_calls(act)
    check(True)
    for at, fault in points(calls, sample):
        prepare()
        check(fail_at(at, fault, act))
        for seed in range(second_faults):
            again = random.Random(f"{at} {fault} {seed}").randint(1, calls)
            check(fail_at(again, KILL, act))
        act()
        check(True)
    return calls


def hidden_files(folder):
    return [p for p in folder.rglob(".*") if not p.name.endswith(".lock")]


# ---- net.save


def trained_net(seed, calibrated=True):
    torch.manual_seed(seed)
    net = unseen.ERM(TinyNet(), embedding="fc1", lr=0.001 * (seed + 1))
    if calibrated:
        loader = DataLoader(samples("train"), batch_size=20)
        unseen.fit(net, loader, steps=1, held_out=loader, progress=False)
    return net


def describe(net):
    """Return everything that a save holds."""
    statistics = net.detector.statistics
    tensors = [*net.state_dict().values(), *([] if statistics is None else [statistics.held_out])]
    return net.lr, statistics is None, [t.numpy().tobytes() for t in tensors]


@pytest.mark.parametrize("calibrated", [True, False])
def test_a_save_over_an_older_one_leaves_one_of_them_whole(tmp_path, calibrated):
    old, new = trained_net(0), trained_net(1, calibrated)
    whole = [describe(old), describe(new)]
    folder = tmp_path / "net"

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        old.save(folder)

    def check(finished):
        assert describe(unseen.load(folder, TinyNet())) in whole[finished:]
        assert not finished or not hidden_files(tmp_path)

    assert attack(prepare, lambda: new.save(folder), check, 40) >= 18


def test_a_first_save_leaves_an_error_or_the_save(tmp_path):
    net, folder = trained_net(0), tmp_path / "net"

    def check(finished):
        if finished or (folder / "config.json").exists():
            assert describe(unseen.load(folder, TinyNet())) == describe(net)
        elif not list(folder.glob(".replacing-*")):
            with pytest.raises(UnseenError, match=r"config.json does not exist"):
                unseen.load(folder, TinyNet())

    attack(lambda: shutil.rmtree(folder, ignore_errors=True), lambda: net.save(folder), check, 20)


SAVER = """
import sys, torch
sys.path[:0] = [sys.argv[1]]
from test_faults import trained_net
nets = [trained_net(0), trained_net(1)]
print("ready", flush=True)
while True:
    for net in nets:
        net.save(sys.argv[2])
"""


@pytest.mark.skipif(not TORTURE, reason="starts many processes: make torture")
def test_killed_processes_leave_a_whole_save(tmp_path):
    folder, here = tmp_path / "net", os.path.dirname(__file__)
    paths = [os.path.join(here, "support"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    allowed = [describe(trained_net(0)), describe(trained_net(1))]
    for seed in range(12):
        command = [sys.executable, "-c", SAVER, here, str(folder)]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.1 + random.Random(seed).random() / 5)
            for _ in range(5):  # also while the other process writes
                assert describe(unseen.load(folder, TinyNet())) in allowed
            process.send_signal(signal.SIGKILL)
        assert describe(unseen.load(folder, TinyNet())) in allowed
    trained_net(0).save(folder)
    assert not hidden_files(folder)


# ---- runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "finished"
    return train(light_task(), "erm", folder, overrides=QUICK, progress=False)


def content(run):
    """Return what a finished run holds, without times."""
    records = [r for r in run.records() if r["metric"] != "seconds_per_step"]
    names = ("model.safetensors", "source.safetensors")
    return records, [(run.folder / name).read_bytes() for name in names]


@pytest.mark.parametrize("seed", range(3 if TORTURE else 1))
def test_training_resumes_to_the_same_bits_after_every_fault(tmp_path, seed, finished):
    folder = tmp_path / "run"
    options = {"overrides": QUICK, "seed": seed, "progress": False}
    whole = train(light_task(), "erm", tmp_path / "whole", **options) if seed else finished

    def check(ended):
        run = Run(folder)
        if ended or run.done:
            assert content(run) == content(whole)
            run.load(light_task())
            assert not run.state_path.exists()
        assert not ended or not hidden_files(folder)

    attack(
        lambda: shutil.rmtree(folder, ignore_errors=True),
        lambda: train(light_task(), "erm", folder, resume=True, **options),
        check,
        7,
    )


def test_evaluation_writes_records_and_figures_together(tmp_path, finished):
    folder = tmp_path / "run"
    run = Run(folder)

    def state():
        return run.records(), (folder / "figures/exam.safetensors").read_bytes()

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(old.folder, folder)

    shutil.copytree(finished.folder, folder)
    evaluate(run, light_task(), samples=9)
    old = Run(shutil.copytree(folder, tmp_path / "old"))
    states = [state()]
    evaluate(run, light_task())
    states.append(state())

    def check(ended):
        assert state() in states[ended:]
        assert not ended or not hidden_files(folder)

    attack(prepare, lambda: evaluate(run, light_task()), check, 8)


def test_adaptation_saves_a_whole_run_or_none(tmp_path, finished):
    out = tmp_path / "out"
    settings = {"settings": {"steps": 1}, "draws": 1, "progress": False}

    def act(to=out):
        if not Run(to).done:
            adapt(finished, light_task(), "far/1", 2, out=to, **settings)

    act(tmp_path / "whole")
    whole = content(Run(tmp_path / "whole"))

    def check(ended):
        assert not [p for p in tmp_path.iterdir() if p.name.startswith(".out") and p.is_dir()]
        if ended or Run(out).done:
            Run(out).load(light_task())
            assert content(Run(out)) == whole
        assert not ended or not hidden_files(out)

    attack(lambda: shutil.rmtree(out, ignore_errors=True), act, check, 7)


# ---- reports


def test_a_report_never_stands_beside_tables_of_another(tmp_path, monkeypatch):
    out = tmp_path / "out"
    for name in ("a", "b"):
        saved_run(tmp_path / "old" / name, seed=ord(name), scored=name == "a")
    saved_run(tmp_path / "new" / "c", "uncertainty_guided")
    # Only the writing is of interest here; making the figures takes seconds.
    made = {tmp_path / name: page.report_files([tmp_path / name]) for name in ("old", "new")}
    monkeypatch.setattr(page, "report_files", lambda folders: made[folders[0]])
    old, new = made.values()

    def prepare():
        shutil.rmtree(out, ignore_errors=True)
        write.write_report([tmp_path / "old"], out)

    def check(ended):
        found = {
            str(p.relative_to(out)): p.read_bytes()
            for p in out.rglob("*")
            if p.is_file() and not p.name.startswith(".")
        }
        assert "report.html" not in found or found in (old, new)
        assert not ended or (found == new and not hidden_files(tmp_path))

    assert set(old) - set(new), "the old report has a table that the new one has not"
    attack(prepare, lambda: write.write_report([tmp_path / "new"], out), check, 40)
