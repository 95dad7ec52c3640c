"""AutoAugment: each image goes through one of 25 learned pairs of operations (Cubuk et al., CVPR 2019)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unseen.api import in_unit_range
from unseen.errors import UnseenError

if TYPE_CHECKING:
    from kornia.augmentation.auto import AutoAugment


# CIFAR-10's policy and not SVHN's: SVHN is an unseen domain of the digits benchmark, and a policy learned on it has seen it.
def autoaugment(x: Tensor, policy: str = "cifar10") -> Tensor:
    """Draw a pair of operations for every image; kornia, which does the operations, draws one for the whole batch."""
    if x.shape[1] != 3:
        raise UnseenError(
            f"autoaugment's operations need three colour channels; these images have {x.shape[1]}"
        )
    in_unit_range(x, "autoaugment")
    pairs = list(_pairs(policy).children())
    chosen = torch.randint(len(pairs), (x.shape[0],))
    out = torch.empty_like(x)
    for index in chosen.unique().tolist():
        rows = (chosen == index).to(x.device)
        out[rows] = pairs[index](x[rows]).clamp(0, 1)
    return out


@cache
def _pairs(policy: str) -> AutoAugment:
    from kornia.augmentation.auto import (
        AutoAugment,  # two seconds to import: only where it is needed
    )

    return AutoAugment(policy)
