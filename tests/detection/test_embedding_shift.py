"""The score at the embedding: its regression, its alarm, and its files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from toy_domains import BarNet, assert_source_batches_alarm_as_rarely_as_stated, bars, make

from unseen import ERM, UncertaintyGuided, UnseenError, calibrate, load
from unseen.api import Batch
from unseen.cli import app
from unseen.cli.options import stdout_for_results_only
from unseen.detection import EmbeddingShift
from unseen.detection.embedding_shift import DRAWS
from unseen.detection.embedding_shift_predictor import EmbeddingShiftPredictor
from unseen.experiments.compare_scores import detectors_of
from unseen.experiments.evaluate import recalibrate
from unseen.experiments.monitor_run import open_monitor
from unseen.methods import Adversary, Noise
from unseen.nn.hooks import captured
from unseen.nn.random import Draws, fresh_seeds
from unseen.nn.tensor_files import read_tensors, write_tensors
from unseen.training.run import Run
from unseen.training.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "guided"
    finished = train(make(), "uncertainty_guided", folder, progress=False)
    recalibrate(finished, make(), "embedding")
    return finished


def test_predictor_fits_a_log_linear_rule_and_is_finite_far_from_it():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(4000, 3, generator=g)
    rule = torch.tensor([[1.0, 0.0, -0.5], [0.0, 0.3, 0.0], [0.2, 0.0, 0.4]])
    squared = (z @ rule + torch.tensor([0.1, -2.0, 1.0])).exp()
    predictor = EmbeddingShiftPredictor.fit(z, squared)
    # A ridge of a tenth shrinks by a tenth.
    torch.testing.assert_close(predictor.weight, rule / 1.1, atol=0.03, rtol=0.03)
    error = predictor(z[:50]).square().log() - squared[:50].log()
    assert float(error.abs().mean()) < 0.15
    far = predictor(1e6 * torch.randn(5, 3, generator=g))
    assert far.isfinite().all() and (far > 0).all()


def test_predictor_is_not_spoilt_by_constant_features():
    g = torch.Generator().manual_seed(1)
    z = torch.cat([torch.randn(200, 2, generator=g), torch.zeros(200, 1)], 1)
    squared = torch.cat([z[:, :2].exp(), torch.zeros(200, 1)], 1)
    predicted = EmbeddingShiftPredictor.fit(z, squared)(z)
    assert predicted.isfinite().all()
    assert float(np.corrcoef(predicted[:, 0].log(), z[:, 0])[0, 1]) > 0.99


@pytest.mark.parametrize("z", [torch.ones(1, 3), torch.full((9, 3), torch.nan)])
def test_predictor_refuses_too_few_or_non_finite_samples(z):
    with pytest.raises(UnseenError, match="at least two source samples, all finite"):
        EmbeddingShiftPredictor.fit(z, torch.ones_like(z))


def test_measured_shift_matches_single_draws_and_keeps_the_random_state(run):
    net, x = run.load(make()), bars(6, 5)[0]
    with captured(net.model, ("fc1",)) as outputs, torch.no_grad():
        net.model(x)
    torch.manual_seed(0)
    seeds, slow = fresh_seeds(DRAWS), torch.zeros_like(outputs["fc1"])
    theta = {name: p.detach() for name, p in net.model.named_parameters()}
    forward = net.perturbed_forward(Batch((x,), torch.zeros(6).long()))
    with torch.no_grad():
        for seed in seeds:
            moved = forward(theta, (x,), Draws([seed])).embedding
            slow += (moved - outputs["fc1"]).square() / DRAWS
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    z, squared = EmbeddingShift(net).measure_shift(x)
    torch.testing.assert_close(z, outputs["fc1"])
    torch.testing.assert_close(squared, slow, atol=1e-5, rtol=1e-4)
    assert torch.equal(before, torch.random.get_rng_state())


def test_score_is_the_relative_deviation_of_the_prediction_in_one_pass(run):
    net, x = run.load(make()), bars(40, 6, fog=0.5)[0]
    passes, plain = [], net.predict(x)  # which also probes the memory format once
    net.model.conv1.register_forward_hook(lambda *_: passes.append(1))
    logits, features = net.detector.look(x)
    assert len(passes) == 1
    torch.testing.assert_close(logits, plain)
    with captured(net.model, ("fc1",)) as outputs, torch.no_grad():
        net.model(x)
    predicted = net.detector.predictor(outputs["fc1"])
    torch.testing.assert_close(features, predicted)
    means = zip(predicted.mean(0).tolist(), net.detector.statistics.mean.tolist(), strict=True)
    slow = np.mean([abs(target - source) / source for target, source in means])
    assert net.domain_score(x) == pytest.approx(slow, rel=1e-4)


def test_fresh_source_batches_alarm_rarely_and_shifted_ones_alarm(run):
    net, size = run.load(make()), 20
    assert_source_batches_alarm_as_rarely_as_stated(net, size)
    foggy = [net.alarm(bars(size, seed=2000 + i, fog=0.7)[0], 0.01) for i in range(40)]
    assert np.mean(foggy) >= 0.95


def test_embedding_detects_what_the_mean_of_the_first_site_cannot():
    """Shuffled pixels keep every pooled mean of a pixelwise first layer, but leave no bar."""

    class Pixelwise(BarNet):
        def __init__(self):
            super().__init__()
            self.conv1, self.fc1 = nn.Conv2d(1, 8, 1), nn.Linear(8 * 64, 16)

    torch.manual_seed(0)
    settings = {"lr": 3e-3, "warmup": 20, "adversary": Adversary(rounds=5), "draws": 2}
    net = UncertaintyGuided(Pixelwise(), sites="conv1", embedding="fc1", **settings)
    for i in range(120):
        net.step(Batch.of(bars(32, i)))
    source, held_out = [bars(500, 900)], [bars(500, 901)]
    shuffled = bars(300, 902)[0].flatten(1)[:, torch.randperm(64)].view(300, 1, 8, 8)
    alarms = {}
    for at in ("site", "embedding"):
        calibrate(net, source, held_out, at)
        alarms[at] = net.alarm(shuffled)
    assert alarms == {"site": False, "embedding": True}


def test_detector_is_saved_and_recalibration_keeps_it(run, tmp_path):
    net, x = run.load(make()), bars(30, 8)[0]
    net.save(tmp_path / "saved")
    again = load(tmp_path / "saved", BarNet())
    assert again.domain_score(x) == net.domain_score(x)
    calibrate(again, [bars(400, 1)], [bars(400, 2)])
    assert again.detector.name == "embedding_shift"
    assert again.domain_score(x) == pytest.approx(net.domain_score(x), rel=0.5)
    calibrate(again, [bars(400, 1)], [bars(400, 2)], "site")
    assert again.detector.name == "sigma"
    assert len(again.detector.statistics.mean) == 8  # channels of conv1
    monitor = open_monitor(run.folder, make(), batch=30)
    assert monitor.update(x).score == pytest.approx(net.domain_score(x), rel=1e-4)


def test_file_without_the_name_of_a_detector_is_read(run, tmp_path):
    """Format 1 has no metadata; the tensors tell the detector."""
    net, x = run.load(make()), bars(30, 8)[0]
    net.save(tmp_path / "saved")
    path = tmp_path / "saved" / "source.safetensors"
    write_tensors(path, read_tensors(path))
    again = load(tmp_path / "saved", BarNet())
    assert again.detector.name == "embedding_shift"
    assert again.domain_score(x) == net.domain_score(x)


def test_damaged_predictor_is_refused(run, tmp_path):
    run.load(make()).save(tmp_path / "saved")
    path = tmp_path / "saved" / "source.safetensors"
    complete = read_tensors(path)
    bias = torch.full_like(complete["reader/bias"], torch.nan)
    write_tensors(path, {**complete, "reader/bias": bias})
    with pytest.raises(UnseenError, match=r"source.safetensors: reader/bias must hold finite"):
        load(tmp_path / "saved", BarNet())
    write_tensors(path, {name: t for name, t in complete.items() if name != "reader/low"})
    with pytest.raises(UnseenError, match="must hold mean and held_out"):
        load(tmp_path / "saved", BarNet())


def test_methods_without_learned_noise_are_refused():
    with pytest.raises(UnseenError, match="erm has no learned noise"):
        calibrate(ERM(BarNet()), [bars(50, 1)], score_at="embedding")
    never = UncertaintyGuided(
        BarNet(), sites="conv1", embedding="fc1", noise=Noise(kind="random_gaussian")
    )
    with pytest.raises(UnseenError, match="no learned noise"):
        calibrate(never, [bars(50, 1)], score_at="embedding")
    with pytest.raises(UnseenError, match="site or embedding"):
        calibrate(never, [bars(50, 1)], score_at="elsewhere")


def test_mahalanobis_is_compared_at_the_same_layer(run):
    net = run.load(make())
    assert detectors_of(net)["mahalanobis"].layer == "fc1"
    calibrate(net, [bars(50, 1)], [bars(50, 2)], "site")
    assert detectors_of(net)["mahalanobis"].layer == "conv1"


def test_task_sets_where_runs_are_scored_and_the_command_changes_it(tmp_path, capsys):
    task = replace(make(), score_at="embedding")
    finished = train(
        task, "uncertainty_guided", tmp_path / "run", overrides={"steps": 30}, progress=False
    )
    assert finished.load(task).detector.name == "embedding_shift"
    erm = train(task, "erm", tmp_path / "erm", overrides={"steps": 5}, progress=False)
    assert erm.load(task).detector.name == "max_softmax"
    (finished.folder / "accuracy.safetensors").write_text("{}")
    words = ["calibrate", str(finished.folder), "--at", "site", "--task", "toy_domains:make"]
    with stdout_for_results_only():
        app([*words, "--json"], result_action="return_value")
    result = json.loads(capsys.readouterr().out)
    assert result["score_at"] == "site" and result["features"] == 8
    assert not (finished.folder / "accuracy.safetensors").exists()
    assert Run(finished.folder).load(task).detector.name == "sigma"
