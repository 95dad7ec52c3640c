"""Average confidence and ATC, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unseen.functional.confidence import (
    atc_threshold,
    average_confidence,
    average_thresholded_confidence,
    negative_entropy,
)


def test_confidences_match_hand_numbers():
    logits = torch.log(torch.tensor([[0.7, 0.3], [0.5, 0.5]]))
    assert average_confidence(logits) == pytest.approx(0.6)
    expected = [0.7 * np.log(0.7) + 0.3 * np.log(0.3), np.log(0.5)]
    torch.testing.assert_close(negative_entropy(logits), torch.tensor(expected).float())


def test_atc_equals_source_accuracy_on_the_source_and_falls_with_confidence():
    confidence = torch.tensor([-0.1, -0.9, -0.3, -0.5])
    threshold = atc_threshold(confidence, torch.tensor([True, False, True, True]))
    assert threshold == pytest.approx(-0.5)
    assert average_thresholded_confidence(confidence, threshold) == 0.75
    assert average_thresholded_confidence(confidence - 0.3, threshold) == 0.25
    all_correct = atc_threshold(confidence, torch.ones(4, dtype=torch.bool))
    assert average_thresholded_confidence(confidence, all_correct) == 1.0
