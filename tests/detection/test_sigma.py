"""The score read at the embedding: what it is fitted to, against slow code; its promises; its way to disk and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn
from toy_domains import BarNet, assert_source_batches_alarm_as_rarely_as_stated, bars, make

from unseen import ERM, DomainMonitor, UncertaintyGuided, UnseenError, calibrate, load
from unseen.api import Batch
from unseen.cli import app
from unseen.cli.options import stdout_for_results_only
from unseen.detection.registry import SCORES
from unseen.detection.sigma import LOOKS
from unseen.detection.source_statistics import EmbeddingShiftPredictor
from unseen.experiments import evaluate as exam
from unseen.methods import Adversary, Noise
from unseen.nn.hooks import captured
from unseen.nn.random import Draws, fresh_seeds
from unseen.training.run import Run
from unseen.training.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = train(
        make(), "uncertainty_guided", tmp_path_factory.mktemp("runs") / "guided", progress=False
    )
    exam.recalibrate(made, make(), "embedding")
    return made


def test_the_reader_finds_a_log_linear_rule_and_stays_finite_far_from_it():
    g = torch.Generator().manual_seed(0)
    z, rule = (
        torch.randn(4000, 3, generator=g),
        torch.tensor([[1.0, 0.0, -0.5], [0.0, 0.3, 0.0], [0.2, 0.0, 0.4]]),
    )
    squared = (z @ rule + torch.tensor([0.1, -2.0, 1.0])).exp()
    reader = EmbeddingShiftPredictor.fit(z, squared)
    torch.testing.assert_close(
        reader.weight, rule / 1.1, atol=0.03, rtol=0.03
    )  # a ridge of a tenth shrinks by a tenth
    few = z[:50]
    assert float((reader(few).square().log() - squared[:50].log()).abs().mean()) < 0.15
    far = reader(1e6 * torch.randn(5, 3, generator=g))
    assert far.isfinite().all() and (far > 0).all()


def test_features_that_never_change_and_never_move_do_not_spoil_the_others():
    g = torch.Generator().manual_seed(1)
    z = torch.cat([torch.randn(200, 2, generator=g), torch.zeros(200, 1)], 1)
    squared = torch.cat([z[:, :2].exp(), torch.zeros(200, 1)], 1)
    read = EmbeddingShiftPredictor.fit(z, squared)(z)
    assert read.isfinite().all() and float(np.corrcoef(read[:, 0].log(), z[:, 0])[0, 1]) > 0.99


@pytest.mark.parametrize("z", [torch.ones(1, 3), torch.full((9, 3), torch.nan)])
def test_a_source_that_cannot_be_fitted_is_named(z):
    with pytest.raises(UnseenError, match="two samples of the source or more, all finite"):
        EmbeddingShiftPredictor.fit(z, torch.ones_like(z))


def test_transport_is_what_single_draws_show(run):
    net, x = run.load(make()), bars(6, 5)[0]
    with captured(net.model, ("fc1",)) as seen, torch.no_grad():
        net.model(x)
    torch.manual_seed(0)
    seeds, theta = (
        fresh_seeds(LOOKS),
        {name: p.detach() for name, p in net.model.named_parameters()},
    )
    slow = torch.zeros_like(seen["fc1"])
    with torch.no_grad():
        for seed in seeds:
            moved = net.perturbed_forward(Batch((x,), torch.zeros(6).long()))(
                theta, (x,), Draws([seed])
            ).embedding
            slow += (moved - seen["fc1"]).square() / LOOKS
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    z, squared = net.transport(x).chunk(2, 1)
    torch.testing.assert_close(z, seen["fc1"])
    torch.testing.assert_close(squared, slow, atol=1e-5, rtol=1e-4)
    assert torch.equal(before, torch.random.get_rng_state())  # nobody's random numbers are used up


def test_the_score_is_the_relative_deviation_of_what_the_reader_says_in_one_pass(run):
    net, x = run.load(make()), bars(40, 6, fog=0.5)[0]
    passes, plain = (
        [],
        net.predict(x),
    )  # which also asks the model once whether it takes channels last
    net.model.conv1.register_forward_hook(lambda *_: passes.append(1))
    logits, features = net.predict_with_features(x)
    assert len(passes) == 1
    torch.testing.assert_close(logits, plain)
    with captured(net.model, ("fc1",)) as seen, torch.no_grad():
        net.model(x)
    said = net.reader(seen["fc1"])
    torch.testing.assert_close(features, said)
    slow = np.mean(
        [
            abs(float(said[:, i].mean()) - float(m)) / float(m)
            for i, m in enumerate(net.reference.mean)
        ]
    )
    assert net.domain_score(x) == pytest.approx(slow, rel=1e-4)


def test_500_fresh_source_batches_alarm_as_rarely_as_stated_and_shifted_ones_alarm(run):
    net, size = run.load(make()), 20
    assert_source_batches_alarm_as_rarely_as_stated(net, size)
    assert (
        np.mean([net.alarm(bars(size, seed=2000 + i, fog=0.7)[0], 0.01) for i in range(40)]) >= 0.95
    )


def test_it_sees_what_the_first_sites_mean_cannot(run):
    """Pixels thrown about keep every mean that a pooled first layer without neighbours has, and no bar is left."""

    class Pixelwise(BarNet):
        def __init__(self):
            super().__init__()
            self.conv1, self.fc1 = nn.Conv2d(1, 8, 1), nn.Linear(8 * 64, 16)

    torch.manual_seed(0)
    net = UncertaintyGuided(
        Pixelwise(),
        sites="conv1",
        embedding="fc1",
        lr=3e-3,
        warmup=20,
        adversary=Adversary(rounds=5),
        draws=2,
    )
    for i in range(120):
        net.step(Batch.of(bars(32, i)))
    source, held_out = [bars(500, 900)], [bars(500, 901)]
    mixed = bars(300, 902)[0].flatten(1)[:, torch.randperm(64)].view(300, 1, 8, 8)
    found = {}
    for at in ("site", "embedding"):
        calibrate(net, source, held_out, at)
        found[at] = net.alarm(mixed)
    assert found == {"site": False, "embedding": True}


def test_it_goes_to_disk_and_back_and_calibrating_again_keeps_it(run, tmp_path):
    net, x = run.load(make()), bars(30, 8)[0]
    net.save(tmp_path / "saved")
    again = load(tmp_path / "saved", BarNet())
    assert again.domain_score(x) == net.domain_score(x)
    calibrate(again, [bars(400, 1)], [bars(400, 2)])
    assert again.reader is not None and again.domain_score(x) == pytest.approx(
        net.domain_score(x), rel=0.5
    )
    calibrate(again, [bars(400, 1)], [bars(400, 2)], "site")
    assert again.reader is None and len(again.reference.mean) == 8  # conv1's channels
    monitor = DomainMonitor.from_run(run.folder, make(), batch=30)
    assert monitor.update(x).score == pytest.approx(net.domain_score(x), rel=1e-4)


def test_spoilt_readers_are_named(run, tmp_path):
    from unseen.nn.tensor_files import read_tensors, write_tensors

    run.load(make()).save(tmp_path / "saved")
    path = tmp_path / "saved" / "source.safetensors"
    whole = read_tensors(path)
    write_tensors(path, {**whole, "reader/bias": torch.full_like(whole["reader/bias"], torch.nan)})
    with pytest.raises(UnseenError, match="reader/bias must hold finite numbers"):
        load(tmp_path / "saved", BarNet())
    write_tensors(path, {name: t for name, t in whole.items() if name != "reader/low"})
    with pytest.raises(UnseenError, match="must hold mean and held_out"):
        load(tmp_path / "saved", BarNet())


def test_methods_without_learned_noise_say_so():
    with pytest.raises(UnseenError, match="erm has no learned noise"):
        calibrate(ERM(BarNet()), [bars(50, 1)], score_at="embedding")
    never = UncertaintyGuided(
        BarNet(), sites="conv1", embedding="fc1", noise=Noise(kind="random_gaussian")
    )
    with pytest.raises(UnseenError, match="only where noise is learned"):
        calibrate(never, [bars(50, 1)], score_at="embedding")
    with pytest.raises(UnseenError, match="site or embedding"):
        calibrate(never, [bars(50, 1)], score_at="elsewhere")


def test_mahalanobis_reads_the_same_layer(run):
    net = run.load(make())
    assert SCORES["mahalanobis"](net).layer == "fc1"
    net.reader = None
    assert SCORES["mahalanobis"](net).layer == "conv1"


def test_a_task_says_where_its_runs_are_scored_and_the_command_changes_it(
    tmp_path, capsys, monkeypatch
):
    from dataclasses import replace

    task = replace(make(), score_at="embedding")
    made = train(
        task, "uncertainty_guided", tmp_path / "run", overrides={"steps": 30}, progress=False
    )
    assert made.load(task).reader is not None
    assert (
        train(task, "erm", tmp_path / "erm", overrides={"steps": 5}, progress=False)
        .load(task)
        .reader
        is None
    )
    (made.folder / "accuracy.json").write_text("{}")
    monkeypatch.syspath_prepend("tests")
    with stdout_for_results_only():
        app(
            ["calibrate", str(made.folder), "--at", "site", "--task", "toy_domains:make", "--json"],
            result_action="return_value",
        )
    told = json.loads(capsys.readouterr().out)
    assert (
        told["score_at"] == "site"
        and told["features"] == 8
        and not (made.folder / "accuracy.json").exists()
    )
    assert Run(made.folder).load(task).reader is None
