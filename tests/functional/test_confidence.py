"""Average confidence and ATC, by hand."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from unseen.functional.confidence import (
    atc_threshold,
    average_confidence,
    average_thresholded_confidence,
    difference_of_confidences,
    fit_temperature,
    negative_entropy,
    shift_to_mean,
    transported_confidence,
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


def test_temperature_has_the_least_negative_log_likelihood():
    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(300, 4, generator=g)
    labels = torch.multinomial((logits / 2.5).softmax(1), 1, generator=g).squeeze(1)
    grid = torch.linspace(0.5, 6, 200)
    losses = [torch.nn.functional.cross_entropy(logits / t, labels) for t in grid]
    best = float(grid[int(torch.stack(losses).argmin())])
    assert fit_temperature(logits, labels) == pytest.approx(best, abs=0.05)


def test_difference_of_confidences():
    assert difference_of_confidences(0.7, 0.9, 0.95) == pytest.approx(0.75)


def test_transport_is_the_best_assignment_of_all():
    g = torch.Generator().manual_seed(0)
    p = torch.randn(6, 3, generator=g).softmax(1)
    labels = [0, 0, 0, 1, 1, 2]  # the marginal below, six times
    best = max(
        sum(float(p[i, c]) for i, c in enumerate(order)) for order in set(permutations(labels))
    )
    found = transported_confidence(p, torch.tensor([3.0, 2.0, 1.0]))
    assert float(found.sum()) == pytest.approx(best, rel=1e-6)


def test_shifted_probabilities_have_the_mean_and_keep_their_order():
    probabilities = torch.tensor([0.9, 0.2, 0.6, 0.99])
    shifted = shift_to_mean(probabilities, 0.4)
    assert float(shifted.mean()) == pytest.approx(0.4, abs=1e-6)
    assert torch.equal(shifted.argsort(), probabilities.argsort())
    by_hand = shifted.logit() - probabilities.double().logit()
    assert by_hand == pytest.approx(torch.full((4,), float(by_hand[0])), abs=1e-6)
