"""The stream monitor: its sums, its rate of false alarms, drifts, merging, and its files."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from toy_domains import BarNet, bars, make

from unseen import ERM, AccuracyEstimator, DomainMonitor, UnseenError
from unseen.cli import app
from unseen.cli.options import stdout_for_results_only
from unseen.detection.detector import Detector, Look
from unseen.detection.monitor import threshold_sizes
from unseen.detection.source_statistics import SourceStatistics
from unseen.experiments.monitor_run import open_monitor
from unseen.functional.scores import relative_deviation
from unseen.nn.tensor_files import read_tensors, write_tensors
from unseen.training.train import train

FEATURES = 6
FORMAT_1 = Path(__file__).parents[1] / "format_1"


class InputDetector(Detector):
    """Its features are the inputs, so that what a monitor does with them is easy to check."""

    name, summary = "input", "scores its inputs"

    def look(self, x):
        return Look(torch.zeros(len(x), 2), x)

    def reduce(self, features):
        return relative_deviation(features, self.calibrated().mean.to(features))


def draw(n, g, shift=0.0):
    common = torch.randn(n, 1, generator=g)
    values = 0.5 + 0.05 * torch.randn(n, FEATURES, generator=g) + 0.03 * common + shift
    return values.clamp(0.01)


def calibrated(seed, held_out=400):
    g = torch.Generator().manual_seed(seed)
    detector = InputDetector(ERM(nn.Linear(FEATURES, 2)))
    detector.statistics = SourceStatistics(draw(1000, g).mean(0), draw(held_out, g))
    return detector, g


def test_slow_score_is_that_of_an_exponentially_weighted_mean_of_all_samples():
    detector, g = calibrated(0)
    monitor = DomainMonitor(detector, batch=8, memory=4)
    batches = [draw(n, g) for n in (8, 8, 3, 12, 8)]
    for batch in batches:
        reading = monitor.update(batch)
    age = [len(batches) - 1 - i for i in range(len(batches))]
    weights = torch.cat([torch.full((len(b),), 0.75**k) for k, b in zip(age, batches, strict=True)])
    mean = (weights[:, None] * torch.cat(batches)).sum(0) / weights.sum()
    assert reading.slow_score == pytest.approx(float(detector.reduce(mean)), rel=1e-4)
    effective_size = float(weights.sum() ** 2 / weights.square().sum())
    assert monitor.effective_size == pytest.approx(effective_size, rel=1e-5)
    last = float(detector.reduce(batches[-1].mean(0)))
    assert reading.score == pytest.approx(last, rel=1e-4)


def test_compute_scores_all_samples_equally():
    detector, g = calibrated(0)
    monitor = DomainMonitor(detector, batch=8, memory=4)
    with pytest.raises(UnseenError, match="no batch yet"):
        monitor.compute()
    batches = [draw(n, g, shift=0.05) for n in (8, 3, 12)]
    readings = [monitor.update(batch) for batch in batches]
    summary = monitor.compute()
    expected = float(detector.reduce(torch.cat(batches).mean(0)))
    assert summary.score == pytest.approx(expected, rel=1e-5)
    assert (summary.batches, summary.n) == (3, 23)
    assert summary.alarms == sum(r.alarm for r in readings)
    assert summary.slow_score == readings[-1].slow_score
    assert summary.threshold == monitor.threshold(23)
    assert summary.alarm == (
        summary.score > summary.threshold or summary.slow_score > summary.slow_threshold
    )


def test_merged_monitors_equal_one_that_saw_both_streams():
    detector, g = calibrated(0)
    left, right, both = (DomainMonitor(detector, batch=8, memory=4) for _ in range(3))
    for n in (8, 8, 5):
        a, b = draw(n, g), draw(n + 1, g, shift=0.1)
        left.update(a)
        right.update(b)
        both.update(torch.cat([a, b]))
    alarms = left.alarms + right.alarms
    left.merge(right)
    merged, whole = left.compute(), both.compute()
    assert (merged.batches, merged.n, merged.alarms) == (6, whole.n, alarms)
    assert merged.score == pytest.approx(whole.score, rel=1e-9)
    assert merged.threshold == whole.threshold
    # Parallel streams of equal length: the forgetting mean is exact too.
    assert merged.slow_score == pytest.approx(whole.slow_score, rel=1e-9)
    assert left.effective_size == pytest.approx(both.effective_size, rel=1e-9)
    assert len(left.history) == 6
    left.reset()
    assert left.seen == left.samples == left.alarms == 0 and not left.history


def test_merge_aligns_streams_of_different_length_at_their_ends():
    detector, g = calibrated(0)
    long, short = (DomainMonitor(detector, batch=8, memory=4) for _ in range(2))
    batches = [draw(8, g) for _ in range(4)]
    for batch in batches[:3]:
        long.update(batch)
    short.update(batches[3])
    long.merge(short)
    weights = torch.tensor([0.75**2, 0.75, 1.0, 1.0])
    means = torch.stack([b.mean(0) for b in batches])
    mean = (weights[:, None] * means).sum(0) / weights.sum()
    assert long.compute().slow_score == pytest.approx(float(detector.reduce(mean)), rel=1e-4)


def test_merge_refuses_another_detector_or_other_settings():
    detector, _ = calibrated(0)
    monitor = DomainMonitor(detector, batch=8)
    for other in (DomainMonitor(calibrated(1)[0], batch=8), DomainMonitor(detector, batch=9)):
        with pytest.raises(UnseenError, match="must have the same detector"):
            monitor.merge(other)


def test_thresholds_are_exact_for_the_batch_and_never_too_low_for_other_sizes():
    detector, _ = calibrated(0)
    monitor = DomainMonitor(detector, batch=20, false_alarm_rate=0.1, memory=5)
    assert monitor.threshold(20) == detector.threshold(20, 0.05)
    for n in (1, 2, 7, 33, 180, 1000):
        assert monitor.threshold(n) >= detector.threshold(n, 0.05)
    sizes = threshold_sizes(20, 0.8)
    assert sizes[0] == 1 and sizes[-1] == 180 and 20 in sizes and sizes == sorted(set(sizes))
    assert threshold_sizes(1, 0.0) == [1]


@pytest.mark.parametrize("memory", [1, 10])
def test_source_batches_alarm_at_most_at_the_stated_rate(memory):
    """Over many calibrations: alarms of the slow score come in runs, one stream says little."""
    rate, alarms, trials = 0.05, 0, 0
    for seed in range(40):
        detector, g = calibrated(seed, held_out=300)
        monitor = DomainMonitor(detector, batch=16, false_alarm_rate=rate, memory=memory)
        alarms += sum(monitor.update(draw(16, g)).alarm for _ in range(40))
        trials += 40
    # Streams times what a forgetting mean leaves of each.
    independent = trials if memory == 1 else 40 * 40 / (2 * memory)
    assert alarms / trials <= rate + 3 * (rate * (1 - rate) / independent) ** 0.5


def test_a_jump_alarms_at_once_and_a_small_drift_in_the_slow_score():
    detector, g = calibrated(1)
    monitor = DomainMonitor(detector, batch=16)
    assert not any(monitor.update(draw(16, g)).alarm for _ in range(20))
    jump = monitor.update(draw(16, g, shift=0.2))
    assert jump.batch_alarm and jump.alarm
    monitor.reset()
    small = [monitor.update(draw(16, g, shift=0.02)) for _ in range(40)]
    assert sum(r.batch_alarm for r in small) <= 8 and all(r.slow_alarm for r in small[-10:])


def test_memory_is_constant_and_the_history_bounded():
    detector, g = calibrated(0)
    monitor = DomainMonitor(detector, batch=4, history=7)
    for _ in range(31):
        monitor.update(draw(4, g))
    assert len(monitor.thresholds) == len(threshold_sizes(4, 0.95))
    assert monitor._sum.numel() == monitor._total.numel() == FEATURES
    assert len(monitor.history) == 7 and monitor.history[-1].batch == 31


# ---- files


def test_monitor_continues_from_its_file_without_held_out_samples(tmp_path):
    detector, g = calibrated(0)
    whole = DomainMonitor(detector, batch=8, memory=5)
    stream = [draw(8, g) for _ in range(6)]
    for batch in stream[:3]:
        whole.update(batch)
    path = tmp_path / "monitor.safetensors"
    whole.save(path)
    detector.forget_held_out()
    again = DomainMonitor.load(path, detector)
    assert again.compute() == whole.compute()
    assert [again.update(b) for b in stream[3:]] == [whole.update(b) for b in stream[3:]]
    assert again.compute() == whole.compute()
    with pytest.raises(UnseenError, match="another method"):
        DomainMonitor.load(path, calibrated(5)[0])
    write_tensors(tmp_path / "other.safetensors", {"x": torch.zeros(1)})
    with pytest.raises(UnseenError, match="not a saved monitor"):
        DomainMonitor.load(tmp_path / "other.safetensors", detector)
    with pytest.raises(UnseenError, match="needs a trained method, not Linear"):
        DomainMonitor.load(path, torch.nn.Linear(2, 2))


def test_monitor_of_format_1_is_read():
    path = FORMAT_1 / "monitor.safetensors"
    saved = read_tensors(path)
    detector = InputDetector(ERM(nn.Linear(FEATURES, 2)))
    mean = saved["source_mean"].float()
    detector.statistics = SourceStatistics(mean, mean.expand(9, -1))
    monitor = DomainMonitor.load(path, detector)
    assert monitor.seen == int(saved["numbers"][2]) and monitor.samples == 0
    reading = monitor.update(mean.expand(4, -1))
    assert reading.batch == monitor.seen and monitor.compute().n == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.update(thresholds=t["thresholds"] * torch.nan),
        lambda t: t.update(thresholds=t["thresholds"][1:]),
        lambda t: t.update(sizes=t["sizes"].flip(0)),
        lambda t: t.update(sizes=t["sizes"][:0], thresholds=t["thresholds"][:0]),
        lambda t: t.update(sum=t["sum"][1:]),
        lambda t: t.update(total=t["total"][1:]),
        lambda t: t.update(counts=t["counts"] - 1000),
        lambda t: t["numbers"].__setitem__(0, 7.0),  # the decay
        lambda t: t["numbers"].__setitem__(5, -1.0),  # the length of the history
    ],
)
def test_damaged_monitor_is_refused(damage, tmp_path):
    detector, g = calibrated(0)
    monitor = DomainMonitor(detector, batch=8)
    monitor.update(draw(8, g))
    path = tmp_path / "monitor.safetensors"
    monitor.save(path)
    tensors = {k: t.clone() for k, t in read_tensors(path).items()}
    damage(tensors)
    write_tensors(path, tensors)
    with pytest.raises(UnseenError, match="damaged monitor"):
        DomainMonitor.load(path, detector)


def test_batches_that_cannot_be_scored_are_refused_and_not_counted():
    detector, g = calibrated(0)
    monitor = DomainMonitor(detector, batch=4)
    monitor.update(draw(4, g))
    with pytest.raises(UnseenError, match=r"batch 2 .* not finite"):
        monitor.update(torch.full((4, FEATURES), torch.nan))
    with pytest.raises(UnseenError, match="empty"):
        monitor.update(torch.zeros(0, FEATURES))
    assert monitor.update(draw(4, g)).batch == 2


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"batch": 0}, "batch must"),
        ({"memory": 0}, "memory must"),
        ({"history": 0}, "history must"),
        ({"false_alarm_rate": 0.0}, "false-alarm rate"),
    ],
)
def test_bad_settings_are_refused(settings, text):
    with pytest.raises(UnseenError, match=text):
        DomainMonitor(calibrated(0)[0], **settings)


def test_monitor_needs_a_calibrated_method():
    with pytest.raises(UnseenError, match="no source statistics"):
        DomainMonitor(ERM(nn.Linear(FEATURES, 2)))
    with pytest.raises(UnseenError, match=r"unseen.ERM\(model\)"):
        DomainMonitor(BarNet())


# ---- runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "guided"
    train(make(), "uncertainty_guided", out, progress=False, task_word="toy_domains:make")
    return out


def test_open_monitor_drops_the_held_out_samples(trained):
    monitor = open_monitor(trained, make(), batch=32)
    assert len(monitor.detector.statistics.held_out) == 0
    assert not any(monitor.update(bars(32, 100 + i)[0]).alarm for i in range(5))
    assert all(monitor.update(bars(32, 200 + i, fog=0.7)[0]).alarm for i in range(3))
    with pytest.raises(UnseenError, match="load the run again"):
        monitor.net.threshold(32)


def test_from_run_is_deprecated(trained):
    with pytest.warns(DeprecationWarning, match="open_monitor"):
        monitor = DomainMonitor.from_run(trained, "toy_domains:make")
    assert len(monitor.thresholds) > 5


def invoke(*words):
    app([*words], exit_on_error=False, result_action="return_value")


def test_command_shows_a_drift(trained, capsys):
    words = ["monitor", str(trained), "--task", "toy_domains:make", "--batch", "50"]
    words += ["--domain", "source", "--then", "foggy"]
    with stdout_for_results_only():
        invoke(*words, "--json")
    result = json.loads(capsys.readouterr().out)
    assert [r["domain"] for r in result["readings"]] == ["bars"] * 8 + ["foggy"] * 6
    assert result["alarms"]["foggy"] == result["batches"]["foggy"] == 6
    assert result["alarms"]["bars"] <= 1
    keys = {"batch", "n", "score", "threshold", "slow_score", "slow_threshold", "alarm"}
    assert set(result["readings"][0]) >= keys
    invoke(*words)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 15 and "ALARM: batch" in lines[-2]
    assert lines[-1].endswith("foggy: 6 alarms in 6 batches")


@pytest.mark.parametrize(
    "words, text",
    [
        (["--domain", "mars"], 'no domain "mars"'),
        (["--domain", "foggy", "--batch", "5000"], "--batch must lie between 1 and the 300"),
        (["--domain", "foggy", "--then", "mars"], 'no domain "mars"'),
    ],
)
def test_command_names_bad_arguments(trained, words, text):
    with pytest.raises(UnseenError, match=text):
        invoke("monitor", str(trained), "--task", "toy_domains:make", *words)


# ---- verdicts


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    net = train(make(), "uncertainty_guided", tmp_path_factory.mktemp("judged") / "run",
                progress=False).load(make())  # fmt: skip
    return net, AccuracyEstimator.fit(net, [bars(300, 2)], samples=100)


def test_readings_have_verdicts_and_a_shift_ends_them_being_ok(judged):
    net, estimator = judged
    monitor = DomainMonitor(net, batch=64, estimator=estimator)
    clean = [monitor.update(bars(64, 300 + i)[0]) for i in range(5)]
    assert [r.verdict for r in clean].count("ok") >= 4
    assert monitor.compute().predicted_accuracy == pytest.approx(
        estimator.source_accuracy, abs=0.05
    )
    shifted = monitor.update(bars(64, 400, grain=0.6)[0])
    assert shifted.verdict in ("failing", "unknown") and shifted.alarm
    low, high = shifted.interval
    assert low <= shifted.predicted_accuracy <= high


def test_verdict_of_a_stream_is_that_of_all_its_samples(judged, tmp_path):
    net, estimator = judged
    x, _ = bars(128, 500, grain=0.2)
    parts = [DomainMonitor(net, estimator=estimator) for _ in range(2)]
    for monitor, piece in zip(parts, x.split(64), strict=True):
        monitor.update(piece)
    parts[0].save(tmp_path / "monitor.safetensors")
    first = DomainMonitor.load(tmp_path / "monitor.safetensors", net, estimator=estimator)
    first.merge(parts[1])
    whole = estimator.estimate(x)
    assert first.compute().predicted_accuracy == pytest.approx(whole.accuracy, abs=1e-6)
    assert DomainMonitor(net).update(x).verdict is None


def test_estimator_of_another_method_is_refused(judged):
    net, estimator = judged
    other = copy.deepcopy(net)
    with pytest.raises(UnseenError, match="another method"):
        DomainMonitor(other, estimator=estimator)


def test_a_batch_that_cannot_be_judged_is_not_counted():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    net = ERM(model)
    x, y = torch.rand(60, 1, 4, 4), torch.arange(60) % 3
    net.detector.calibrate([(x, y)], [(x, y)])
    shifts = {kind: [lambda v, g, k=kind: (v[0] * (1 - 0.2 * k),)] for kind in (1, 2, 3)}
    named = {str(kind): functions for kind, functions in shifts.items()}
    estimator = AccuracyEstimator.fit(net, [(x, y)], shifts=named)
    monitor = DomainMonitor(net, batch=16, estimator=estimator)
    monitor.update(x[:16])
    with pytest.raises(UnseenError):
        monitor.update(x[:16] * 1e30)
    assert (monitor.seen, monitor.samples) == (1, 16)
    assert monitor.compute().verdict is not None
