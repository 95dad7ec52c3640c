"""M-ADA: auto-encoder, relaxation, meta step."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import nn

from unseen import ERM, UnseenError
from unseen.api import Batch
from unseen.functional.losses import cross_entropy
from unseen.methods.gud import GUD
from unseen.methods.m_ada import MADA, AutoEncoder, flatten, mmd
from unseen.training.checkpoint import restore_training_state, training_state


def make(model=None, seed=0, **settings):
    torch.manual_seed(seed)
    chosen = {
        "embedding": "fc1",
        "rounds": 2,
        "every": 3,
        "capacity": 6,
        "ascent_steps": 3,
        "wae_steps": 1,
        **settings,
    }
    return MADA(model or TinyNet(), **chosen).train()


def low_rank(n=64, features=30, seed=0):
    """Vectors that four numbers tell."""
    torch.manual_seed(seed)
    return torch.randn(n, 4) @ torch.randn(4, features)


# ---- the auto-encoder


def test_mmd_is_the_mean_kernel_within_less_that_between():
    torch.manual_seed(0)
    a, b = torch.randn(3, 2), torch.randn(4, 2)

    def kernel(p, q):
        return 4 / (4 + sum(float(u - v) ** 2 for u, v in zip(p, q, strict=True)))

    def mean(s, t):
        return sum(kernel(p, q) for p in s for q in t) / (len(s) * len(t))

    assert float(mmd(a, b)) == pytest.approx(mean(a, a) + mean(b, b) - 2 * mean(a, b), abs=1e-6)
    assert float(mmd(a, a)) == pytest.approx(0, abs=1e-6) and mmd(a, b + 5) > mmd(a, b)


def test_autoencoder_reconstructs_and_matches_prior():
    x = low_rank()
    v, spread = AutoEncoder(x), (x - x.mean(0)).square().sum(1).mean()
    errors = [float(v.learn(x)) for _ in range(300)]
    assert errors[-1] < 0.3 * float(spread) < errors[0]
    with torch.no_grad():
        codes, fresh = v.encoder(x), AutoEncoder(x).encoder(x)
        prior = torch.randn(500, codes.shape[1])
        assert mmd(codes, prior) < 0.5 * mmd(fresh, prior)
        assert (
            v(x).min() >= x.min() and v(x).max() <= x.max()
        )  # V answers within the range it was made for
        assert v(1000 * x).abs().max() <= x.abs().max()


def test_flatten_averages_large_images_only():
    assert flatten(torch.rand(2, 3, 50, 20)).shape == (2, 3 * 32 * 20)
    image, block = torch.rand(2, 3, 32, 32), torch.ones(1, 1, 2, 2)
    torch.testing.assert_close(flatten(torch.kron(image, block)), image.flatten(1))
    assert torch.equal(flatten(image), image.flatten(1))
    assert flatten(torch.rand(2, 40, 50)).shape == (2, 2000)


def test_autoencoder_trains_on_source_then_newest_domain():
    net, seen, kept = make(), [], AutoEncoder.learn

    def learn(self, x):
        seen.append(x.clone())
        return kept(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AutoEncoder, "learn", learn)
        for i in range(10):
            seen.clear()
            weights = (
                None
                if net.autoencoder is None
                else copy.deepcopy(net.autoencoder.parts.state_dict())
            )
            net.step(tiny_batch(4, seed=i))
            if i < 3:
                assert len(seen) == 1 and torch.equal(seen[0], tiny_batch(4, seed=i).x[0])
            elif i in (3, 4, 6, 7):
                assert not seen and all(
                    torch.equal(weights[n], t)
                    for n, t in net.autoencoder.parts.state_dict().items()
                )
            elif i == 5:
                pool = {tuple(x.flatten().tolist()) for x in net.pool.x[:6]}
                assert len(seen) == 1 and all(tuple(x.flatten().tolist()) in pool for x in seen[0])
            else:
                assert not seen and net.autoencoder is None
    assert not any(name.startswith("wae") for name in net.extra_state())


def test_with_two_domains_v_learns_the_newer_and_the_third_starts_from_all():
    net, seen, kept = make(rounds=3, wae_steps=8, ascent_lr=1e-12), [], AutoEncoder.learn
    for value in (100.0, 200.0):
        net.pool.add(torch.full((6, 2, 8, 8), value), torch.zeros(6).long())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AutoEncoder, "learn", lambda self, x: seen.append(x) or kept(self, x))
        net.step(tiny_batch(6))
    assert len(seen) == 8 and all((x == 200.0).all() for x in seen)
    net.steps_done += 9
    net.step(tiny_batch(6))
    third = net.pool.x[12:, 0, 0, 0]
    assert (
        len(third) == 6
        and int((third < 50).sum()) == 2
        and bool((third == 100.0).any() | (third == 200.0).any())
    )


# ---- the relaxation


@pytest.mark.parametrize("relaxation", ["error", "shift"])
def test_the_relaxation_drives_samples_further_from_the_source(relaxation):
    x, ways, errors = low_rank(64, 128).view(64, 2, 8, 8), [], []
    for beta in (0.0, 0.3, 0.65):
        net = make(
            every=40, relaxation=relaxation, beta=beta, ascent_steps=25, wae_steps=5, lr=1e-3
        )
        for i in range(40):
            rows = torch.arange(8) + 8 * (i % 7)
            net.step(Batch((x[rows],), rows % 3))
        start = Batch((x[56:],), torch.arange(8) % 3)
        far, v = net.adversarial(start), net.autoencoder
        ways.append(float((far - start.x[0]).flatten(1).norm(dim=1).mean()))
        with torch.no_grad():
            to = flatten(far) if relaxation == "error" else v(start.x[0])
            errors.append(float((v(far) - to).square().sum(1).mean()))
    assert 1.5 * ways[0] < ways[2] and ways[0] < ways[1] < ways[2]
    assert 3 * errors[0] < errors[1] < errors[2] / 3


def test_without_relaxation_ascent_equals_gud():
    net = make(beta=0.0)
    for i in range(2):
        net.step(tiny_batch(seed=i))
    gud = GUD(copy.deepcopy(net.model), embedding="fc1", ascent_steps=3)
    torch.testing.assert_close(
        net.adversarial(tiny_batch(seed=9)), gud.adversarial(tiny_batch(seed=9))
    )


# ---- the meta step


def meta_gradient(order, inner_lr=0.3):
    net = make(TinyNet().double(), order=order, inner_lr=inner_lr)
    source, domains = (
        tiny_batch(5, seed=1, dtype=torch.float64),
        tiny_batch(5, seed=2, dtype=torch.float64),
    )
    logs = net.meta_gradients(source, domains)
    return net, source, domains, logs, {name: p.grad for name, p in net.model.named_parameters()}


def outer_loss(model, source, domains, eta):
    """L(theta; S) + L(theta - eta grad L(theta; S); S+), spelled out."""
    theta = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    loss = cross_entropy(torch.func.functional_call(model, theta, source.x), source.y)
    grads = torch.autograd.grad(loss, list(theta.values()))
    fast = {name: p - eta * g for (name, p), g in zip(theta.items(), grads, strict=True)}
    return float(
        loss.detach()
        + cross_entropy(torch.func.functional_call(model, fast, domains.x), domains.y).detach()
    )


def test_the_second_order_gradient_is_that_of_finite_differences():
    net, source, domains, logs, grads = meta_gradient(order=2)
    assert float(logs["loss"]) == pytest.approx(
        outer_loss(net.model, source, domains, 0.3), abs=1e-12
    )
    assert float(logs["loss"]) == pytest.approx(float(logs["source_loss"] + logs["meta_loss"]))
    step = 1e-5
    for name, p in net.model.named_parameters():
        for place in (0, p.numel() // 2, p.numel() - 1):
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    p.view(-1)[place] += sign * step
                values.append(outer_loss(net.model, source, domains, 0.3))
                with torch.no_grad():
                    p.view(-1)[place] -= sign * step
            found = float(grads[name].reshape(-1)[place])
            assert found == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-8), name


def test_the_first_order_gradient_leaves_the_curvature_out():
    net, source, domains, _, first = meta_gradient(order=1)
    second = meta_gradient(order=2)[-1]
    assert max(float((first[n] - second[n]).abs().max()) for n in first) > 1e-3
    theta = dict(net.model.named_parameters())
    at_source = torch.autograd.grad(
        cross_entropy(net.model(*source.x), source.y), list(theta.values())
    )
    fast = {
        n: (p - 0.3 * g).detach().requires_grad_()
        for (n, p), g in zip(theta.items(), at_source, strict=True)
    }
    loss = cross_entropy(torch.func.functional_call(net.model, fast, domains.x), domains.y)
    for name, g, s in zip(
        theta, torch.autograd.grad(loss, list(fast.values())), at_source, strict=True
    ):
        torch.testing.assert_close(first[name], g + s)


def test_the_inner_step_is_as_long_as_the_learning_rate_unless_said_otherwise():
    grads = [make(TinyNet(), lr=0.2, inner_lr=inner) for inner in (None, 0.2, 0.0)]
    for net in grads:
        net.meta_gradients(tiny_batch(seed=1), tiny_batch(seed=2))
    same, said, none = ([p.grad for p in net.model.parameters()] for net in grads)
    assert all(torch.equal(a, b) for a, b in zip(same, said, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(same, none, strict=True))


def test_an_update_learns_from_the_source_and_from_all_whole_domains():
    net, seen = make(capacity=6), []
    net.pool.add(torch.full((6, 2, 8, 8), 100.0), torch.zeros(6).long())
    net.pool.add(torch.full((6, 2, 8, 8), 200.0), torch.ones(6).long())
    plain = net.meta_gradients
    net.meta_gradients = lambda source, domains: (
        seen.append((source, domains)) or plain(source, domains)
    )
    for i in range(10):
        net.step(tiny_batch(8, seed=i))
        source, domains = seen[-1]
        assert torch.equal(source.x[0], tiny_batch(8, seed=i).x[0]) and len(domains.y) == 8
        assert torch.equal(domains.x[0][:, 0, 0, 0], 100.0 * (domains.y + 1))
    assert {int(y) for _, domains in seen for y in domains.y} == {0, 1}


def test_batch_norm_learns_from_the_source_only():
    net, plain = make(TinyNet(norm=True), rounds=1, lr=1e-12), ERM(TinyNet(norm=True), lr=1e-12)
    plain.model.load_state_dict(net.model.state_dict())
    for i in range(8):
        net.step(tiny_batch(6, seed=i))
        plain.step(tiny_batch(6, seed=i))
    assert net.pool.domains == 1 and int(net.model.norm.num_batches_tracked) == 8
    torch.testing.assert_close(net.model.norm.running_var, plain.model.norm.running_var)


# ---- the contract


@pytest.mark.parametrize(
    "stop", [2, 5, 7, 9, 11]
)  # V learns, in round 1, V learns anew, in round 2, after
def test_resumed_run_has_equal_bits(stop):
    def going(net, first, last):
        for i in range(first, last):
            net.step(tiny_batch(4, seed=i))
        return net

    def fresh(seed):
        return make(TinyNet(norm=True), seed=seed, every=4, order=2, wae_steps=2)

    whole = going(fresh(0), 0, stop)
    state = {name: t.contiguous().clone() for name, t in training_state(whole).items()}
    assert (stop == 11) != any(name.startswith("memory/wae/adam") for name in state)
    going(whole, stop, 13)
    resumed = fresh(5)
    restore_training_state(resumed, state, Path("state"))
    going(resumed, stop, 13)
    for name, t in whole.state_dict().items():
        assert torch.equal(t, resumed.state_dict()[name]), name
    assert whole.pool.domains == 2 and torch.equal(whole.pool.x, resumed.pool.x)


def test_neither_pool_nor_v_is_part_of_a_finished_model():
    net = make()
    net.step(tiny_batch())
    assert (
        net.autoencoder is not None
        and net.state_dict().keys() == ERM(TinyNet()).state_dict().keys()
    )
    assert len(list(net.parameters())) == len(list(net.model.parameters()))


def test_vectors_work():
    model = nn.Sequential(nn.Linear(30, 6), nn.Tanh(), nn.Linear(6, 3))
    net, x = make(model, embedding="0"), low_rank()
    for i in range(10):
        rows = torch.arange(4) + 4 * i
        logs = net.step(Batch((x[rows],), rows % 3))
    assert torch.isfinite(logs["meta_loss"]) and net.pool.x.shape == (12, 30)


def test_segmentation_labels_work():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))
    net = make(model, embedding="0", ignore_label=255)
    y = torch.randint(3, (4, 8, 8))
    y[:, :2] = 255
    for i in range(8):
        logs = net.step(Batch(tiny_batch(4, seed=i).x, y))
    assert torch.isfinite(logs["loss"]) and net.pool.y.shape == (12, 8, 8)


def test_settings_are_its_own_and_guds():
    known = MADA.settings_of()
    assert known.keys() == GUD.settings_of().keys() | {
        "beta",
        "relaxation",
        "order",
        "inner_lr",
        "wae_steps",
    }
    assert known["ascent_steps"].default == 25 and GUD.settings_of()["ascent_steps"].default == 15
    for name, preset in MADA.presets.items():
        assert preset.keys() <= known.keys(), name
        assert make(**preset).settings().items() >= preset.items()


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"beta": -1.0}, "beta must be a finite number of at least 0"),
        ({"relaxation": "none"}, "relaxation must be one of error, shift"),
        ({"order": 3}, "order must be one of 1, 2"),
        ({"inner_lr": -0.1}, "inner_lr must be a finite number of at least 0"),
        ({"wae_steps": 0}, "wae_steps must be an integer of at least 1"),
        ({"gamma": -1.0}, "gamma must be a finite number of at least 0"),
    ],
)
def test_bad_settings_are_named(settings, text):
    with pytest.raises(UnseenError, match=text):
        make(**settings)


def test_integer_inputs_are_refused():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    with pytest.raises(UnseenError, match="m_ada perturbs its input: expected one float input"):
        make(model, embedding="1").step(Batch((torch.zeros(4, 2).long(),), torch.zeros(4).long()))


def test_a_method_that_was_saved_before_its_first_round_trains_on(tmp_path):
    from unseen.training.checkpoint import load_method

    batch = tiny_batch(8)
    net = MADA(TinyNet(), embedding="fc1", every=2, rounds=1, capacity=8, ascent_steps=1)
    for _ in range(2):
        net.step(batch)
    net.save(tmp_path / "saved")
    again = load_method(tmp_path / "saved", TinyNet()).train()
    for _ in range(3):
        assert torch.isfinite(again.step(batch)["loss"])
    assert again.pool.domains == 1
