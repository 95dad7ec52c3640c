"""JiGen, domain generalization by solving jigsaw puzzles (Carlucci et al., CVPR 2019).

    min over theta, psi of  L(theta; ordered x, y) + jigsaw_weight CE(psi(z(shuffled(x, p))), p)

p numbers one of a few orders of the image's 3 x 3 tiles that differ as much as possible; 0 is the image as it is.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch, check_targets, cross_entropy, images
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.heads import EmbeddingHead, embed
from unseen.nn.hooks import captured

GRID = 3
TILES = GRID * GRID


class JiGen(ERM):
    """The model also tells in which order an image's tiles were put back, which takes a view of the whole."""

    name = "jigen"
    summary = "solves jigsaw puzzles of the images beside classifying them"
    paper = "Carlucci et al., Domain Generalization by Solving Jigsaw Puzzles, CVPR 2019"
    orders: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        jigsaw_weight: float = 0.7,  # the authors' release for ResNet-18
        ordered_share: float = 0.6,  # the paper's own example
        puzzles: int = 30,  # the paper's P
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.jigsaw_weight = check_number("jigsaw_weight", jigsaw_weight, 0)
        self.ordered_share = check_positive("ordered_share", ordered_share)
        if ordered_share > 1:
            raise UnseenError(
                f"ordered_share is a part of the batch, above 0 and up to 1, not {ordered_share}"
            )
        self.puzzles = check_int("puzzles", puzzles, 1)
        self.register_buffer("orders", distant_orders(puzzles + 1).clone())
        self.head = EmbeddingHead(model, self.embedding, puzzles + 1, self.name)
        self.model_optimizer = self._optimizer(self.trainable().values(), self.head.parameters())

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        x = images(batch.x, self.name)
        kept = max(1, round(self.ordered_share * len(x)))
        ordered, rest = torch.randperm(len(x)).to(x.device).split([kept, len(x) - kept])
        puzzle = torch.randint(1, self.puzzles + 1, (len(rest),)).to(x.device)

        whole_images = self._ready(x[ordered])
        with captured(self.model, (self.head.layer,)) as seen:
            logits = self.model(*whole_images)
        check_targets(logits, batch.y[ordered], self.ignore_label)
        source = cross_entropy(logits, batch.y[ordered], self.ignore_label)
        z = seen[self.head.layer]
        if len(rest):
            mixed = self._ready(shuffled(x[rest], self.orders[puzzle]))
            z = torch.cat([z, embed(self.model, self.head.layer, mixed)])
        jigsaw = cross_entropy(self.head(z), torch.cat([puzzle.new_zeros(kept), puzzle]))
        return {
            "loss": source + self.jigsaw_weight * jigsaw,
            "source_loss": source,
            "jigsaw_loss": jigsaw,
        }


def shuffled(x: Tensor, orders: Tensor) -> Tensor:
    """Images whose place t shows tile orders[n, t]; sides that 3 does not divide keep their outermost pixels in place."""
    n, c, height, width = x.shape
    h, w = height // GRID, width // GRID
    if not h or not w:
        raise UnseenError(
            f"jigen cuts images into {GRID} x {GRID} tiles; these have only {height} x {width} pixels"
        )
    top, left = (height - GRID * h) // 2, (width - GRID * w) // 2
    middle = (..., slice(top, top + GRID * h), slice(left, left + GRID * w))
    tiles = (
        x[middle]
        .reshape(n, c, GRID, h, GRID, w)
        .permute(0, 2, 4, 1, 3, 5)
        .reshape(n, TILES, c, h, w)
    )
    tiles = tiles[torch.arange(n, device=x.device)[:, None], orders]
    out = x.clone()
    out[middle] = (
        tiles.view(n, GRID, GRID, c, h, w)
        .permute(0, 3, 1, 4, 2, 5)
        .reshape(n, c, GRID * h, GRID * w)
    )
    return out


@lru_cache
def distant_orders(count: int) -> Tensor:
    """Orders of nine tiles, (count, 9), the first as they are, each next as far as can be from those before it.

    Far means: the fewest tiles that it leaves where the nearest of the others has them; if equal, the fewest in all.
    """
    every = torch.tensor(list(permutations(range(TILES))), dtype=torch.int8)
    if count > len(every):
        raise UnseenError(f"nine tiles have {len(every)} orders, {count} were asked for")
    chosen = [0]
    nearest = total = torch.zeros(len(every), dtype=torch.int32)
    for _ in range(count - 1):
        alike = (every == every[chosen[-1]]).sum(1, dtype=torch.int32)
        nearest, total = torch.maximum(nearest, alike), total + alike
        chosen.append(int((nearest * (TILES * count) + total).argmin()))
    return every[chosen].long()
