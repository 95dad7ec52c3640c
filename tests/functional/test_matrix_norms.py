"""Nuclear norm and MaNo against slow code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unseen.functional.matrix_norms import mano, mano_moments, nuclear_norm, second_moments


def test_nuclear_norm_is_the_sum_of_singular_values():
    p = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)).double().softmax(1)
    slow = np.linalg.svd(p.numpy(), compute_uv=False).sum() / np.sqrt(40 * 5)
    assert float(nuclear_norm(second_moments(p).mean(0))) == pytest.approx(slow, rel=1e-9)


def test_nuclear_norm_is_one_for_confident_predictions_of_all_classes():
    p = torch.eye(4).repeat(5, 1)
    assert float(nuclear_norm(second_moments(p).mean(0))) == pytest.approx(1)
    collapsed = torch.eye(4)[:1].repeat(20, 1)
    assert float(nuclear_norm(second_moments(collapsed).mean(0))) == pytest.approx(0.5)


@pytest.mark.parametrize("exponential", [True, False])
def test_mano_is_the_scaled_norm_of_normalized_logits(exponential):
    z = torch.randn(7, 3, generator=torch.Generator().manual_seed(1)).double()
    total = 0.0
    for row in z.tolist():
        values = [np.exp(v) if exponential else 1 + v + v * v / 2 for v in row]
        total += sum((v / sum(values)) ** 4 for v in values)
    assert float(mano(mano_moments(z, exponential).mean(0))) == pytest.approx(
        (total / (7 * 3)) ** 0.25
    )
