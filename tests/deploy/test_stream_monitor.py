"""The monitor of runs and exported models, and `unseen monitor --stdin`."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import unseen

from unseen import DomainMonitor
from unseen.deploy import StreamMonitor, open_scorer
from unseen.deploy.calibration import Calibration
from unseen.deploy.line_stream import LineStream
from unseen.deploy.reductions import Reduction
from unseen.deploy.scorer import Scorer
from unseen.deploy.seen import Seen
from unseen.errors import UnseenError
from unseen.files import locked
from unseen.training.run import Run

pytestmark = pytest.mark.usefixtures("quick_estimators")


def batches_of(run, *domains, size=20):
    for name in domains:
        x = run.task.domain(name).load("test").tensors[0].numpy()
        yield from (x[i : i + size] for i in range(0, len(x), size))


@pytest.fixture(scope="module")
def scorer(light_run):
    return open_scorer(light_run.exported, threads=1)


class InputScorer(Scorer):
    """Its features are the inputs, so that streams of millions of samples are cheap."""

    def __init__(self, held_out):
        reduction = Reduction("relative_deviation", np.full(held_out.shape[1], 0.5))
        super().__init__(Calibration("input", reduction, held_out, (), ("a", "b"), None), "inputs")

    def observe(self, x):
        return Seen(np.zeros((len(x), 2)), self.calibration.reduction(x), x, {})


def draw(rng, n, shift=0.0):
    return (0.5 + 0.05 * rng.normal(size=(n, 4)) + 0.03 * rng.normal(size=(n, 1)) + shift).clip(
        0.01
    )


def test_readings_equal_those_of_the_monitor_in_torch(light_run):
    net = Run(light_run.folder).load(light_run.task, "cpu")
    theirs = DomainMonitor(net, batch=20, memory=3, estimator=net.accuracy_estimator)
    run = open_scorer(light_run.folder, task=light_run.task, device="cpu")
    ours = StreamMonitor(run, batch=20, memory=3)
    for x in batches_of(light_run, "lit", "far/1"):
        a, b = ours.update(x), theirs.update(torch.from_numpy(x))
        assert (a.verdict, a.alarm, a.batch_alarm, a.slow_alarm) == (
            b.verdict, b.alarm, b.batch_alarm, b.slow_alarm,
        )  # fmt: skip
        for name in ("score", "threshold", "slow_score", "slow_threshold", "predicted_accuracy"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-5), name
    a, b = ours.compute(), theirs.compute()
    assert (a.batches, a.n, a.alarms, a.alarm) == (b.batches, b.n, b.alarms, b.alarm)
    assert a.score == pytest.approx(b.score, abs=1e-6)


def assert_same(a, b):
    for name, value in asdict(a).items():
        close = value if isinstance(value, str) else pytest.approx(value, rel=1e-9, abs=1e-12)
        assert getattr(b, name) == close, name


def test_streams_in_a_row_merge_to_one_that_saw_everything(light_run, scorer):
    settings = {"batch": 20, "memory": 3, "false_alarms_per_thousand": 0.01}
    whole, first, second = (StreamMonitor(scorer, **settings) for _ in range(3))
    stream = [*batches_of(light_run, "lit", "near/1", "near/2")]
    alone = [whole.update(x) for x in stream]
    parts = [first.update(x) for x in stream[:4]] + [second.update(x) for x in stream[4:]]
    for a, b in zip(alone, parts, strict=True):
        assert (a.score, a.threshold, a.batch_alarm) == (b.score, b.threshold, b.batch_alarm)
        assert (a.predicted_accuracy, a.interval) == (b.predicted_accuracy, b.interval)
    first.merge(second, after=True)
    assert_same(whole.compute(), first.compute())
    x = next(batches_of(light_run, "far/1"))
    assert_same(whole.update(x), first.update(x))  # with slow score and evidence
    second.reset()
    with pytest.raises(UnseenError, match="no batch"):
        second.compute()


def test_parallel_streams_merge_to_one_of_both(light_run, scorer):
    whole, left, right = (StreamMonitor(scorer, batch=20, memory=3) for _ in range(3))
    pairs = zip(batches_of(light_run, "lit"), batches_of(light_run, "far/1"), strict=True)
    seen = []
    for a, b in pairs:
        left.update(a)
        right.update(b)
        seen.append((a, b))
    for a, b in seen:
        whole.update(np.concatenate([a, b]))
    left.merge(right)
    ours, wanted = left.compute(), whole.compute()
    assert (ours.batches, ours.n) == (2 * wanted.batches, wanted.n)
    for name in ("score", "threshold", "slow_score", "slow_threshold"):
        assert getattr(ours, name) == pytest.approx(getattr(wanted, name), rel=1e-9), name
    assert ours.verdict == wanted.verdict
    assert ours.predicted_accuracy == pytest.approx(wanted.predicted_accuracy, abs=0.02)
    for other in (left, StreamMonitor(scorer, batch=21), "monitor"):
        with pytest.raises(UnseenError, match="merge"):
            left.merge(other)


def test_monitor_continues_from_its_file(light_run, scorer, tmp_path):
    settings = {"batch": 20, "memory": 3, "false_alarms_per_thousand": 5}
    monitor = StreamMonitor(scorer, **settings)
    stream = [*batches_of(light_run, "lit", "far/1")]
    for x in stream[:4]:
        monitor.update(x)
    monitor.save(tmp_path / "m.npz")
    again = StreamMonitor.load(tmp_path / "m.npz", scorer, **settings)
    for x in stream[4:]:
        assert again.update(x) == monitor.update(x)
    assert again.compute() == monitor.compute()
    with pytest.raises(UnseenError, match="another memory, 3"):
        StreamMonitor.load(tmp_path / "m.npz", scorer, **{**settings, "memory": 4})
    with pytest.raises(UnseenError, match="another false_alarms_per_thousand, 5: use that"):
        StreamMonitor.load(tmp_path / "m.npz", scorer, batch=20, memory=3)
    with pytest.raises(UnseenError, match="another model"):
        held_out = draw(np.random.default_rng(0), 300)
        StreamMonitor.load(tmp_path / "m.npz", InputScorer(held_out), **settings)
    content = (tmp_path / "m.npz").read_bytes()
    for damaged in (b"", b"PK", content[:-100]):
        (tmp_path / "bad.npz").write_bytes(damaged)
        with pytest.raises(UnseenError, match=r"bad\.npz"):
            StreamMonitor.load(tmp_path / "bad.npz", scorer, **settings)


def test_source_streams_alarm_at_most_at_the_stated_rate_of_the_stream():
    rng, alarms, batches = np.random.default_rng(0), 0, 1000
    for _ in range(4):
        scorer = InputScorer(draw(rng, 400))
        monitor = StreamMonitor(scorer, batch=16, false_alarms_per_thousand=10)
        for _ in range(batches):
            monitor.update(draw(rng, 16))
        alarms += monitor.alarms
    assert alarms <= 4 * 10
    assert monitor.update(draw(rng, 16)).evidence_limit == 100
    readings = [monitor.update(draw(rng, 16, shift=0.05)) for _ in range(10)]
    assert any(reading.alarm for reading in readings[:4])  # and soon after a shift
    assert not readings[0].verdict


def lines_of(own, count):
    return [json.dumps({"path": str(own.files[i % len(own.files)])}) + "\n" for i in range(count)]


def test_stream_of_lines_goes_on_after_bad_ones(own_export, monkeypatch, tmp_path):
    good = lines_of(own_export, 6)
    bad = [
        "none.png\n",
        "{\n",
        '{"id": 3}\n',
        "\n",
        '{"path": "a.png", "domain": 1, "client": 2}\n',
    ]
    lines = good[:3] + bad + good[3:] + [good[0][:-2] + ', "client": "b"}\n']

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(lines).encode())))
    done = unseen("monitor", own_export.exported, "--stdin", "--batch", 4)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    errors = {r["line"]: r["error"] for r in records if "error" in r}
    assert [*errors] == [4, 5, 6, 8] and "none.png does not exist" in errors[4]
    assert "both a domain and a client" in errors[8]
    batches = [r for r in records if "error" not in r]
    assert [(r["domain"], r["n"], r["lines"]) for r in batches] == [
        ("stream", 4, [1, 9]), ("stream", 2, [10, 11]), ("b", 1, [12, 12]),
    ]  # fmt: skip
    assert all(r["verdict"] in ("ok", "shifted", "failing", "unknown") for r in batches)


def test_killed_stream_loses_no_acknowledged_batch(own_export, tmp_path):
    lines, state = lines_of(own_export, 24), tmp_path / "state.npz"
    command = [sys.executable, "-m", "unseen", "monitor", str(own_export.exported), "--stdin",
               "--batch", "4", "--false-alarms-per-thousand", "1"]  # fmt: skip

    def start(*more):
        return subprocess.Popen(
            [*command, *map(str, more)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=dict(os.environ), text=True,
        )  # fmt: skip

    process = start("--state", state)
    process.stdin.write("".join(lines[:14]))  # half a batch is not acknowledged
    process.stdin.flush()
    records = [json.loads(process.stdout.readline()) for _ in range(3)]  # live
    process.send_signal(signal.SIGKILL)
    process.communicate()
    acknowledged = records[-1]["lines"][1]
    assert acknowledged == 12
    rest = start("--state", state).communicate("".join(lines[acknowledged:]))[0]
    records += [json.loads(line) for line in rest.splitlines()]
    whole = start().communicate("".join(lines))[0]
    for ours, wanted in zip(records, map(json.loads, whole.splitlines()), strict=True):
        assert ours == wanted  # also the numbers of lines
    assert [r["batch"] for r in records] == [1, 2, 3, 4, 5, 6]


def lines_of_domains(own, count):
    """Return lines of three domains in turn, so that each is between batches at another line."""
    return [
        json.dumps({"path": str(own.files[i % len(own.files)]), "domain": "abbc"[i % 4]}) + "\n"
        for i in range(count)
    ]


def monitored(own, lines, state, *more):
    scorer = open_scorer(own.exported, threads=1)
    stream = LineStream(scorer, partial(StreamMonitor, scorer, batch=4), state)
    return list(stream.run([line.encode() for line in lines], *more))


@pytest.mark.parametrize("cut", [5, 13, 22, 30])
@pytest.mark.parametrize("from_begin", [False, True])
def test_killed_stream_of_domains_counts_every_line_once(own_export, tmp_path, cut, from_begin):
    lines, state = lines_of_domains(own_export, 36), tmp_path / "state.npz"
    wanted = monitored(own_export, lines, None)
    scorer = open_scorer(own_export.exported, threads=1)
    stream = LineStream(scorer, partial(StreamMonitor, scorer, batch=4), state)

    def until_the_kill():
        yield from (line.encode() for line in lines[:cut])
        raise KeyboardInterrupt

    records = []
    with pytest.raises(KeyboardInterrupt):
        for record in stream.run(until_the_kill()):
            records.append(record)
    read = records[-1]["read"] if records else 0
    rest = (lines, state, 1) if from_begin else (lines[read:], state)
    assert records + monitored(own_export, *rest) == wanted


def test_state_is_for_one_stream_at_a_time(own_export, tmp_path, monkeypatch):
    state = tmp_path / "state.npz"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with locked(tmp_path / "state.npz.stream"):
        done = unseen("monitor", own_export.exported, "--stdin", "--state", state)
    assert done.returncode == 2 and "another process" in done.stderr


def test_pickle_is_no_state(light_run, scorer, tmp_path):
    (tmp_path / "state.npz").write_bytes(pickle.dumps({"about": Path("x")}))
    with pytest.raises(UnseenError, match=r"state\.npz is not a saved monitor") as error:
        StreamMonitor.load(tmp_path / "state.npz", scorer)
    assert "allow_pickle" not in str(error.value)


def test_sample_that_is_gone_after_a_restart_is_named(own_export, tmp_path):
    state, copy = tmp_path / "state.npz", tmp_path / "copy.png"
    copy.write_bytes(own_export.files[0].read_bytes())
    scorer = open_scorer(own_export.exported, threads=1)
    stream = LineStream(scorer, partial(StreamMonitor, scorer, batch=4), state)
    lines = [json.dumps({"path": str(copy), "domain": "b"}) + "\n", *lines_of(own_export, 4)]
    next(stream.run([line.encode() for line in lines]))
    copy.unlink()
    (lost,) = monitored(own_export, [], state)
    assert lost["line"] == 1 and "copy.png" in lost["error"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which has no domains: add --stdin"),
        (("--stdin", "--domain", "a"), "leave out --domain"),
        (("--state", "x"), "need --stdin"),
        (("--first-line", "3"), "need --stdin"),
        (("--stdin", "--first-line", "3"), "send them from line 1"),
        (("--stdin", "--false-alarms-per-day", "1"), "together with --batches-per-day"),
        (("--stdin", "--false-alarms-per-thousand", "900"), "at most 500"),
    ],
)
def test_bad_options_are_one_error(own_export, monkeypatch, words, message):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a.png\n")))
    done = unseen("monitor", own_export.exported, *words)
    assert done.returncode == 2 and message in done.stderr, (done.stdout, done.stderr)
