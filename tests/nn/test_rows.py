"""Row layouts."""

from __future__ import annotations

import torch

from unseen.nn.rows import RowLayout, fold


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
