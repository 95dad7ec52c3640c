"""VADA and DIRT-T: entropy, VAT, phases, teacher."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from shifted import accuracy, points, start

from unseen.adaptation import adapted_model
from unseen.adaptation.collapse import describe_collapse, effective_classes
from unseen.adaptation.dirt_t import (
    DirtT,
    conditional_entropy,
    divergence,
    unit_length,
    worst_direction,
)
from unseen.api import Batch
from unseen.errors import UnseenError


def test_entropy_and_divergence_by_hand():
    even, quarter = torch.zeros(1, 2), torch.tensor([[0.0, math.log(3.0)]])  # 1/2, 1/2 and 1/4, 3/4
    assert conditional_entropy(even).item() == pytest.approx(math.log(2))
    assert divergence(even, quarter).item() == pytest.approx(
        0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    )
    assert divergence(quarter, quarter).item() == pytest.approx(0, abs=1e-7)
    for size in (1.0, 1e-30):
        assert unit_length(torch.tensor([[3.0, 4.0]]) * size).tolist() == [
            [pytest.approx(0.6), pytest.approx(0.8)]
        ]
    assert unit_length(torch.zeros(1, 2)).tolist() == [[0, 0]]


def test_the_worst_direction_changes_predictions_more_than_random_ones():
    torch.manual_seed(0)
    model = start("points")
    x = points(seed=3).tensors[0]
    with torch.no_grad():
        logits = model(x)
    worst = worst_direction(model, x, logits)
    assert worst.flatten(1).norm(dim=1).allclose(torch.ones(len(x)), atol=1e-4)
    with torch.no_grad():
        found = divergence(logits, model(x + 0.5 * worst))
        by_chance = [
            divergence(logits, model(x + 0.5 * unit_length(torch.randn(x.shape))))
            for _ in range(10)
        ]
    assert found > 1.2 * max(by_chance)


def test_dirt_t_learns_unlabelled_target():
    model, source, target = start("points"), points(), points(0.9)
    settings = {"embedding": "fc2", "steps": 150, "lr": 0.003, "radius": 0.3}
    made = adapted_model("dirt_t", model, source, target, seed=1, **settings)
    assert accuracy(model, points(0.9, seed=9)) < 0.8
    assert accuracy(made, points(0.9, seed=9)) > 0.95 and accuracy(made, points(seed=9)) > 0.95
    off = {
        "domain_weight": 0.0,
        "source_smooth_weight": 0.0,
        "target_weight": 0.0,
        "vada_share": 1.0,
    }
    plain = adapted_model("dirt_t", model, source, target, seed=1, **settings, **off)
    assert accuracy(plain, points(0.9, seed=9)) < 0.9


def test_vada_turns_into_refinement_on_the_target_alone():
    torch.manual_seed(0)
    net = DirtT(start("points"), embedding="fc2", steps=10, vada_share=0.3, refresh=3, lr=0.01)
    source, target = (
        Batch((data.tensors[0][:16],), data.tensors[1][:16]) for data in (points(), points(0.9))
    )
    poisoned = Batch((source.x[0] * float("nan"),), source.y)
    anchors = []
    for done in range(10):
        logs = net.step(source if done < 3 else poisoned, target, done)
        assert ("discriminator_loss" in logs) == (done < 3) and logs["loss"].isfinite()
        anchors.append(net.teacher.fc1.weight.clone())
    same = [torch.equal(a, b) for a, b in itertools.pairwise(anchors)]
    assert same == [
        True,
        True,
        False,
        True,
        True,
        False,
        True,
        True,
        False,
    ]  # refreshed at steps 3, 6 and 9


def test_teacher_limits_the_refinement():
    moved = {}
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        net = DirtT(
            start("points"),
            embedding="fc2",
            steps=40,
            vada_share=0.0,
            refresh=100,
            lr=0.01,
            radius=0.5,
            teacher_weight=weight,
        )
        x = points(1.0).tensors[0]
        for done in range(40):
            net.step(Batch((x[:32],), x), Batch((x[32:64],), x), done)
        with torch.no_grad():
            moved[weight] = float(divergence(net.teacher(x), net.model(x)))
    assert moved[1.0] < 0.5 * moved[0.0]


def test_integer_inputs_are_refused():
    whole_numbers = torch.utils.data.TensorDataset(
        torch.zeros(8, 2, dtype=torch.int64), torch.zeros(8, dtype=torch.int64)
    )
    net = DirtT(start("points"), embedding="fc2", steps=1)
    with pytest.raises(UnseenError, match="expected one float input, got int64"):
        net.step(Batch.of(whole_numbers[:]), Batch.of(whole_numbers[:]), 0)


def test_collapse_to_one_class_is_noticed(caplog):
    model, source, target = start("points"), points(), points(0.9)
    settings = {"embedding": "fc2", "steps": 60, "lr": 0.01, "radius": 0.01}
    settings |= {"vada_share": 0.0, "teacher_weight": 0.0, "target_weight": 1.0}
    with torch.no_grad():  # a start that is unsure between classes, and leans to one
        model.fc3.weight.mul_(0.01)
        model.fc3.bias.copy_(torch.tensor([0.0, 0.001]))
    made = adapted_model("dirt_t", model, source, target, seed=1, **settings)
    with torch.no_grad():
        shares = made(target.tensors[0]).argmax(1).bincount(minlength=2) / len(target)
    assert shares.max() == 1
    assert "the adaptation has collapsed" in caplog.text and "100% of the target" in caplog.text


def test_effective_classes_by_hand():
    assert effective_classes(torch.tensor([3, 3, 3])) == pytest.approx(1)
    assert effective_classes(torch.tensor([0, 1, 5, 1, 0, 5])) == pytest.approx(3)
    assert describe_collapse("x", torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 1, 0])) is None
