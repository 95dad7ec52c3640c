"""Alg. 1 as a whole: the adversary, the ablations, chunks, seeds, memory."""

from __future__ import annotations

import copy
import gc

import psutil
import pytest
import torch
from tiny import TinyNet, tiny_batch

from unseen import UncertaintyGuided, UnseenError
from unseen.api import Batch
from unseen.functional.losses import cross_entropy
from unseen.methods import Adversary, LearnedMixup, LossWeights, Noise, RandomMixup
from unseen.nn.heads import GaussianHead
from unseen.nn.random import Draws
from unseen.schema import construct_settings


def noise(**fields):
    """Noise as printed in the paper."""
    return Noise(**{"scale": None, "per": "feature", "sign": "positive", **fields})


def adversary(**fields):
    return Adversary(**{"steps": 3, **fields})


def make(model=None, seed=0, **settings):
    torch.manual_seed(seed)
    chosen = {
        "sites": ["conv1", "conv2"],
        "embedding": "fc1",
        "draws": 2,
        "warmup": 0,
        "noise": noise(),
        "adversary": adversary(),
        **settings,
    }
    return UncertaintyGuided(model or TinyNet(), **chosen)


def learned(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def perturbed_loss_and_distance(net, batch, seeds=range(100, 120)):
    """Loss on S+, and mean squared distance of z+ from z, over many draws."""
    theta = {n: p.detach() for n, p in net.model.named_parameters()}
    with torch.no_grad():
        out = net.perturbed_forward(batch)(theta, batch.x, Draws(list(seeds)))
        clean = {}
        handle = net.model.fc1.register_forward_hook(lambda m, a, z: clean.update(z=z))
        net.model(*batch.x)
        handle.remove()
    distance = (out.embedding.unflatten(0, (-1, len(batch.y))) - clean["z"]).square().mean()
    return float(cross_entropy(out.logits, batch.y.repeat(len(seeds)))), float(distance)


# ---- the adversary


def trained_tiny():
    torch.manual_seed(0)
    model, batch = TinyNet(), tiny_batch(16)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(25):
        optimizer.zero_grad()
        cross_entropy(model(*batch.x), batch.y).backward()
        optimizer.step()
    return model, batch


def test_ascend_raises_the_loss_and_changes_phi_p_only():
    model, batch = trained_tiny()
    net = make(model, adversary=Adversary(steps=30, lr=1.0, beta=0.0))
    before, theta, phi_m = (
        perturbed_loss_and_distance(net, batch)[0],
        copy.deepcopy(model.state_dict()),
        learned(net.mixup_head),
    )
    net.ascend(batch)
    assert perturbed_loss_and_distance(net, batch)[0] > before + 0.2
    assert all(torch.equal(theta[n], v) for n, v in model.state_dict().items())
    assert torch.equal(phi_m, learned(net.mixup_head))


def test_embedding_is_read_before_an_in_place_activation():
    torch.manual_seed(0)
    layers = [
        torch.nn.Flatten(),
        torch.nn.Linear(128, 6),
        torch.nn.ReLU(inplace=True),
        torch.nn.Linear(6, 5),
    ]
    model = torch.nn.Sequential(*layers, torch.nn.ReLU(inplace=True), torch.nn.Linear(5, 3))
    net = make(model, sites=["1"], embedding="3")
    batch = tiny_batch()
    theta = {n: p.detach() for n, p in model.named_parameters()}
    out = net.perturbed_forward(batch)(theta, batch.x, Draws([1]))
    assert (out.embedding < 0).any()
    assert torch.isfinite(net.step(batch)["loss"])


def test_larger_beta_keeps_the_embedding_closer():
    found = []
    for beta in (0.0, 1.0, 30.0):
        model, batch = trained_tiny()
        net = make(model, adversary=Adversary(steps=60, lr=0.3, beta=beta))
        net.ascend(batch)
        found.append(perturbed_loss_and_distance(net, batch)[1])
    assert found[0] > found[1] > found[2]


def test_ascents_follow_their_schedule():
    net = make(warmup=2, adversary=adversary(rounds=2, every=3))
    seen = []
    for _ in range(10):
        seen.append("ascent_gain" in net.step(tiny_batch()))
    assert [i for i, due in enumerate(seen) if due] == [2, 5]
    assert int(net.ascents_done) == 2
    always = make(adversary=adversary(rounds=None))
    assert all("ascent_gain" in always.step(tiny_batch()) for _ in range(4))


def test_warmup_is_erm():
    net, plain = make(warmup=3), TinyNet()
    plain.load_state_dict(net.model.state_dict())
    optimizer = torch.optim.Adam(plain.parameters(), net.lr)
    heads = learned(net.heads)
    for _ in range(3):
        net.step(tiny_batch())
        optimizer.zero_grad()
        cross_entropy(plain(*tiny_batch().x), tiny_batch().y).backward()
        optimizer.step()
    for a, b in zip(net.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert torch.equal(heads, learned(net.heads))


def test_prior_is_a_copy_of_the_heads_after_the_last_ascent():
    net = make(adversary=adversary(rounds=1), weights=LossWeights(kl=1.0), noise=noise(lr=0.01))
    assert "kl" not in make(adversary=None, weights=LossWeights(kl=1.0)).step(tiny_batch())
    first = net.step(tiny_batch())
    assert float(first["kl"]) == pytest.approx(0, abs=1e-6)  # q has not moved since the ascent
    prior = learned(net.prior)
    second = net.step(tiny_batch())
    assert second["kl"] > 0 and torch.equal(prior, learned(net.prior))


# ---- the ablations


def gradients(net, batch=None, seeds=(5, 6)):
    net.zero_grad()
    net.meta_gradients(batch or tiny_batch(), list(seeds))
    return {
        "theta": [p.grad for p in net.model.parameters()],
        "phi_p": [p.grad for p in net.heads.parameters()],
        "phi_m": [p.grad for p in net.mixup_head.parameters()],
    }


def is_zero(grads):
    return all(g is None or not g.any() for g in grads)


def noise_of(net, seeds=(5, 6)):
    """h+ - h at the first site."""
    batch = tiny_batch()
    theta = {n: p.detach() for n, p in net.model.named_parameters()}
    with torch.no_grad():
        return net.perturbed_forward(batch)(
            theta, batch.x, Draws(list(seeds)), record_shift=True
        ).shift


@pytest.mark.parametrize(
    "kind, mu, sigma",
    [
        ("learned", True, True),
        ("random_mu", False, True),
        ("random_sigma", True, False),
        ("random_gaussian", False, False),
        ("deterministic", True, None),
    ],
)
@pytest.mark.parametrize(
    "sign, bent", [("positive", torch.nn.functional.softplus), ("both", torch.Tensor.clone)]
)
def test_each_kind_of_noise_uses_its_parameters(kind, mu, sigma, sign, bent):
    net, batch = make(noise=noise(kind=kind, sign=sign)), tiny_batch()
    head: GaussianHead = net.heads["conv1"]
    with torch.no_grad():
        expected_mu, expected_sigma = head(batch.x[0])
        e = Draws([5, 6]).normal(expected_mu)
        m = expected_mu if mu else torch.zeros_like(expected_mu)
        s = expected_sigma if sigma else torch.ones_like(expected_sigma)
        expected = torch.cat([bent(m + s * eps if sigma is not None else m) for eps in e])
    torch.testing.assert_close(noise_of(net), expected, rtol=1e-4, atol=1e-5)
    grads = gradients(net)
    channels = head.width
    by_head = net.heads["conv1"].net.weight.grad
    learns_mu = by_head is not None and bool(by_head[:channels].any())
    learns_sigma = by_head is not None and bool(by_head[channels:].any())
    # With learned mixup the mixup head reads sigma too, so "deterministic" noise has a gradient.
    assert learns_mu == mu and (learns_sigma == bool(sigma) or sigma is None)
    assert not is_zero(grads["theta"]) and not is_zero(grads["phi_m"])


def test_noise_scale_is_in_units_of_the_spread_of_the_features():
    absolute, relative = make(), make(noise=noise(scale=2.0))
    batch = tiny_batch()
    absolute.meta_gradients(batch, [5, 6])
    relative.meta_gradients(batch, [5, 6])
    spread = float(relative.model.conv1(batch.x[0]).std().detach())
    assert float(relative.spreads[0]) == pytest.approx(spread, rel=1e-4)
    torch.testing.assert_close(
        noise_of(relative), 2.0 * spread * noise_of(absolute), rtol=1e-4, atol=1e-5
    )
    with torch.no_grad():  # features ten times as large get noise ten times as large
        for p in relative.model.conv1.parameters():
            p.mul_(10)
    relative.meta_gradients(batch, [5, 6])
    assert float(relative.spreads[0]) == pytest.approx(10 * spread, rel=1e-3)


@pytest.mark.parametrize("times", [1.0, 10.0])
def test_gain_does_not_depend_on_the_size_of_the_features(times):
    net, batch = make(noise=noise(act="gain", sign="both", scale=0.5)), tiny_batch()
    with torch.no_grad():
        for p in net.model.conv1.parameters():
            p.mul_(times)
        h, (mu, sigma) = net.model.conv1(batch.x[0]), net.heads["conv1"](batch.x[0])
        gains = [(0.5 * (mu + sigma * eps)).exp() for eps in Draws([5, 6]).normal(mu)]
    net.meta_gradients(batch, [5, 6])
    torch.testing.assert_close(
        noise_of(net), torch.cat([h * gain - h for gain in gains]), rtol=1e-4, atol=1e-4
    )
    assert not is_zero(gradients(net)["phi_p"])


def test_mixup_settings_change_phi_m_only():
    full, random, none = (
        gradients(make(mixup=kind)) for kind in (LearnedMixup(), RandomMixup(), None)
    )
    assert not is_zero(full["phi_m"]) and is_zero(random["phi_m"]) and is_zero(none["phi_m"])
    logs = make(mixup=None).meta_gradients(tiny_batch(), [5, 6])
    assert "mixed_loss" not in logs
    # Without mixup the rest is what a mixed weight of (almost) nothing leaves.
    faint = gradients(make(mixup=LearnedMixup(weight=1e-12)))
    for a, b in zip(none["theta"] + none["phi_p"], faint["theta"] + faint["phi_p"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_without_adversary_there_is_no_ascent():
    net, full = make(adversary=None), make()
    for a, b in zip(gradients(net)["theta"], gradients(full)["theta"], strict=True):
        torch.testing.assert_close(a, b)
    net.step(tiny_batch())
    full.step(tiny_batch())
    assert int(net.ascents_done) == 0 and int(full.ascents_done) == 1


def test_without_meta_source_and_augmented_are_learned_at_theta():
    a = gradients(make(meta=None))
    b = gradients(make(meta="first", inner_lr=0.0))
    for x, y in zip(a["theta"] + a["phi_p"], b["theta"] + b["phi_p"], strict=True):
        torch.testing.assert_close(x, y)
    # As printed, the meta step has no source term; learning together always has.
    without = gradients(make(meta=None, weights=LossWeights(source=0.0)))
    for x, y in zip(a["theta"], without["theta"], strict=True):
        torch.testing.assert_close(x, y)


def test_without_minimize_phi_p_changes_in_ascents_only():
    net = make(noise=noise(minimize=False), adversary=None)
    before, phi_m = learned(net.heads), learned(net.mixup_head)
    net.step(tiny_batch())
    assert torch.equal(before, learned(net.heads)) and not torch.equal(
        phi_m, learned(net.mixup_head)
    )
    a, b = gradients(make(noise=noise(minimize=False))), gradients(make())
    for x, y in zip(a["theta"], b["theta"], strict=True):
        torch.testing.assert_close(x, y)


def test_weights_scale_their_terms():
    net = make(weights=LossWeights(source=2.0, perturbed=3.0), mixup=LearnedMixup(weight=0.5))
    logs = net.meta_gradients(tiny_batch(), [5, 6])
    outer = 3 * logs["perturbed_loss"] + 0.5 * logs["mixed_loss"]
    torch.testing.assert_close(logs["outer_loss"], outer)
    torch.testing.assert_close(logs["loss"], outer + 2 * logs["source_loss"])


def test_only_mixed_draws_as_printed_in_the_paper():
    net = make(weights=LossWeights(perturbed=0.0), mixup=LearnedMixup(weight=1.0))
    logs = net.meta_gradients(tiny_batch(), [5, 6])
    assert "perturbed_loss" not in logs and torch.isfinite(logs["mixed_loss"])


def test_reduction_sum_scales_kl_by_the_number_of_features():
    seen = {}
    for reduction in ("mean", "sum"):
        net = make(weights=LossWeights(kl=1.0), reduction=reduction, sites=["conv1"])
        with torch.no_grad():
            for p in net.prior.parameters():
                p.add_(0.1)
            net.ascents_done += 1
        seen[reduction] = float(net.meta_gradients(tiny_batch(), [5, 6])["kl"])
    assert seen["sum"] == pytest.approx(seen["mean"] * 4 * 6 * 6, rel=1e-4)  # conv1's features


def test_mixup_at_a_layer_behind_the_last_site():
    class Named(TinyNet):
        def __init__(self):
            super().__init__()
            self.pooled = torch.nn.Identity()

        def forward(self, x):
            x = torch.nn.functional.avg_pool2d(torch.tanh(self.conv1(x)), 2)
            return self.fc2(
                torch.tanh(self.fc1(self.pooled(torch.tanh(self.conv2(x).mean((2, 3))))))
            )

    net = make(
        Named(),
        mixup=LearnedMixup(weight=1.0, at="pooled", detach=True),
        weights=LossWeights(source=0.0, perturbed=0.0),
    )
    grads = gradients(net)
    assert is_zero([net.model.conv1.weight.grad, net.model.conv2.weight.grad])  # detached there
    assert not is_zero([net.model.fc1.weight.grad]) and not is_zero(grads["phi_m"])


# ---- chunks, seeds, memory, checks


@pytest.mark.parametrize("meta", ["first", "second"])
@pytest.mark.parametrize("head_input", ["clean", "perturbed"])
def test_chunks_give_the_same_gradients(meta, head_input):
    found = []
    for chunk in (None, 1, 2):
        net = make(
            chunk=chunk,
            meta=meta,
            noise=noise(head_input=head_input),
            weights=LossWeights(kl=0.1),
        ).double()
        net.ascents_done += 1
        with torch.no_grad():
            for p in net.prior.parameters():
                p.add_(0.1)
        found.append(gradients(net, tiny_batch(dtype=torch.float64), seeds=(5, 6, 7)))
    for other in found[1:]:
        for name in found[0]:
            for a, b in zip(found[0][name], other[name], strict=True):
                torch.testing.assert_close(a, b)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    def trained(seed):
        net = make(seed=0, warmup=1)
        torch.manual_seed(seed)
        for i in range(6):
            net.step(tiny_batch(seed=i))
        return learned(net)

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


def test_memory_is_constant_over_200_steps():
    net, batch, process = (
        make(
            meta="second",
            draws=4,
            weights=LossWeights(kl=0.1),
            adversary=Adversary(rounds=None, steps=1),
        ),
        tiny_batch(32),
        psutil.Process(),
    )
    for _ in range(30):
        net.step(batch)
    gc.collect()
    tensors, before = (
        sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects()),
        process.memory_info().rss,
    )
    for _ in range(200):
        net.step(batch)
    gc.collect()
    assert sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects()) <= tensors + 5
    assert process.memory_info().rss - before < 20e6


def test_a_pretrained_model_starts_from_its_weights():
    model, batch = trained_tiny()
    before = float(cross_entropy(model(*batch.x), batch.y).detach())
    net = make(model, warmup=0, adversary=None)
    for _ in range(5):
        net.step(batch)
    assert float(cross_entropy(net.predict(batch.x).clone(), batch.y)) < before + 0.2


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"draws": 0}, "draws must be an integer of at least 1"),
        ({"lr": 0}, "lr must be a number above 0"),
        ({"lr": float("nan")}, "lr must be a finite number"),
        ({"meta": "third"}, "meta must be one of first, second, None, not 'third'"),
        ({"reduction": "max"}, "reduction must be one of mean, sum"),
        (
            {"weights": LossWeights(perturbed=0.0), "mixup": None},
            "weights.perturbed is 0 and mixup is None",
        ),
        ({"sites": []}, "needs at least one site"),
        ({"sites": ["conv1", "conv1"]}, "named twice"),
        (
            {"mixup": LearnedMixup(at="nowhere")},
            'no mixup.at layer "nowhere"; the model has: conv1',
        ),
    ],
)
def test_constructor_names_the_wrong_setting(settings, text):
    with pytest.raises(UnseenError, match=text):
        make(**settings)


