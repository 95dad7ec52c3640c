"""Options of the noise: strength, sparse, gain and offset together, random depth, at the input."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from slow_noise import slow_site_noise
from tiny import TinyNet, tiny_batch

from unseen import UncertaintyGuided, UnseenError, calibrate, load
from unseen.api import Batch
from unseen.functional.noise import Gaussian
from unseen.methods import Adversary, Noise, RandomMixup
from unseen.nn.random import Draws
from unseen.nn.site_noise import SiteNoise

SEEDS = [5, 6, 7]


def guided(seed=0, **settings):
    torch.manual_seed(seed)
    chosen = {"sites": ["conv1", "fc1"], "embedding": "fc2", "draws": 2, "warmup": 0}
    chosen |= {"mixup": None, "adversary": Adversary(rounds=1, steps=2), "lr": 1e-2}
    return UncertaintyGuided(TinyNet(), **(chosen | settings))


@pytest.mark.parametrize("act, sign", [("offset", "both"), ("gain", "both"), ("both", "positive")])
@pytest.mark.parametrize("strength", [None, "sample", "batch"])
@pytest.mark.parametrize("sparse, per", [(None, "feature"), (0.5, "channel"), (0.3, "feature")])
def test_options_equal_noise_applied_number_by_number(act, sign, strength, sparse, per):
    torch.manual_seed(0)
    noise = SiteNoise("learned", per, sign, act, strength, sparse, {"site": 2.5}, gain_unit=0.5)
    channels = 4 if act == "both" else 2
    h, mu, sigma = (
        torch.rand(3, c, 2, 3, dtype=torch.float64, requires_grad=True)
        for c in (2, channels, channels)
    )
    draws, gaussian = Draws(SEEDS), Gaussian(mu, sigma)
    strengths = noise.draw_strength(draws, h)
    fast = noise.apply("site", h, gaussian, SimpleNamespace(axis=1), draws, 3, True, strengths)
    slow = torch.cat([h, *(slow_site_noise(h, gaussian, seed, noise) for seed in SEEDS)])
    weights = torch.linspace(-1, 1, slow.numel(), dtype=torch.float64).view(slow.shape)
    torch.testing.assert_close(fast, slow)
    leaves = (h, mu, sigma)
    for a, b in zip(
        torch.autograd.grad((fast * weights).sum(), leaves),
        torch.autograd.grad((slow * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "noise",
    [
        Noise(strength="sample", sparse=0.5, act="both"),
        Noise(strength="batch", per="feature", sparse=0.1, kind="random_gaussian", act="both"),
        Noise(strength="sample", depth="random", kind="deterministic", scale=None, act="both"),
    ],
    ids=lambda noise: f"{noise.strength}-{noise.kind}",
)
def test_options_together_train_and_score_and_survive_saving(tmp_path, noise):
    net, batch = guided(noise=noise, mixup=RandomMixup()), tiny_batch(8)
    before = torch.cat([p.detach().flatten() for p in net.heads.parameters()])
    for _ in range(3):
        logs = net.step(batch)
    after = torch.cat([p.detach().flatten() for p in net.heads.parameters()])
    assert torch.isfinite(logs["loss"])
    assert torch.equal(before, after) == (noise.kind == "random_gaussian")
    calibrate(net, [batch], [tiny_batch(40, seed=1)])
    net.save(tmp_path / "net")
    back = load(tmp_path / "net", TinyNet())
    assert back.noise == noise
    assert torch.equal(net.uncertainty(batch.x[0]), back.uncertainty(batch.x[0]))


def test_random_depth_perturbs_one_site_in_each_step():
    net, batch = guided(noise=Noise(depth="random"), adversary=None), tiny_batch()
    seen = []
    for _ in range(12):
        net.zero_grad()
        net.meta_gradients(batch)
        moved = [
            any(p.grad is not None and bool(p.grad.any()) for p in head.parameters())
            for head in net.heads.values()
        ]
        assert sum(moved) == 1
        seen.append(moved.index(True))
    assert set(seen) == {0, 1}


def test_random_depth_refuses_a_learned_mixup_and_an_embedding_before_a_site():
    with pytest.raises(UnseenError, match="has no learned mixup"):
        UncertaintyGuided(TinyNet(), sites=["conv1"], noise=Noise(depth="random"))
    net = guided(noise=Noise(depth="random"), embedding="conv2")
    with pytest.raises(UnseenError, match='embedding "conv2" is reached before the first site'):
        net.step(tiny_batch())


def test_strength_of_a_sample_is_the_same_at_all_sites():
    """Noise without its random part at conv1 and conv2, whose output is the embedding here."""
    noise = Noise(kind="deterministic", strength="sample", scale=None)
    net, batch = guided(sites=["conv1", "conv2"], embedding="conv2", noise=noise), tiny_batch(6)
    model, theta = net.model, {n: p.detach() for n, p in net.model.named_parameters()}
    with torch.no_grad():
        out = net.perturbed_forward(batch)(theta, batch.x, Draws([5]), record_shift=True)
        mu1, mu2 = (out.gaussians[site].mu for site in ("conv1", "conv2"))
        strength = (out.shift * mu1).sum((1, 2, 3)) / mu1.square().sum((1, 2, 3))
        s = strength.view(-1, 1, 1, 1)
        torch.testing.assert_close(out.shift, s * mu1, rtol=1e-4, atol=1e-5)
        h2 = model.conv2(F.avg_pool2d(torch.tanh(model.conv1(batch.x[0]) + s * mu1), 2))
        torch.testing.assert_close(out.embedding, h2 + s * mu2, rtol=1e-4, atol=1e-5)
    assert bool((strength > 0).all()) and bool((strength < 1).all()) and len(set(strength)) == 6


@pytest.mark.parametrize("per", ["channel", "feature"])
def test_noise_on_images_is_in_units_of_their_spread_and_moves_colours(per):
    images = torch.rand(16, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    batch = Batch((images,), torch.randint(3, (16,)))
    noise = Noise(per=per, kind="random_gaussian", scale=0.5)
    net = guided(sites=["input"], noise=noise, adversary=None)
    theta = {n: p.detach() for n, p in net.model.named_parameters()}
    with torch.no_grad():
        forward = net.perturbed_forward(batch)
        shift = forward(theta, batch.x, Draws(list(range(40))), record_shift=True).shift
    assert float(shift.std()) == pytest.approx(0.5 * float(images.std()), rel=0.05)
    within = float(shift.flatten(2).std(2).mean())  # over the pixels of a channel
    assert within == pytest.approx(0.0 if per == "channel" else float(shift.std()), abs=0.01)
    before = images.clone()
    net.step(batch)
    assert torch.equal(images, before)  # the user's images stay as they were


def test_learned_noise_on_images_trains_and_scores_another_range():
    torch.manual_seed(0)
    images, y = torch.rand(64, 2, 8, 8), torch.randint(3, (64,))
    net = guided(sites=["input"], adversary=Adversary(rounds=3, steps=5))
    for start in range(0, 64, 16):
        net.step(Batch((images[start : start + 16],), y[start : start + 16]))
    calibrate(net, [Batch((images,), y)], [Batch((torch.rand(64, 2, 8, 8),), y)])
    same, darker = torch.rand(64, 2, 8, 8), 0.1 * torch.rand(64, 2, 8, 8)
    assert float(net.domain_score(darker)) > 3 * float(net.domain_score(same))
