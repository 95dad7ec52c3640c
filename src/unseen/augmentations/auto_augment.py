"""AutoAugment: one of 25 learned pairs of operations per image (Cubuk et al., CVPR 2019)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from unseen.augmentations.settings import augmentation
from unseen.errors import UnseenError
from unseen.nn.inputs import images, in_unit_range, inputs

if TYPE_CHECKING:
    from kornia.augmentation.auto import AutoAugment

Policy = Literal["cifar10", "imagenet", "svhn"]


# The default policy is CIFAR-10's: SVHN is an unseen domain of the digits benchmark, and a policy
# that was searched on it has seen it.
@augmentation
def autoaugment(x: Tensor, policy: Policy = "cifar10") -> Tensor:
    """Apply a randomly drawn pair of operations to each image.

    kornia draws one pair for the whole batch; the paper draws one per image, as is done here.
    """
    x = images(inputs(x), "autoaugment")
    if x.shape[1] != 3:
        raise UnseenError(f"autoaugment needs images with 3 colour channels, got {x.shape[1]}")
    in_unit_range(x, "autoaugment")
    pairs = list(_load_policy(policy).children())
    index = torch.randint(len(pairs), (x.shape[0],))
    out = torch.empty_like(x)
    for i in index.unique().tolist():
        rows = (index == i).to(x.device)
        out[rows] = pairs[i](x[rows]).clamp(0, 1)
    return out


@cache
def _load_policy(policy: Policy) -> AutoAugment:
    try:  # kornia takes two seconds to import
        from kornia.augmentation.auto import AutoAugment
    except ImportError as error:
        raise UnseenError("autoaugment needs kornia: pip install 'unseen[augment]'") from error

    return AutoAugment(policy)