def test_mixup_before_the_last_site_raises():
    net = make(mixup=LearnedMixup(at="conv1"), sites=["conv2"])
    with pytest.raises(
        UnseenError, match=r'mixup\.at "conv1" is reached before the last site "conv2"'
    ):
        net.step(tiny_batch())


@pytest.mark.parametrize(
    "y, text",
    [
        (torch.tensor([0, 1, 2, 3]), "labels run from 0 to 3; a model with 3 outputs takes 0 to 2"),
        (torch.tensor([0, -1, 2, 1]), "labels run from -1"),
        (torch.tensor([0.0, 1.0, 2.0, 1.0]), "labels must be class indices"),
        (torch.tensor([[0], [1], [2], [1]]), r"labels have shape \(4, 1\)"),
        (torch.full((4,), -100), "every label of this batch is the ignored one"),
    ],
)
def test_step_rejects_labels_that_do_not_fit(y, text):
    for settings in ({"warmup": 5}, {"warmup": 0}, {"warmup": 0, "adversary": None}):
        with pytest.raises(UnseenError, match=text):
            make(**settings).step(Batch(tiny_batch().x, y))


@pytest.mark.parametrize("name", UncertaintyGuided.presets)
def test_every_preset_trains(name):
    settings = construct_settings(
        UncertaintyGuided.settings_of(), UncertaintyGuided.presets[name], name, "uncertainty_guided"
    )
    make(**{**settings, "draws": 2}).step(tiny_batch())
