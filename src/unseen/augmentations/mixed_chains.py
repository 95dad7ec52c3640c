"""AugMix: a random mixture of chains of operations (Hendrycks et al., ICLR 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from unseen.augmentations.image_operations import random_operations
from unseen.augmentations.settings import Count, Positive, augmentation
from unseen.nn.inputs import images, in_unit_range, inputs


@augmentation
def augmix(
    x: Tensor,
    severity: Positive = 3.0,
    width: Count = 3,
    depth: Count = 3,
    alpha: Positive = 1.0,
    geometry: bool = True,
) -> Tensor:
    """Mix each image with a mixture of chains of random operations on it.

    Args:
        severity: Largest level of the operations, out of 10.
        width: Number of chains.
        depth: Largest number of operations in a chain; it is uniform for each chain.
        alpha: Of Dirichlet(alpha), the weights of the chains, and of Beta(alpha, alpha), the weight
            of the mixture against the image.
        geometry: Whether rotation, shear and translation are among the operations.
    """
    x = in_unit_range(images(inputs(x), "augmix"), "augmix")
    count = len(x)
    weights = torch.distributions.Dirichlet(torch.full((width,), alpha)).sample((count,))
    share = torch.distributions.Beta(alpha, alpha).sample((count,))
    depths = torch.randint(1, depth + 1, (count * width,))
    chains = x.repeat_interleave(width, dim=0)  # the chains of an image follow each other
    for done in range(depth):
        rows = (depths > done).nonzero()[:, 0].to(x.device)
        if len(rows):
            chains[rows] = random_operations(chains[rows], severity, geometry)
    return mix_chains(x, chains, weights.to(x.device, x.dtype), share.to(x.device, x.dtype))


def mix_chains(x: Tensor, chains: Tensor, weights: Tensor, share: Tensor) -> Tensor:
    """Return (1 - share) * x + share * sum of weights * chains; chains are (N * width, ...)."""
    mixture = torch.einsum("nk,nkchw->nchw", weights, chains.unflatten(0, weights.shape))
    return torch.lerp(x, mixture, share[:, None, None, None]).clamp_(0, 1)
