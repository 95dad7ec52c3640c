"""CCSA: pair losses, and alignment of the classes of both domains."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from shifted import accuracy, few, points, start

from unseen.adaptation import adapted_model
from unseen.adaptation.ccsa import alignment_and_separation, pairwise_distance
from unseen.nn.hooks import captured


def test_alignment_and_separation_by_hand():
    source, ys = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([0, 1])
    target, yt = torch.tensor([[0.0, 0.6]]), torch.tensor([0])
    alignment, separation = alignment_and_separation(source, ys, target, yt, margin=1.0)
    assert (
        alignment.item() == pytest.approx(0.36 / 2) and separation.item() == 0
    )  # the other class is beyond the margin
    alignment, separation = alignment_and_separation(
        source, torch.tensor([1, 1]), target, yt, margin=1.0
    )
    assert alignment.item() == 0 and separation.item() == pytest.approx(
        0.4**2 / 2 / 2
    )  # one of two pairs is too near


def test_gradient_is_finite_at_distance_zero():
    a = torch.zeros(2, 3, requires_grad=True)
    pairwise_distance(a, torch.zeros(1, 3)).sum().backward()
    assert a.grad.isfinite().all()


def embedded(model, data):
    x, y = data.tensors
    with torch.no_grad(), captured(model, ("fc2",)) as seen:
        model(x)
    return F.normalize(seen["fc2"]), y


def test_ccsa_learns_target_and_aligns_classes():
    model, source, target = start("points"), points(), few(points(1.5), 5)
    made = {
        weight: adapted_model(
            "ccsa", model, source, target, embedding="fc2", steps=80, lr=0.01, pair_weight=weight
        )
        for weight in (0.0, 0.5)
    }
    assert (
        accuracy(made[0.5], points(1.5, seed=9)) > 0.95 > 0.6 > accuracy(model, points(1.5, seed=9))
    )
    assert accuracy(made[0.5], points(seed=9)) > 0.95
    parts = {
        weight: alignment_and_separation(
            *embedded(net, points(seed=9)), *embedded(net, points(1.5, seed=9)), 1.0
        )
        for weight, net in made.items()
    }
    assert parts[0.5][0] < 0.5 * parts[0.0][0]  # same classes are closer than without the pairs
