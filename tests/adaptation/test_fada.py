"""FADA: groups of pairs, confusion, phases."""

from __future__ import annotations

import math

import pytest
import torch
from shifted import accuracy, few, points, start

from unseen import UnseenError
from unseen.adaptation import adapted_model
from unseen.adaptation.fada import FADA, confusion_loss, confusion_target, draw_pairs
from unseen.api import Batch


def test_pairs_are_what_their_group_says():
    ys, yt = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 2, 1])
    y, of_target = torch.cat([ys, yt]), torch.arange(8) >= 5
    pairs = draw_pairs(ys, yt, 100)
    for first, second, group in zip(*(t.tolist() for t in pairs), strict=True):
        assert not of_target[first] and of_target[second] == (group in (1, 3))
        assert (y[first] == y[second]) == (group in (0, 1)) and first != second
    assert pairs.group.bincount().tolist() == [2, 5, 8, 10]  # all there are
    assert draw_pairs(ys, yt, 3).group.bincount().tolist() == [2, 3, 3, 3]


def test_the_confusion_is_that_of_pairs_across_the_domains_with_those_of_the_source():
    assert confusion_target(torch.tensor([0, 1, 2, 3])).tolist() == [0, 0, 2, 2]
    sure = torch.tensor([[9.0, 0, 0, 0], [0, math.log(7.0), 0, 0]])
    assert confusion_loss(sure, torch.tensor([0, 1])).item() == pytest.approx(
        math.log(10)
    )  # p(G1) of the G2 pair is 1 in 10
    assert confusion_loss(sure, torch.tensor([0, 2])).item() == 0


def test_model_step_confuses_the_discriminator():
    torch.manual_seed(0)
    net = FADA(
        start("points"),
        embedding="fc2",
        lr=0.003,
        confusion_weight=5.0,
        discriminator_steps=80,
        discriminator_lr=0.01,
    )
    source, target = (
        Batch((data.tensors[0][:64],), data.tensors[1][:64]) for data in (points(), points(1.5))
    )
    pairs = draw_pairs(source.y, target.y, 64)

    def taken_for_source() -> float:
        with torch.no_grad():
            z, _ = net._embed((torch.cat([source.x[0], target.x[0]]),))
            chance = net.scores(z, pairs).softmax(1)
        across = (pairs.group == 1) | (pairs.group == 3)
        return float((chance[across, 0] + chance[across, 2]).mean())

    untaught = taken_for_source()
    for done in range(80):
        net.step(source, target, done)
    assert taken_for_source() < 0.15 < untaught  # the discriminator has learned the domains
    kept = {k: v.clone() for k, v in net.discriminator.state_dict().items()}
    told = taken_for_source()
    for _ in range(30):
        z, logits = net._embed((torch.cat([source.x[0], target.x[0]]),))
        net.model_step(z, logits, source.y, target.y, pairs)
    assert taken_for_source() > told + 0.3
    assert all(torch.equal(v, kept[k]) for k, v in net.discriminator.state_dict().items())


def test_model_is_unchanged_while_discriminator_trains_alone():
    model = start("points")
    net = FADA(model, embedding="fc2", steps=6, discriminator_steps=5)
    before, source, target = (
        net.model.fc1.weight.clone(),
        Batch.of(points()[:20]),
        Batch.of(points(1.5)[:20]),
    )
    for done in range(5):
        net.step(source, target, done)
    assert torch.equal(net.model.fc1.weight, before)
    net.step(source, target, 5)
    assert not torch.equal(net.model.fc1.weight, before)


def test_too_few_steps_are_refused():
    with pytest.raises(
        UnseenError, match=r"discriminator_steps=5 first: steps must be greater, not 5"
    ):
        adapted_model(
            "fada",
            start("points"),
            points(),
            few(points(1.5), 3),
            embedding="fc2",
            steps=5,
            discriminator_steps=5,
        )


def test_fada_learns_target_and_keeps_source():
    model, target = start("points"), few(points(1.5), 5)
    made = adapted_model(
        "fada", model, points(), target, embedding="fc2", steps=110, discriminator_steps=30, lr=0.01
    )
    assert accuracy(made, points(1.5, seed=9)) > 0.95 > 0.6 > accuracy(model, points(1.5, seed=9))
    assert accuracy(made, points(seed=9)) > 0.95
