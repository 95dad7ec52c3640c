"""Learned random convolutions at the input: bounds, score, saving, bad settings."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import nn
from toy_domains import BarNet, bars

from unseen import UncertaintyGuided, UnseenError, calibrate, load
from unseen.api import Batch
from unseen.functional.kernels import perturb_by_kernel
from unseen.methods import Adversary, LossWeights, Noise
from unseen.nn.random import Draws

KERNEL = Noise(act="kernel", scale=1.0)


def guided(model=None, seed=0, **settings):
    torch.manual_seed(seed)
    chosen = {"sites": ["input"], "embedding": "fc1", "draws": 2, "warmup": 0, "noise": KERNEL}
    chosen |= {"mixup": None, "adversary": Adversary(rounds=2, steps=3)}
    return UncertaintyGuided(model or TinyNet(), **(chosen | settings))


@pytest.fixture(scope="module")
def trained():
    """A net for bars, trained for a second; its source and held-out samples."""
    x, y = bars(256, seed=1)
    net = guided(BarNet(), lr=3e-3, adversary=Adversary(rounds=5, steps=10))
    for step in range(60):
        rows = slice(32 * (step % 8), 32 * (step % 8) + 32)
        net.step(Batch((x[rows],), y[rows]))
    held_out = bars(256, seed=2)
    calibrate(net, [Batch((x,), y)], [Batch((held_out[0],), held_out[1])])
    return net


@pytest.mark.parametrize("sites", [["input"], ["input", "conv2:input"]], ids=len)
def test_pass_equals_one_kernel_at_a_time(sites):
    noise = Noise(act="kernel", scale=0.7, strength="sample", sparse=0.5)
    net, seeds = guided(sites=sites, noise=noise).double(), [3, 4]
    batch = tiny_batch(dtype=torch.float64)
    theta = {n: p.detach() for n, p in net.model.named_parameters()}
    out = net.perturbed_forward(batch)(theta, batch.x, Draws(seeds))

    def kernels(gaussian, g, strength):
        eps = torch.empty(gaussian.mu.numel(), dtype=torch.float64).normal_(generator=g)
        kept = torch.rand(gaussian.mu.shape, generator=g, dtype=torch.float64) < 0.5
        e = gaussian.mu + gaussian.sigma * eps.view(gaussian.mu.shape)
        return (0.7 * e * kept * strength[:, None])[:, None]

    for k, seed in enumerate(seeds):
        g = torch.Generator().manual_seed(seed)
        strength = torch.rand(4, generator=g, dtype=torch.float64)
        x = perturb_by_kernel(batch.x[0], kernels(out.gaussians["input"], g, strength), 3)[:, 0]
        m = net.model
        h = nn.functional.avg_pool2d(torch.tanh(m.conv1(x)), 2)
        if len(sites) > 1:
            h = perturb_by_kernel(h, kernels(out.gaussians[sites[1]], g, strength), 3)[:, 0]
        z = m.fc1(torch.tanh(m.conv2(h).mean((2, 3))))
        torch.testing.assert_close(out.embedding[4 * k : 4 * k + 4], z)


def test_adversary_without_a_bound_stays_within_the_limits():
    batch = tiny_batch(8)
    net = guided(adversary=Adversary(rounds=1, steps=20, lr=100.0, beta=0.0))
    net.prepare(batch)
    before = copy.deepcopy(net.heads.state_dict())
    net.ascend(batch)
    theta = {n: p.detach() for n, p in net.model.named_parameters()}
    with torch.no_grad():
        out = net.perturbed_forward(batch)(theta, batch.x, Draws([1]), record_shift=True)
    mu, sigma = out.gaussians["input"]
    assert any(not torch.equal(t, before[n]) for n, t in net.heads.state_dict().items())
    assert float(mu.abs().max()) <= 1 and float(sigma.max()) <= 1
    images, moved = batch.x[0].flatten(1), (batch.x[0] + out.shift).flatten(1)
    torch.testing.assert_close(moved.std(1), images.std(1), rtol=1e-2, atol=1e-2)


def test_beta_bounds_the_adversary():
    batch, shifts = tiny_batch(8), []
    for beta in (0.0, 100.0):
        net = guided(adversary=Adversary(rounds=1, steps=30, lr=1.0, beta=beta))
        net.prepare(batch)
        start = shift(net, batch)
        net.ascend(batch)
        shifts.append(shift(net, batch) / start)
    assert shifts[0] > 1.3 and shifts[1] < 0.5


def shift(net, batch):
    """Mean distance of the embedding under noise from the clean one."""
    theta = {n: p.detach() for n, p in net.model.named_parameters()}
    with torch.no_grad():
        moved = net.perturbed_forward(batch)(theta, batch.x, Draws(list(range(20)))).embedding
        clean = {}
        handle = net.model.fc1.register_forward_hook(lambda m, a, z: clean.update(z=z))
        net.model(*batch.x)
        handle.remove()
    return float((moved.unflatten(0, (20, -1)) - clean["z"]).square().mean())


def test_second_order_and_the_kl_term_reach_the_head():
    net = guided(meta="second", weights=LossWeights(kl=1.0), lr=1e-2)
    for _ in range(3):
        logs = net.step(tiny_batch())
    assert float(logs["kl"]) > 0 and torch.isfinite(logs["loss"])


def test_score_of_shifted_domains_is_above_that_of_the_source(trained):
    clean = float(trained.domain_score(bars(200, seed=5)[0]))
    for shifted in ({"grain": 0.5}, {"fog": 0.8}, {"light": 0.3}):
        assert float(trained.domain_score(bars(200, seed=6, **shifted)[0])) > 3 * clean + 0.01


def test_saved_net_scores_the_same(trained, tmp_path):
    x = bars(16, seed=7)[0]
    trained.save(tmp_path / "net")
    back = load(tmp_path / "net", BarNet())
    assert torch.equal(back.uncertainty(x), trained.uncertainty(x)) and back.noise == KERNEL


def test_wrong_places_and_settings_are_refused():
    with pytest.raises(UnseenError, match=r"noise\.kernel_size must be odd, not 4"):
        Noise(kernel_size=4)
    with pytest.raises(UnseenError, match="has noise of both signs"):
        Noise(act="kernel", sign="positive")
    wide = nn.Sequential(nn.Conv2d(2, 20, 3), nn.Flatten(), nn.LazyLinear(3))
    with pytest.raises(UnseenError, match='"0" has 20: name the input'):
        guided(wide, sites=["0"], embedding=None)
    with pytest.raises(UnseenError, match=r'\(N, C, H, W\), "fc1" gives'):
        guided(sites=["fc1"], embedding="fc2").step(tiny_batch())
