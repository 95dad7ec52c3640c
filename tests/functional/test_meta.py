"""The meta-gradient against finite differences of a slow objective, in float64."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from scipy.special import betainc, betaincinv
from slow_noise import slow_draw, slow_two_site_forward, soft_cross_entropy
from tiny import TinyNet, tiny_batch

from unseen import UncertaintyGuided
from unseen.functional.meta import inner_step
from unseen.functional.mixup import mix_targets, relaxed_bernoulli
from unseen.functional.noise import kl_divergence
from unseen.methods import Adversary, LearnedMixup, LossWeights, Noise, RandomMixup
from unseen.nn.perturbed_forward import PerturbedForward

SEEDS = [21, 22]
ALPHA = 0.5  # large, so that the second-order term is worth half the gradient


def make(mixup=LearnedMixup, head_input="clean", **settings):
    """Noise as printed in the paper."""
    torch.manual_seed(1)
    chosen = {
        "draws": 2,
        "inner_lr": ALPHA,
        "noise": Noise(scale=None, per="feature", sign="positive", head_input=head_input),
        "mixup": mixup(weight=0.6),
        "weights": LossWeights(source=0.7, kl=0.3),
        **settings,
    }
    net = UncertaintyGuided(TinyNet(), sites=["conv1", "conv2"], embedding="fc1", **chosen).double()
    with (
        torch.no_grad()
    ):  # an ascent has been: q and p differ, and most of sigma lies below its clamp
        for name, p in net.heads.named_parameters():
            if name.endswith("bias"):
                p[len(p) // 2 :] -= 1.0
        for p in net.prior.parameters():
            p.add_(0.1 * torch.randn_like(p))
        net.ascents_done += 1
    return net


def uniform_of(seed, shapes, batch):
    """The lottery's uniform numbers: the draw's generator, after the noise of both sites."""
    g = torch.Generator().manual_seed(seed)
    for shape in shapes:
        torch.empty(shape, dtype=torch.float64).normal_(generator=g)
    return torch.rand(batch, generator=g, dtype=torch.float64)


def slow_objective(net, batch, quantiles):
    """Return mean_k [L(theta*; S+_k) + w L_mix] + w KL + w L(theta; S).

    lambda follows its quantile, as pathwise gradients do.
    """
    theta = dict(net.model.named_parameters())
    x, y = batch.x[0], batch.y
    source = F.cross_entropy(net.model(x), y)
    grads = torch.autograd.grad(source, list(theta.values()))
    fast = {
        name: (p - ALPHA * g).detach() for (name, p), g in zip(theta.items(), grads, strict=True)
    }
    total = net.weights.source * source.detach()
    for k, seed in enumerate(SEEDS):
        plain, _, g1, g2 = slow_two_site_forward(net, fast, x, seed, net.noise.head_input)
        if isinstance(net.mixup, LearnedMixup):
            a, b, tau = net.mixup_head(g1)
            lam = torch.tensor(betaincinv(a.detach().numpy(), b.detach().numpy(), quantiles[k]))
        else:
            tau, lam = torch.full((len(y),), 0.5, dtype=torch.float64), torch.tensor(quantiles[k])
        shapes = [(len(y) * 4 * 6 * 6,), (len(y) * 5 * 1 * 1,)]
        won = relaxed_bernoulli(tau, uniform_of(seed, shapes, len(y)), net.mixup.temperature)
        mixed, *_ = slow_two_site_forward(net, fast, x, seed, net.noise.head_input, lam)
        soft = mix_targets(y, lam, won, 3, net.mixup.rho)
        inputs = {"conv1": x, "conv2": _second_input(net, fast, x, seed)}
        kl = sum(
            kl_divergence(g, net.prior[site](inputs[site])).mean()
            for site, g in (("conv1", g1), ("conv2", g2))
        )
        total = (
            total
            + (
                F.cross_entropy(plain, y)
                + net.mixup.weight * soft_cross_entropy(mixed, soft)
                + net.weights.kl * kl
            )
            / 2
        )
    return float(total.detach())


def _second_input(net, fast, x, seed):
    h1 = F.conv2d(x, fast["conv1.weight"], fast["conv1.bias"])
    if net.noise.head_input == "perturbed":
        g1 = net.heads["conv1"](x)
        (eps,) = slow_draw(seed, tuple(h1.shape))
        h1 = h1 + F.softplus(g1.mu + g1.sigma * eps)
    return F.avg_pool2d(torch.tanh(h1), 2)


def groups_of(net):
    groups = {"theta": list(net.model.parameters()), "phi_p": list(net.heads.parameters())}
    if isinstance(net.mixup, LearnedMixup):
        groups["phi_m"] = list(net.mixup_head.parameters())
    return groups


def by_finite_differences(net, batch, quantiles, params, direction, step=1e-5):
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            for p, d in zip(params, direction, strict=True):
                p.add_(d, alpha=sign * step)
        values.append(slow_objective(net, batch, quantiles))
        with torch.no_grad():
            for p, d in zip(params, direction, strict=True):
                p.sub_(d, alpha=sign * step)
    return (values[0] - values[1]) / (2 * step)


def _spy(seen, call=PerturbedForward.__call__):
    def spied(self, *args, **kwargs):
        seen.append(call(self, *args, **kwargs))
        return seen[-1]

    return spied


def gradients(net, batch):
    """meta_gradients, and the quantile of every lambda that was drawn."""
    net.zero_grad()
    drawn = []
    with mock.patch.object(PerturbedForward, "__call__", _spy(drawn)):
        net.meta_gradients(batch, SEEDS)
    lam, mixing = drawn[-1].lam.detach().numpy(), drawn[-1].mixing
    if isinstance(net.mixup, LearnedMixup):
        return betainc(mixing.a.detach().numpy(), mixing.b.detach().numpy(), lam)
    return lam


@pytest.mark.parametrize("head_input", ["clean", "perturbed"])
@pytest.mark.parametrize(
    "mixup, tolerance", [(RandomMixup, 1e-6), (LearnedMixup, 3e-3)]
)  # torch's d lambda / d a is approximate
def test_the_second_order_meta_gradient_matches_finite_differences(head_input, mixup, tolerance):
    net, batch = make(mixup, head_input, meta="second"), tiny_batch(dtype=torch.float64)
    quantiles = gradients(net, batch)
    for name, params in groups_of(net).items():
        g = torch.Generator().manual_seed(5)
        direction = [torch.randn(p.shape, generator=g, dtype=torch.float64) for p in params]
        ours = float(sum((p.grad * d).sum() for p, d in zip(params, direction, strict=True)))
        numeric = by_finite_differences(net, batch, quantiles, params, direction)
        assert abs(numeric) > 1e-4, f"{name}: the direction must matter"
        assert ours == pytest.approx(numeric, rel=tolerance), name


def test_first_order_differs_from_second_in_theta_only():
    batch = tiny_batch(dtype=torch.float64)
    found = {}
    for meta in ("first", "second"):
        net = make(meta=meta)
        gradients(net, batch)
        found[meta] = {
            name: torch.cat([p.grad.flatten() for p in ps]) for name, ps in groups_of(net).items()
        }
    apart = (found["first"]["theta"] - found["second"]["theta"]).norm() / found["second"][
        "theta"
    ].norm()
    assert apart > 0.05
    for name in ("phi_p", "phi_m"):
        torch.testing.assert_close(found["first"][name], found["second"][name])


def test_the_inner_step_by_hand():
    w = torch.tensor([2.0, -1.0], requires_grad=True)
    loss = (w**2).sum() + w[0] * w[
        1
    ]  # gradient (2w0 + w1, 2w1 + w0) = (3, 0), Hessian ((2, 1), (1, 2))
    step = inner_step(loss, {"w": w}, alpha=0.1, second_order=True)
    torch.testing.assert_close(step.fast["w"].detach(), torch.tensor([1.7, -1.0]))
    v = torch.tensor([1.0, 10.0])
    torch.testing.assert_close(step.gradient({"w": v})["w"], v - 0.1 * torch.tensor([12.0, 21.0]))


def test_parameters_that_the_loss_never_touches_get_no_gradient_and_do_not_break_it():
    net = make(meta="second")
    net.model.register_parameter("spare", torch.nn.Parameter(torch.zeros(2, dtype=torch.float64)))
    net.meta_gradients(tiny_batch(dtype=torch.float64), SEEDS)
    assert net.model.spare.grad is None


def test_frozen_parameters_stay_frozen():
    torch.manual_seed(0)
    model = TinyNet()
    model.conv1.requires_grad_(False)
    before = model.conv1.weight.clone()
    net = UncertaintyGuided(
        model,
        sites=["conv1"],
        embedding="fc1",
        draws=2,
        warmup=0,
        meta="second",
        adversary=Adversary(steps=2),
    )
    for _ in range(3):
        net.step(tiny_batch())
    assert torch.equal(model.conv1.weight, before) and not model.conv1.weight.requires_grad
