"""Metrics of a confusion matrix, by hand."""

from __future__ import annotations

import pytest
import torch

from unseen import UnseenError
from unseen.functional.metrics import accuracy, class_iou, confusion_matrix, mean_iou

# Rows are labels; the last class occurs neither as a label nor as a prediction.
CONFUSION = torch.tensor([[3, 1, 0], [2, 4, 0], [0, 0, 0]])


def test_metrics_match_hand_numbers():
    assert accuracy(CONFUSION) == pytest.approx(0.7)
    assert class_iou(CONFUSION)[:2].tolist() == pytest.approx([3 / 6, 4 / 7])
    assert class_iou(CONFUSION)[2].isnan()
    assert mean_iou(CONFUSION) == pytest.approx((3 / 6 + 4 / 7) / 2)


def test_confusion_matrix_counts_pairs_and_skips_the_ignored_label():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 1.0]])
    counts = confusion_matrix(logits, torch.tensor([0, 0, 1, -100]))
    assert counts.tolist() == [[1, 1], [1, 0]]


def test_confusion_matrix_refuses_labels_outside_the_logits():
    with pytest.raises(UnseenError, match="a model with 2 outputs takes 0 to 1"):
        confusion_matrix(torch.zeros(1, 2), torch.tensor([5]))
