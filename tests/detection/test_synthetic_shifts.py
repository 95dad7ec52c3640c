"""Synthetic shifts: repeatable, stronger with their strength, of the same shape and range."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unseen.detection.synthetic_shifts import ANY, IMAGE, MOVING, NUMERIC, shifts_for, with_blends


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def smooth_images():
    coarse = torch.rand(40, 3, 5, 5, generator=seeded()) ** 2
    return nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")


INPUTS = {
    "images": (smooth_images(), set(IMAGE)),
    "vectors": (torch.randn(40, 30, generator=seeded()), {*ANY, *NUMERIC}),
    "signals": (torch.randn(40, 1, 64, generator=seeded()), {*ANY, *NUMERIC}),
    "tokens": (torch.randint(1, 99, (40, 60), generator=seeded()), set(ANY)),
}


@pytest.mark.parametrize("name", INPUTS)
def test_shifts_grow_with_their_strength_and_are_repeatable(name):
    x, kinds = INPUTS[name]
    before, shifts = x.clone(), shifts_for((x,))
    assert set(shifts) == kinds
    for kind, strengths in shifts.items():
        changes = []
        for shift in strengths:
            (y,), (again,) = (shift((x,), seeded(5)) for _ in range(2))
            assert y.shape == x.shape and y.dtype == x.dtype and torch.equal(y, again), kind
            if name == "images":
                assert x.min() - 1e-5 <= y.min() and y.max() <= x.max() + 1e-5, kind
            changes.append(float((y - x).abs().double().mean()))
        assert 0 < changes[0] < changes[1], kind
    assert torch.equal(before, x)


def test_images_of_any_range_are_shifted_alike():
    x, _ = INPUTS["images"]
    for kind, strengths in shifts_for((x,)).items():
        plain, wide = (strengths[0]((t,), seeded(1))[0] for t in (x, x * 8 - 3))
        torch.testing.assert_close(plain * 8 - 3, wide, atol=2e-4, rtol=1e-4, msg=kind)


def test_label_maps_exclude_shifts_that_move_pixels():
    assert set(shifts_for((smooth_images(),), label_maps=True)) == set(IMAGE) - set(MOVING)


def test_blends_apply_shifts_in_turn():
    shifts = {
        "add": [lambda x, g: (x[0] + 1,)],
        "double": [lambda x, g: (2 * x[0],)],
        "none": [lambda x, g: x],
    }
    pairs = with_blends(shifts, 20)
    assert [kinds for kinds, _ in pairs[:3]] == [("add",), ("double",), ("none",)]
    assert len(pairs) == 23
    results = {kinds: float(shift((torch.ones(1),), seeded())[0]) for kinds, shift in pairs}
    assert results["add", "double"] == 4 and results["double", "add"] == 3
    assert all(len(kinds) == 2 for kinds, _ in pairs[3:])  # one of three is always absent
