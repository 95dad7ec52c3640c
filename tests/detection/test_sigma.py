"""The learned noise scale: which positions of a map are read, and that a run remembers it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import unseen
from unseen.detection.sigma import POSITIONS, SigmaDetector, distance
from unseen.errors import UnseenError


def small_net():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    return unseen.UncertaintyGuided(model, sites=["0"], embedding="3")


@pytest.mark.parametrize(
    ("shape", "positions", "expected"),
    [((), 100, 1), ((10, 10), 100, 1), ((28, 28), 100, 3), ((28, 28), 0, 1), ((400,), 100, 4)],
)
def test_distance_gives_about_as_many_positions(shape, positions, expected):
    assert distance(shape, positions) == expected


def test_positions_on_a_grid_are_averaged():
    net, x = small_net(), torch.rand(6, 1, 32, 32)
    detector = SigmaDetector(net)
    with torch.no_grad():
        sigma = net.heads["0"](x).sigma
    every = distance((30, 30), POSITIONS)
    expected = sigma[..., ::every, ::every].mean((2, 3))
    torch.testing.assert_close(detector.look(x).features, expected)


def test_positions_are_kept_and_older_statistics_read_all():
    net, x = small_net(), torch.rand(40, 1, 32, 32)
    data = [(x, torch.zeros(40, dtype=torch.int64))]
    state = SigmaDetector(net).calibrate(data, data).state_dict()
    restored = SigmaDetector(net)
    restored.load_state_dict(state)
    assert restored.positions == POSITIONS
    restored.load_state_dict({k: t for k, t in state.items() if k != "positions"})
    assert restored.positions == 0
    with torch.no_grad():
        expected = net.heads["0"](x).sigma.mean((2, 3))
    torch.testing.assert_close(restored.look(x).features, expected)


def test_bad_positions_are_refused():
    with pytest.raises(UnseenError, match="positions must be a whole number"):
        SigmaDetector(small_net()).load_fitted_state({"positions": torch.tensor(0.5)})
