"""Row layouts."""

from __future__ import annotations

import pytest
import torch

from unseen.nn.rows import RowLayout, fold, take


def test_segments_follow_each_other():
    layout = RowLayout(batch=2, draws=3, has_clean=True, has_draws=True, has_mixed=True)
    assert (layout.clean, layout.perturbed, layout.mixed) == (
        slice(0, 2),
        slice(2, 8),
        slice(8, 14),
    )
    assert layout.unmixed == slice(0, 8) and layout.total == 14


def test_absent_segments_take_no_rows():
    start = RowLayout(batch=2, draws=3)
    assert start.total == 2 and start.unmixed == slice(0, 2)
    only_mixed = RowLayout(batch=2, draws=3, has_clean=False, has_mixed=True)
    assert only_mixed.mixed == slice(0, 6) and only_mixed.total == 6


def test_fold_repeats_the_batch():
    assert fold(torch.tensor([1, 2]), 3).tolist() == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize("rows", [slice(0, 2), slice(2, 5), slice(1, 3), slice(0, 5)])
def test_take_gives_the_gradient_of_a_slice_in_the_layout_of_its_tensor(rows):
    torch.manual_seed(0)
    t = torch.randn(5, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    weights = torch.randn(t[rows].shape)
    gradients = []
    for part in (lambda x: take(x, rows), lambda x: x[rows]):
        x = (2 * t).requires_grad_()
        assert torch.equal(part(x), x[rows])
        gradients += torch.autograd.grad((part(x) * weights).sum(), x)
    assert torch.equal(*gradients)
    if rows != slice(0, 5):
        assert gradients[0].is_contiguous(memory_format=torch.channels_last)


def test_take_of_an_expanded_tensor_has_the_right_gradient():
    x = torch.randn(1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(take(x.expand(4, 3), slice(1, 3)).sum(), x)
    assert gradient.tolist() == [[2.0, 2.0, 2.0]]
