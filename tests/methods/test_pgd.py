"""PGD: attack, projection, BatchNorm, resuming."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import nn

from unseen import UnseenError
from unseen.api import Batch
from unseen.functional.losses import cross_entropy
from unseen.methods.erm import ERM
from unseen.methods.jigen import JiGen
from unseen.methods.par import PAR
from unseen.methods.pgd import PGD
from unseen.methods.self_super import SelfSuper
from unseen.nn.attack import attack, input_loss
from unseen.training.checkpoint import restore_training_state, training_state


def image_batch(n: int = 16) -> Batch:
    batch = tiny_batch(n)
    return Batch((torch.sigmoid(batch.x[0]),), batch.y)


def trained_tiny(batch: Batch) -> TinyNet:
    torch.manual_seed(0)
    net = ERM(TinyNet(), lr=0.02)
    for _ in range(40):
        net.step(batch)
    return net.model


# ---- the attack


def test_the_attack_by_hand():
    """On the loss 2 a - 3 b + 0 c every start ends in the same corner, and c stays."""
    x = torch.tensor([[5.0, 5.0, 5.0]])

    def loss_of(inputs):
        return (inputs[0] * torch.tensor([2.0, -3.0, 0.0])).sum()

    torch.manual_seed(0)
    (moved,) = attack(loss_of, (x,), eps=0.5, step=0.25, steps=4)
    assert moved[0, :2].tolist() == [5.5, 4.5]
    torch.manual_seed(0)
    assert moved[0, 2] == x[0, 2] + 0.5 * (2 * torch.rand(1, 3) - 1)[0, 2]


def test_one_step_goes_one_step_from_a_random_start():
    starts = []

    def loss_of(inputs):
        starts.append(inputs[0].detach().clone())
        return inputs[0].sum()

    torch.manual_seed(0)
    x = torch.full((1000,), 9.0)
    (moved,) = attack(loss_of, (x,), eps=0.5, step=0.25, steps=1)
    offsets = starts[0] - x
    assert (
        offsets.min() < -0.49 and offsets.max() > 0.49 and offsets.mean().abs() < 0.03
    )  # uniform over the box
    torch.testing.assert_close(moved, (starts[0] + 0.25).clamp(max=9.5))


def test_the_loss_is_higher_at_the_attacked_point_and_the_box_is_kept():
    batch = image_batch()
    model = trained_tiny(batch)
    net = PGD(model)
    (attacked,) = attack(
        input_loss(net, batch.y), batch.x, net.eps, net.step_size, net.attack_steps
    )
    (noisy,) = attack(lambda x: 0 * x[0].sum(), batch.x, net.eps, net.step_size, net.attack_steps)
    with torch.no_grad():
        clean, worst, random = (
            float(cross_entropy(model(x), batch.y)) for x in (batch.x[0], attacked, noisy)
        )
    assert worst > clean + 0.05 and worst > random + 0.05
    assert (attacked - batch.x[0]).abs().max() <= net.eps + 1e-6
    assert not attacked.requires_grad


def test_images_stay_in_their_range_and_other_inputs_have_none():
    def up(x):
        return x[0].sum()

    (white,) = attack(up, (torch.tensor([0.0, 0.99, 1.0]),), eps=0.1, step=0.1, steps=3)
    torch.testing.assert_close(white, torch.tensor([0.1, 1.0, 1.0]))
    (features,) = attack(up, (torch.tensor([-1.0, 0.99, 1.0]),), eps=0.1, step=0.1, steps=3)
    torch.testing.assert_close(features, torch.tensor([-0.9, 1.09, 1.1]))


def test_only_float_inputs_move():
    words, weights = torch.tensor([[1, 2]]), torch.tensor([[0.5, -2.0]])
    moved = attack(lambda x: (x[0] * x[1]).sum(), (words, weights), eps=0.5, step=0.5, steps=2)
    assert moved[0] is words and moved[1].tolist() == [[1.0, -1.5]]
    with pytest.raises(
        UnseenError, match="the adversary perturbs float inputs; this model is given int64 only"
    ):
        attack(lambda x: x[0].sum(), (words,), eps=0.5, step=0.5, steps=2)


# ---- the method


def test_batchnorm_learns_from_one_pass_a_step_and_the_attack_leaves_no_trace():
    batch = image_batch()
    net = PGD(TinyNet(norm=True), attack_steps=3).train()
    before = copy.deepcopy(net.model.state_dict())
    attack(input_loss(net, batch.y), batch.x, net.eps, net.step_size, net.attack_steps)
    assert all(torch.equal(before[name], value) for name, value in net.model.state_dict().items())
    assert all(p.grad is None for p in net.model.parameters())
    net.step(batch)
    assert int(net.model.norm.num_batches_tracked) == 1
    assert not torch.equal(before["norm.running_mean"], net.model.norm.running_mean)


def test_a_step_descends_the_loss_at_the_attacked_point():
    batch, net, plain = image_batch(), PGD(TinyNet(), lr=0.01), TinyNet()
    plain.load_state_dict(net.model.state_dict())
    optimizer = torch.optim.Adam(plain.parameters(), 0.01)
    torch.manual_seed(3)
    attacked = attack(input_loss(net, batch.y), batch.x, net.eps, net.step_size, net.attack_steps)
    cross_entropy(plain(*attacked), batch.y).backward()
    optimizer.step()
    torch.manual_seed(3)
    net.step(batch)
    for a, b in zip(net.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert int(net.steps_done) == 1


def test_training_against_the_attack_makes_the_attack_weaker():
    batch = image_batch(32)
    losses = {}
    for kind, settings in ((ERM, {}), (PGD, {"eps": 0.1, "step_size": 0.05, "attack_steps": 3})):
        torch.manual_seed(0)
        net = kind(TinyNet(), lr=0.02, **settings)
        for _ in range(60):
            net.step(batch)
        judge = PGD(net.model)
        torch.manual_seed(1)
        (attacked,) = attack(input_loss(judge, batch.y), batch.x, 0.1, 0.02, 20)
        losses[kind] = float(cross_entropy(net.model(attacked), batch.y).detach())
    assert losses[PGD] < losses[ERM] - 0.1


def test_float_vectors_work():
    torch.manual_seed(0)
    batch = Batch((torch.randn(8, 20),), torch.randint(3, (8,)))
    net = PGD(nn.Sequential(nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 3)))
    assert torch.isfinite(net.step(batch)["loss"])


@pytest.mark.parametrize("settings", [{"eps": 0.0}, {"step_size": -1.0}, {"attack_steps": 0}])
def test_settings_are_checked(settings):
    with pytest.raises(UnseenError, match=next(iter(settings))):
        PGD(TinyNet(), **settings)


def test_wrong_labels_are_named_before_the_attack():
    batch = image_batch()
    with pytest.raises(UnseenError, match="labels run from"):
        PGD(TinyNet()).step(Batch(batch.x, batch.y + 7))


# ---- going on with the same bits, for all four


class TinyDropout(TinyNet):
    """TinyNet that draws random numbers of its own."""

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.3, self.training))


@pytest.mark.parametrize("kind", [PGD, PAR, SelfSuper, JiGen], ids=lambda k: k.name)
def test_resumed_run_has_equal_bits(kind):
    def make(seed):
        torch.manual_seed(seed)
        own = {"warmup": 3} if kind is PAR else {}
        return kind(
            TinyDropout(norm=True), sites=["conv1"], embedding="fc1", lr=0.01, **own
        ).train()

    batches = [
        Batch((torch.sigmoid(tiny_batch(6, seed=i).x[0]),), tiny_batch(6, seed=i).y)
        for i in range(5)
    ]
    net = make(0)
    for batch in batches[:2]:
        net.step(batch)
    state = {name: t.clone() for name, t in training_state(net).items()}
    straight = [net.step(batch) for batch in batches[2:]]
    other = make(1)
    restore_training_state(other, state, Path("state"))
    assert int(other.steps_done) == 2
    resumed = [other.step(batch) for batch in batches[2:]]
    assert [{n: float(v) for n, v in logs.items()} for logs in straight] == [
        {n: float(v) for n, v in logs.items()} for logs in resumed
    ]
    assert all(
        torch.equal(value, other.state_dict()[name]) for name, value in net.state_dict().items()
    )
    assert int(net.steps_done) == int(other.steps_done) == 5
    assert all(not v.requires_grad for logs in resumed for v in logs.values())
