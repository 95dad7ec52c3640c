"""Metrics are functions of one confusion matrix; each is checked by hand or against slow, obvious code."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from unseen import UnseenError
from unseen.training.evaluation import accuracy, class_iou, confusion_of, evaluate_metric, mean_iou

CONFUSION = torch.tensor(
    [[3, 1, 0], [2, 4, 0], [0, 0, 0]]
)  # rows are truths; the last class is neither there nor guessed


class Painted(nn.Module):
    """Takes the class of each pixel from the image itself."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return nn.functional.one_hot(x[:, 0].long(), self.classes).movedim(-1, 1).float()


def test_by_hand():
    assert accuracy(CONFUSION) == pytest.approx(0.7)
    assert class_iou(CONFUSION)[:2].tolist() == pytest.approx([3 / 6, 4 / 7])
    assert class_iou(CONFUSION)[2].isnan() and mean_iou(CONFUSION) == pytest.approx(
        (3 / 6 + 4 / 7) / 2
    )


def test_maps_of_labels_against_slow_counting():
    generator = torch.Generator().manual_seed(0)
    guess, truth = (torch.randint(4, (300, 5, 6), generator=generator) for _ in range(2))
    truth[torch.rand(truth.shape, generator=generator) < 0.2] = 255
    data = TensorDataset(guess[:, None].float(), truth)
    measured = evaluate_metric("miou", Painted(6), data, ignore=255)
    slow = []
    for label in range(4):
        counted = truth != 255
        both = int(((guess == label) & (truth == label)).sum())
        either = int((((guess == label) & counted) | (truth == label)).sum())
        slow.append(both / either)
    assert measured.value == pytest.approx(sum(slow) / 4) and measured.n == 300
    assert measured.per_class[:4] == pytest.approx(slow) and all(
        map(math.isnan, measured.per_class[4:])
    )
    counts, _ = confusion_of(Painted(6), data, ignore=255)
    assert int(counts.sum()) == int((truth != 255).sum())
    assert evaluate_metric("accuracy", Painted(6), data, ignore=255).value == pytest.approx(
        float((guess == truth)[truth != 255].float().mean())
    )


def test_labels_that_do_not_count_or_do_not_fit_are_named():
    x = torch.zeros(2, 1, 3, 3)
    with pytest.raises(UnseenError, match="no labels that count"):
        evaluate_metric(
            "miou", Painted(3), TensorDataset(x, torch.full((2, 3, 3), 255)), ignore=255
        )
    with pytest.raises(
        UnseenError, match="labels run from 0 to 7; a model with 3 outputs takes 0 to 2"
    ):
        evaluate_metric(
            "miou", Painted(3), TensorDataset(x, torch.tensor([[[0, 7, 0]] * 3] * 2)), ignore=255
        )
