"""Uncertainty scores, by hand and against slow code."""

from __future__ import annotations

import math

import pytest
import torch

from unseen.functional import scores


def test_scores_of_logits_match_hand_numbers():
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3]])) + 2.0
    torch.testing.assert_close(scores.max_softmax(logits), torch.tensor([0.3, 2 / 3]))
    entropy = -(0.7 * math.log(0.7) + 0.2 * math.log(0.2) + 0.1 * math.log(0.1))
    torch.testing.assert_close(scores.entropy(logits), torch.tensor([entropy, math.log(3)]))
    torch.testing.assert_close(scores.energy(logits), torch.tensor([-2.0, -2.0]))
    variance = torch.tensor([1 - 0.49 - 0.04 - 0.01, 2 / 3])
    torch.testing.assert_close(scores.total_variance(logits), variance)


def test_entropy_of_a_certain_prediction_is_finite():
    assert scores.entropy(torch.tensor([[1000.0, 0.0]])).tolist() == [0.0]


@pytest.mark.parametrize("name", ["max_softmax", "entropy", "energy", "total_variance"])
def test_scores_of_label_maps_are_those_of_their_pixels(name):
    score = getattr(scores, name)
    maps = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    pixels = torch.stack([score(maps[:, :, i, j]) for i in range(4) for j in range(5)])
    torch.testing.assert_close(score(maps).flatten(1).T, pixels)
    torch.testing.assert_close(scores.mean_over_pixels(score(maps))[:, 0], pixels.mean(0))


def test_running_moments_match_torch():
    values = torch.rand(7, 5, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, variance = scores.running_moments(iter(values))
    torch.testing.assert_close(mean, values.mean(0))
    torch.testing.assert_close(variance, values.var(0))
    torch.testing.assert_close(scores.predictive_variance(variance), values.var(0).sum(1))


def test_relative_deviation_matches_hand_numbers():
    source = torch.tensor([0.5, 0.2])
    expected = (0.1 / 0.5 + 0.1 / 0.2) / 2
    deviation = scores.relative_deviation(torch.tensor([0.6, 0.1]), source)
    assert float(deviation) == pytest.approx(expected)
    both = scores.relative_deviation(torch.stack([source, 2 * source]), source)
    assert both.tolist() == [0, 1]


def test_relative_deviation_is_defined_where_the_source_underflows_to_zero():
    source = torch.tensor([0.0, 0.5])
    assert float(scores.relative_deviation(torch.tensor([0.0, 1.0]), source)) == 0.5
    assert float(scores.relative_deviation(torch.tensor([1e-3, 0.5]), source)) > 1e6


def test_nearest_squared_distance_matches_slow_code():
    g = torch.Generator().manual_seed(0)
    points, centres = torch.randn(5, 3, generator=g), torch.randn(4, 3, generator=g)
    slow = [min(float((p - c).square().sum()) for c in centres) for p in points]
    assert scores.nearest_squared_distance(points, centres).tolist() == pytest.approx(slow)
