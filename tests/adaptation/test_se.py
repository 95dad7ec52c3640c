"""Self-ensembling: teacher, consistency, augmentation."""

from __future__ import annotations

import math

import pytest
import torch
from shifted import accuracy, pictures, start
from torch import nn

from unseen.adaptation import adapted_model, se
from unseen.adaptation.se import (
    SelfEnsembling,
    augment,
    class_balance,
    consistency_loss,
    update_teacher,
)
from unseen.api import Batch
from unseen.errors import UnseenError


def test_consistency_and_balance_by_hand():
    sure, unsure = torch.tensor([[math.log(9.0), 0.0]]), torch.zeros(1, 2)  # 0.9, 0.1 and 0.5, 0.5
    assert consistency_loss(unsure, sure, 0.8).item() == pytest.approx(0.4**2)
    assert consistency_loss(unsure, sure, 0.95).item() == 0
    both = torch.cat([sure, unsure])
    assert consistency_loss(torch.cat([unsure, sure]), both, 0.8).item() == pytest.approx(
        0.4**2 / 2
    )  # of two samples one counts
    assert class_balance(unsure).item() == pytest.approx(math.log(2))
    assert class_balance(sure) > class_balance(both) > class_balance(unsure)


def test_the_teacher_is_the_running_average_of_the_student():
    torch.manual_seed(0)
    net = SelfEnsembling(start("pictures"), steps=4, lr=0.01, momentum=0.7, batch=16)
    source, target = (
        Batch((d.tensors[0][:16],), d.tensors[1][:16]) for d in (pictures(), pictures(0.5))
    )
    slow = net.model.fc1.weight.detach().clone()
    for done in range(4):
        net.step(source, target, done)
        slow = 0.7 * slow + 0.3 * net.model.fc1.weight.detach()
        assert net.teacher.fc1.weight.allclose(slow, atol=1e-6)
    assert not net.model.fc1.weight.allclose(slow, atol=1e-4)
    student = net.model.fc1.weight.clone()
    given = net.adapted()
    assert torch.equal(given.fc1.weight, net.teacher.fc1.weight) and not torch.equal(
        given.fc1.weight, student
    )
    assert all(p.requires_grad for p in given.parameters())


def test_update_teacher_copies_counts_and_averages_floats():
    teacher, student = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    student.running_mean.fill_(10.0)
    student.num_batches_tracked.fill_(5)
    update_teacher(teacher, student, 0.9)
    assert teacher.running_mean.item() == pytest.approx(1.0) and teacher.num_batches_tracked == 5


def test_images_are_shifted_each_in_its_own_way_by_up_to_two_pixels(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(se, "AFFINE", 0.0)
    monkeypatch.setattr(se, "NOISE", 0.0)
    x = torch.zeros(200, 1, 9, 13)
    x[:, :, 4, 6] = 1.0
    moved = augment(x)
    column = (moved * torch.arange(13.0)).sum((1, 2, 3)) - 6
    row = (moved * torch.arange(9.0)[:, None]).sum((1, 2, 3)) - 4
    for way in (column, row):
        assert way.abs().max() < 2.001 and way.min() < -1.8 and way.max() > 1.8
    assert moved.sum((1, 2, 3)).allclose(torch.ones(200), atol=1e-4)


def test_images_lean_and_are_noisy(monkeypatch):
    torch.manual_seed(0)
    grey = torch.full((100, 1, 10, 10), 0.5)
    assert float((augment(grey) - grey).std()) == pytest.approx(0.1, rel=0.1)
    monkeypatch.setattr(se, "NOISE", 0.0)
    monkeypatch.setattr(se, "SHIFT", 0.0)
    slope = torch.linspace(-0.9, 0.9, 10).expand(100, 1, 10, 10)  # each pixel is its own place
    middle = augment(slope)[:, 0, 3:7, 3:7]
    along = (middle[:, :, 3] - middle[:, :, 0]).mean(1) / 0.6
    assert float(along.mean()) == pytest.approx(1, abs=0.05) and float(
        along.std()
    ) == pytest.approx(0.1, rel=0.3)


def test_teacher_consistency_improves_target_accuracy():
    model, source, target = start("pictures"), pictures(), pictures(0.75, darkest=0.0)
    settings = {"steps": 250, "lr": 0.003, "seed": 1}
    heard = adapted_model("se", model, source, target, **settings)
    unheard = adapted_model(
        "se", model, source, target, **settings, consistency_weight=0.0, balance_weight=0.0
    )
    there = pictures(0.75, darkest=0.0, seed=9)
    assert (
        accuracy(heard, there) > accuracy(unheard, there) + 0.05
        and accuracy(heard, pictures(seed=9)) > 0.95
    )


def test_momentum_of_one_is_refused():
    with pytest.raises(UnseenError, match=r"momentum must lie between 0 and 1, not 1\.0"):
        SelfEnsembling(start("pictures"), momentum=1.0)
