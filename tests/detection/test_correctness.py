"""The correctness probability: how many inputs it uses."""

from __future__ import annotations

import torch

import unseen
from unseen.detection import accuracy_points
from unseen.detection.accuracy_points import Point
from unseen.detection.correctness import Correctness


def correctness():
    net = unseen.ERM(torch.nn.Linear(2, 2))
    return Correctness(net, noise=("sigma",))


def test_inputs_that_are_left_out_have_no_weight():
    torch.manual_seed(0)
    model, inputs = correctness(), torch.randn(400, 5).double()
    correct = inputs[:, 0] + inputs[:, 4] > 0
    weights = torch.ones(400, dtype=torch.float64)
    model.fit_inputs(inputs, correct, weights, 1)
    assert model.weight[0] > 0 and not model.weight[1:].any()
    one = model.probability(inputs)
    model.fit_inputs(inputs, correct, weights)
    assert model.weight[4] > 0
    assert (model.probability(inputs) > 0.5).eq(correct).double().mean() > 0.95
    assert (one > 0.5).eq(correct).double().mean() < 0.85


def points(noise_helps):
    """Points of three kinds; the noise score tells errors, or only how far the domain is."""
    generator = torch.Generator().manual_seed(0)
    result = [(), *(("a",), ("b",), ("c",)) * 2]
    made = []
    for number, kinds in enumerate(result):
        inputs = torch.randn(300, 5, generator=generator).double()
        noise = torch.randn(300, generator=generator).double()
        correct = inputs[:, 0] + (1.5 * noise if noise_helps else 0) > 0.2 * number
        inputs[:, 4] = noise if noise_helps else number + noise
        made.append(Point(kinds, {}, float(correct.double().mean()), inputs, correct))
    return made


def chosen(noise_helps):
    """Return the number of inputs that rank errors under kinds left out best."""
    model, made = correctness(), points(noise_helps)
    clean = made[0].inputs, made[0].correct
    areas = {
        count: accuracy_points.area_without_kinds(model, made, clean, count)[0]
        for count in model.input_counts
    }
    return accuracy_points.best_count(areas)


def test_noise_is_used_where_it_ranks_errors_and_not_elsewhere():
    assert chosen(noise_helps=True) == 5
    assert chosen(noise_helps=False) == 1
