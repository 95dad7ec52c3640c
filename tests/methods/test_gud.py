"""GUD: ascent, pool, rounds, mixed batches."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiny import TinyNet, tiny_batch
from torch import nn

from unseen import ERM, UnseenError
from unseen.api import Batch
from unseen.functional.losses import cross_entropy
from unseen.methods.gud import GUD, ascend
from unseen.nn.objectives import CrossEntropy
from unseen.training.checkpoint import restore_training_state, training_state


def make(model=None, seed=0, **settings):
    torch.manual_seed(seed)
    chosen = {
        "embedding": "fc1",
        "rounds": 2,
        "every": 3,
        "capacity": 6,
        "ascent_steps": 3,
        **settings,
    }
    return GUD(model or TinyNet(), **chosen).train()


def trained_tiny(norm=False):
    torch.manual_seed(0)
    model, batch = TinyNet(norm=norm), tiny_batch(16)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(25):
        optimizer.zero_grad()
        cross_entropy(model(*batch.x), batch.y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model, batch


def embedding_of(model, x):
    h = F.avg_pool2d(torch.tanh(model.norm(model.conv1(x))), 2)
    return model.fc1(torch.tanh(model.conv2(h).mean((2, 3))))


# ---- the climb


def test_ascend_takes_plain_gradient_steps_sample_by_sample():
    x = torch.tensor([[0.0], [10.0]])
    up = ascend(lambda x: -(x[:, 0] - 3).square(), x, steps=2, rate=0.25)
    torch.testing.assert_close(up, torch.tensor([[2.25], [4.75]]))  # half the way to 3, twice
    assert not up.requires_grad and torch.equal(x, torch.tensor([[0.0], [10.0]]))


def test_the_loss_of_a_sample_is_the_mean_over_its_labels_that_count():
    torch.manual_seed(0)
    logits, y = torch.randn(3, 4, 5), torch.randint(4, (3, 5))
    y[0, 1:], y[2, 2] = 255, 255
    slow = [F.cross_entropy(logits[i].T[y[i] != 255], y[i][y[i] != 255]) for i in range(3)]
    torch.testing.assert_close(CrossEntropy(255).per_sample(logits, y), torch.stack(slow))


@pytest.mark.parametrize("norm", [False, True])
def test_ascent_raises_objective_and_changes_only_samples(norm):
    model, batch = trained_tiny(norm)
    net = make(model, ascent_steps=40, ascent_lr=0.5)
    before = copy.deepcopy(model.state_dict())
    x = net.adversarial(batch)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters()) and all(
        m.training for m in model.modules()
    )
    model.eval()
    with torch.no_grad():
        z0, z = embedding_of(model, batch.x[0]), embedding_of(model, x)
        gain = F.cross_entropy(model(x), batch.y, reduction="none") - (z - z0).square().mean(1)
        start = F.cross_entropy(model(*batch.x), batch.y, reduction="none")
    assert (gain > start).all() and gain.max() > start.max() + 0.1


def test_gamma_bounds_the_embedding_distance():
    model, batch = trained_tiny()
    ways = []
    for gamma in (0.0, 1.0, 30.0):
        x = make(model, ascent_steps=80, ascent_lr=0.05, gamma=gamma).adversarial(batch)
        ways.append(
            float(
                (embedding_of(model, x) - embedding_of(model, batch.x[0])).square().mean().detach()
            )
        )
    assert ways[0] > 2 * ways[1] > 4 * ways[2] > 0


def test_ascent_is_independent_of_the_batch():
    model, batch = trained_tiny(norm=True)
    net = make(nn.Sequential(model, nn.Dropout()), embedding="0.fc1")
    alone = net.adversarial(Batch((batch.x[0][:1],), batch.y[:1]))
    torch.testing.assert_close(net.adversarial(batch)[:1], alone)


# ---- rounds and pool


def test_the_pool_grows_by_the_capacity_a_round_and_keeps_each_samples_label():
    net = make(ascent_lr=1e-12)  # samples stay where they are, so that they can be told
    sizes, known = [], {}
    for i in range(10):
        batch = tiny_batch(4, seed=i)
        known |= {
            tuple(x.flatten().tolist()): int(y) for x, y in zip(batch.x[0], batch.y, strict=True)
        }
        logs = net.step(batch)
        sizes.append(len(net.pool))
        assert ("transport" in logs) == (i in (3, 4, 6, 7))
    assert sizes == [0, 0, 0, 4, 6, 6, 10, 12, 12, 12]  # from steps 3 and 6 on, 6 each
    assert [known[tuple(x.flatten().tolist())] for x in net.pool.x] == net.pool.y.tolist()
    assert (
        net.pool.x.is_contiguous()
    )  # as a checkpoint gives it back, though the samples came channels last


def test_before_first_round_equals_erm():
    net, plain = make(), ERM(TinyNet())
    plain.model.load_state_dict(net.model.state_dict())
    for i in range(3):
        net.step(tiny_batch(seed=i))
        plain.step(tiny_batch(seed=i))
    assert all(
        torch.equal(a, b)
        for a, b in zip(net.model.parameters(), plain.model.parameters(), strict=True)
    )


def spied(net):
    """The batches that updates are made of."""
    seen, plain = [], net.source_loss
    net.source_loss = lambda batch: seen.append(batch) or plain(batch)
    return seen


@pytest.mark.parametrize("domains, from_source", [(0, 12), (1, 6), (2, 4)])
def test_every_domain_gives_an_equal_share_of_an_update_of_the_same_size(domains, from_source):
    net = make(capacity=5, every=100)
    for k in range(domains):
        net.pool.add(torch.full((5, 2, 8, 8), 100.0 * (k + 1)), torch.full((5,), k))
    net.pool.add(
        torch.full((2, 2, 8, 8), 900.0), torch.zeros(2).long()
    )  # a domain under way is not drawn from
    seen, source, drawn = spied(net), tiny_batch(12), set()
    for _ in range(30):
        net.step(source)
        x, y = seen[-1].x[0], seen[-1].y
        rows = [i for i in range(12) if float(x[i, 0, 0, 0]) < 50]
        assert len(x) == 12 and len(rows) == from_source
        for i in set(range(12)) - set(rows):
            assert float(x[i].mean()) == 100.0 * (int(y[i]) + 1)
            drawn.add(int(y[i]))
        known = {
            tuple(a.flatten().tolist()): int(b) for a, b in zip(source.x[0], source.y, strict=True)
        }
        assert all(known[tuple(x[i].flatten().tolist())] == int(y[i]) for i in rows)
    assert drawn == set(range(domains))


def test_a_later_round_climbs_from_the_source_and_from_earlier_domains():
    net = make(ascent_lr=1e-12, capacity=8)
    net.pool.add(torch.full((8, 2, 8, 8), 100.0), torch.zeros(8).long())
    net.steps_done += 6
    net.step(tiny_batch(8))
    second = net.pool.x[8:, 0, 0, 0]
    assert len(second) == 8 and int((second > 50).sum()) == 4


def test_no_rounds_is_erm():
    net, plain = make(rounds=0, every=1), ERM(TinyNet())
    plain.model.load_state_dict(net.model.state_dict())
    for i in range(4):
        net.step(tiny_batch(seed=i))
        plain.step(tiny_batch(seed=i))
    assert all(
        torch.equal(a, b)
        for a, b in zip(net.model.parameters(), plain.model.parameters(), strict=True)
    )


# ---- the contract


@pytest.mark.parametrize(
    "stop", [2, 4, 7, 9]
)  # before the first round, within each, after the last
def test_resumed_run_has_equal_bits(stop):
    def going(net, first, last):
        for i in range(first, last):
            net.step(tiny_batch(4, seed=i))
        return net

    whole = going(make(TinyNet(norm=True)), 0, stop)
    state = {name: t.contiguous().clone() for name, t in training_state(whole).items()}
    going(whole, stop, 12)
    resumed = make(TinyNet(norm=True), seed=5)
    restore_training_state(resumed, state, Path("state"))
    going(resumed, stop, 12)
    for name, t in whole.state_dict().items():
        assert torch.equal(t, resumed.state_dict()[name]), name
    assert torch.equal(whole.pool.x, resumed.pool.x) and torch.equal(whole.pool.y, resumed.pool.y)


def test_the_pool_is_no_part_of_a_finished_model():
    net = make()
    for i in range(8):
        net.step(tiny_batch(seed=i))
    assert len(net.pool) and net.state_dict().keys() == ERM(TinyNet()).state_dict().keys()


def test_vectors_work_and_are_not_clamped():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    net = make(model, embedding="0", ascent_lr=1.0)
    for i in range(8):
        torch.manual_seed(i)
        logs = net.step(Batch((torch.ones(4, 5),), torch.randint(3, (4,))))
    assert torch.isfinite(logs["loss"]) and net.pool.x.shape == (12, 5) and net.pool.x.max() > 1


def test_inputs_that_cannot_climb_are_refused():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    with pytest.raises(
        UnseenError,
        match=r"gud perturbs its input: expected one float input .* got \(4, 2\) of int64",
    ):
        make(model, embedding="1").step(Batch((torch.zeros(4, 2).long(),), torch.zeros(4).long()))


def test_bad_labels_are_named_in_a_round_too():
    with pytest.raises(UnseenError, match="labels run from 0 to 7"):
        net = make(every=1)
        net.step(tiny_batch())
        net.step(Batch(tiny_batch().x, torch.tensor([0, 1, 2, 7])))


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"rounds": -1}, "rounds must be an integer of at least 0"),
        ({"every": 0}, "every must be an integer of at least 1"),
        ({"capacity": 0}, "capacity must be an integer of at least 1"),
        ({"ascent_steps": 0}, "ascent_steps must be an integer of at least 1"),
        ({"ascent_lr": 0.0}, "ascent_lr must be a number above 0"),
        ({"gamma": -1.0}, "gamma must be a finite number of at least 0"),
    ],
)
def test_bad_settings_are_named(settings, text):
    with pytest.raises(UnseenError, match=text):
        make(**settings)
