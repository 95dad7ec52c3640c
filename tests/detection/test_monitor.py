"""A stream watched: slow twins of the sums, false alarms counted, drifts caught, constant memory, state on disk."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from toy_domains import BarNet, bars, make

import unseen
from unseen import DomainMonitor, Method, UnseenError
from unseen.cli import app
from unseen.cli.options import stdout_for_results_only
from unseen.detection.monitor import threshold_sizes
from unseen.detection.source_statistics import SourceStatistics, relative_deviation
from unseen.training.train import train

FEATURES = 6


class Seen(Method):
    """A method whose score features are its inputs: what a monitor does with them is then plain to see."""

    name, summary = "seen", "scores its inputs"

    def score_features(self, x):
        return x

    def score(self, features):
        return relative_deviation(features, self.reference.mean.to(features))


def drawn(n, g, shift=0.0):
    common = torch.randn(n, 1, generator=g)
    return (0.5 + 0.05 * torch.randn(n, FEATURES, generator=g) + 0.03 * common + shift).clamp(0.01)


def calibrated(seed, held_out=400):
    g = torch.Generator().manual_seed(seed)
    net = Seen(nn.Linear(FEATURES, 2))
    net.reference = SourceStatistics(drawn(1000, g).mean(0), drawn(held_out, g))
    return net, g


def test_the_slow_score_is_that_of_an_exponentially_weighted_mean_of_all_samples():
    net, g = calibrated(0)
    monitor = DomainMonitor(net, batch=8, memory=4)
    batches = [drawn(n, g) for n in (8, 8, 3, 12, 8)]
    for batch in batches:
        reading = monitor.update(batch)
    weights = torch.cat(
        [torch.full((len(b),), 0.75 ** (len(batches) - 1 - i)) for i, b in enumerate(batches)]
    )
    mean = (weights[:, None] * torch.cat(batches)).sum(0) / weights.sum()
    assert reading.slow_score == pytest.approx(float(net.score(mean)), rel=1e-4)
    assert monitor.effective_size == pytest.approx(
        float(weights.sum() ** 2 / weights.square().sum()), rel=1e-5
    )
    assert reading.score == pytest.approx(float(net.score(batches[-1].mean(0))), rel=1e-4)


def test_thresholds_are_exact_for_the_batch_and_never_too_low_for_other_sizes():
    net, _ = calibrated(0)
    monitor = DomainMonitor(net, batch=20, false_alarm_rate=0.1, memory=5)
    assert monitor.threshold(20) == net.reference.threshold(net.score, 20, 0.05)
    for n in (1, 2, 7, 33, 180, 1000):
        assert monitor.threshold(n) >= net.reference.threshold(net.score, n, 0.05)
    sizes = threshold_sizes(20, 0.8)
    assert sizes[0] == 1 and sizes[-1] == 180 and 20 in sizes and sizes == sorted(set(sizes))
    assert threshold_sizes(1, 0.0) == [1]


@pytest.mark.parametrize("memory", [1, 10])
def test_batches_of_the_source_alarm_no_more_often_than_stated(memory):
    """Over many calibrations: alarms of the slow score come in rows, so that one stream alone says little."""
    rate, alarms, trials = 0.05, 0, 0
    for seed in range(40):
        net, g = calibrated(seed, held_out=300)
        monitor = DomainMonitor(net, batch=16, false_alarm_rate=rate, memory=memory)
        alarms += sum(monitor.update(drawn(16, g)).alarm for _ in range(40))
        trials += 40
    independent = (
        trials if memory == 1 else 40 * 40 / (2 * memory)
    )  # streams times what a forgetting mean leaves of each
    assert alarms / trials <= rate + 3 * (rate * (1 - rate) / independent) ** 0.5


def test_a_jump_alarms_at_once_and_a_drift_too_small_for_a_batch_alarms_in_the_slow_score():
    net, g = calibrated(1)
    monitor = DomainMonitor(net, batch=16)
    assert not any(monitor.update(drawn(16, g)).alarm for _ in range(20))
    jump = monitor.update(drawn(16, g, shift=0.2))
    assert jump.batch_alarm and jump.alarm
    monitor.reset()
    small = [monitor.update(drawn(16, g, shift=0.02)) for _ in range(40)]
    assert sum(r.batch_alarm for r in small) <= 8 and all(r.slow_alarm for r in small[-10:])


def test_memory_is_constant_and_the_history_bounded():
    net, g = calibrated(0)
    monitor = DomainMonitor(net, batch=4, history=7)
    monitor.update(drawn(4, g))
    before = (len(monitor.thresholds), monitor._sum.numel())
    for _ in range(30):
        monitor.update(drawn(4, g))
    assert (
        (len(monitor.thresholds), monitor._sum.numel())
        == before
        == (len(threshold_sizes(4, 0.95)), FEATURES)
    )
    assert len(monitor.history) == 7 and monitor.history[-1].batch == 31


def test_a_monitor_goes_on_from_its_file_without_held_out_samples(tmp_path):
    net, g = calibrated(0)
    whole = DomainMonitor(net, batch=8, memory=5)
    stream = [drawn(8, g) for _ in range(6)]
    for batch in stream[:3]:
        whole.update(batch)
    whole.save(tmp_path / "monitor.safetensors")
    net.reference = SourceStatistics(net.reference.mean, net.reference.held_out[:0])
    again = DomainMonitor.load(tmp_path / "monitor.safetensors", net)
    assert [again.update(b) for b in stream[3:]] == [whole.update(b) for b in stream[3:]]
    with pytest.raises(UnseenError, match="another method"):
        DomainMonitor.load(tmp_path / "monitor.safetensors", calibrated(5)[0])
    unseen.nn.tensor_files.write_tensors(tmp_path / "other.safetensors", {"x": torch.zeros(1)})
    with pytest.raises(UnseenError, match="not a saved monitor"):
        DomainMonitor.load(tmp_path / "other.safetensors", net)
    with pytest.raises(UnseenError, match="needs a trained method, not Linear"):
        DomainMonitor.load(tmp_path / "monitor.safetensors", torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t.update(thresholds=t["thresholds"] * torch.nan),
        lambda t: t.update(thresholds=t["thresholds"][1:]),
        lambda t: t.update(sizes=t["sizes"].flip(0)),
        lambda t: t.update(sizes=t["sizes"][:0], thresholds=t["thresholds"][:0]),
        lambda t: t.update(sum=t["sum"][1:]),
        lambda t: t["numbers"].__setitem__(0, 7.0),  # the decay
        lambda t: t["numbers"].__setitem__(5, -1.0),  # the length of the history
    ],
)
def test_a_spoilt_monitor_is_refused_not_silent(spoil, tmp_path):
    net, g = calibrated(0)
    monitor = DomainMonitor(net, batch=8)
    monitor.update(drawn(8, g))
    monitor.save(tmp_path / "monitor.safetensors")
    tensors = {
        k: t.clone()
        for k, t in unseen.nn.tensor_files.read_tensors(
            tmp_path / "monitor.safetensors"
        ).items()
    }
    spoil(tensors)
    unseen.nn.tensor_files.write_tensors(
        tmp_path / "spoilt.safetensors", {k: t.contiguous() for k, t in tensors.items()}
    )
    with pytest.raises(UnseenError, match="spoilt monitor"):
        DomainMonitor.load(tmp_path / "spoilt.safetensors", net)


def test_what_cannot_be_scored_is_named_and_not_counted():
    net, g = calibrated(0)
    monitor = DomainMonitor(net, batch=4)
    monitor.update(drawn(4, g))
    for bad, text in (
        (torch.full((4, FEATURES), torch.nan), "batch 2 .* not finite"),
        (torch.zeros(0, FEATURES), "empty"),
    ):
        with pytest.raises(UnseenError, match=text):
            monitor.update(bad)
    assert monitor.update(drawn(4, g)).batch == 2
    for settings, text in (
        ({"batch": 0}, "batch must"), ({"memory": 0}, "memory must"), ({"history": 0}, "history must"),
        ({"false_alarm_rate": 0.0}, "false-alarm rate"),
    ):  # fmt: skip
        with pytest.raises(UnseenError, match=text):
            DomainMonitor(net, **settings)
    with pytest.raises(UnseenError, match="no source statistics"):
        DomainMonitor(Seen(nn.Linear(FEATURES, 2)))
    with pytest.raises(UnseenError, match=r"unseen.ERM\(model\)"):
        DomainMonitor(BarNet())


# ------------------------------------------------------------------------------------------------------ with runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "guided"
    train(make(), "uncertainty_guided", out, progress=False, task_word="toy_domains:make")
    return out


def test_a_run_is_monitored_without_keeping_its_held_out_samples(trained):
    monitor = DomainMonitor.from_run(trained, make(), batch=32)
    assert len(monitor.net.reference.held_out) == 0
    assert not any(monitor.update(bars(32, 100 + i)[0]).alarm for i in range(5))
    assert all(monitor.update(bars(32, 200 + i, fog=0.7)[0]).alarm for i in range(3))
    with pytest.raises(UnseenError, match="load the run again"):
        monitor.net.threshold(32)
    assert len(DomainMonitor.from_run(trained, "toy_domains:make").thresholds) > 5


def test_the_command_shows_a_drift(trained, capsys):
    words = [
        "monitor",
        str(trained),
        "--domain",
        "source",
        "--then",
        "foggy",
        "--batch",
        "50",
        "--task",
        "toy_domains:make",
    ]
    with stdout_for_results_only():
        app([*words, "--json"], exit_on_error=False, result_action="return_value")
    result = json.loads(capsys.readouterr().out)
    assert [r["domain"] for r in result["readings"]] == ["bars"] * 8 + ["foggy"] * 6
    assert (
        result["alarms"]["foggy"] == result["batches"]["foggy"] == 6
        and result["alarms"]["bars"] <= 1
    )
    assert set(result["readings"][0]) >= {
        "batch",
        "n",
        "score",
        "threshold",
        "slow_score",
        "slow_threshold",
        "alarm",
    }
    app(words, exit_on_error=False, result_action="return_value")
    lines = capsys.readouterr().out.splitlines()
    assert (
        len(lines) == 15
        and "ALARM: batch" in lines[-2]
        and lines[-1].endswith("foggy: 6 alarms in 6 batches")
    )


@pytest.mark.parametrize(
    "words, text",
    [
        (["--domain", "mars"], 'no domain "mars"'),
        (
            ["--domain", "foggy", "--batch", "5000"],
            "--batch must lie between 1 and the 300 samples",
        ),
        (["--domain", "foggy", "--then", "mars"], 'no domain "mars"'),
    ],
)
def test_bad_questions_are_named(trained, words, text):
    with pytest.raises(UnseenError, match=text):
        app(
            ["monitor", str(trained), "--task", "toy_domains:make", *words],
            exit_on_error=False,
            result_action="return_value",
        )
