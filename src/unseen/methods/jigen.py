"""JiGen: domain generalization by solving jigsaw puzzles (Carlucci et al., CVPR 2019).

    min over theta, psi of  L(theta; ordered x, y) + jigsaw_weight CE(psi(z(shuffle(x, p))), p)

p is the index of a permutation of the image's 3 x 3 tiles; 0 is the identity.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.functional.losses import cross_entropy
from unseen.methods.erm import ERM
from unseen.nn.batch import gather_batch
from unseen.nn.heads import EmbeddingHead, embed
from unseen.nn.hooks import captured
from unseen.nn.inputs import Inputs, images
from unseen.nn.probe import Probe
from unseen.nn.ranks import ranks

GRID = 3
TILES = GRID * GRID


class JiGen(ERM):
    """Predict the permutation of an image's tiles in addition to its class."""

    name = "jigen"
    summary = "classifies images and solves jigsaw puzzles of them"
    paper = "Carlucci et al., Domain Generalization by Solving Jigsaw Puzzles, CVPR 2019"
    orders: Tensor

    needs_embedding = True
    regroups_samples = True

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
                f"ordered_share must be a fraction above 0 and at most 1, not {ordered_share}"
            )
        self.puzzles = check_int("puzzles", puzzles, 1)
        self.register_buffer("orders", distant_permutations(puzzles + 1).clone())
        if self.is_built:
            self._build_head()

    def _build_head(self) -> None:
        self.head = EmbeddingHead(self.model, self.embedding, self.puzzles + 1, self.name)
        self.model_optimizer = self._optimizer(self.trainable().values(), self.head.parameters())

    def _name_found_layers(self, seen: Probe) -> None:
        self._build_head()
        self.head.to(self.device)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        batch = gather_batch(batch)
        x = images(batch.x, self.name)
        count = max(1, round(self.ordered_share * len(x)))
        ordered, rest = torch.randperm(len(x)).to(x.device).split([count, len(x) - count])
        puzzle = torch.randint(1, self.puzzles + 1, (len(rest),)).to(x.device)
        ordered, rest, puzzle = (ranks().part_of(t) for t in (ordered, rest, puzzle))
        if ranks().divided and not ranks().everywhere(bool(len(ordered) and len(rest))):
            raise UnseenError(
                "jigen: a process or microbatch has no ordered, or no shuffled image of this batch "
                f"of {len(x)}: use a larger one"
            )

        # May call the model, so outside of `captured`.
        unshuffled = self._ready(Inputs.like(batch.x, [x[ordered]]))
        with captured(self.model, (self.head.layer,)) as outputs:
            logits = self.logits(unshuffled)
        source = self.objective(logits, batch.y[ordered])
        source = source * ranks().regrouped(len(ordered), count)
        z = outputs[self.head.layer]
        if len(rest):
            tiles = shuffle_tiles(x[rest], self.orders[puzzle])
            shuffled = self._ready(Inputs.like(batch.x, [tiles]))
            z = torch.cat([z, embed(self.model, self.head.layer, shuffled)])
        jigsaw = cross_entropy(self.head(z), torch.cat([torch.zeros_like(ordered), puzzle]))
        jigsaw = jigsaw * ranks().regrouped(len(z), len(x))
        jigsaw = jigsaw * ranks().balance(len, z) if ranks().weighted else jigsaw
        return {
            "loss": source + self.jigsaw_weight * jigsaw,
            "source_loss": source,
            "jigsaw_loss": jigsaw,
        }


def shuffle_tiles(x: Tensor, orders: Tensor) -> Tensor:
    """Return images with tile orders[n, t] at position t.

    If 3 does not divide a side, the outermost pixels stay in place.
    """
    n, c, height, width = x.shape
    h, w = height // GRID, width // GRID
    if not h or not w:
        raise UnseenError(
            f"jigen cuts images into {GRID} x {GRID} tiles; these have {height} x {width} pixels"
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
def distant_permutations(count: int) -> Tensor:
    """Return permutations of nine tiles (count, 9), chosen greedily; the first is the identity.

    Each next permutation has the largest Hamming distance to its nearest predecessor; ties are
    broken by the sum of distances.
    """
    every = torch.tensor(list(permutations(range(TILES))), dtype=torch.int8)
    if count > len(every):
        raise UnseenError(f"nine tiles have {len(every)} permutations, {count} were requested")
    indices = [0]
    most_equal = total = torch.zeros(len(every), dtype=torch.int32)
    for _ in range(count - 1):
        equal = (every == every[indices[-1]]).sum(1, dtype=torch.int32)
        most_equal, total = torch.maximum(most_equal, equal), total + equal
        indices.append(int((most_equal * (TILES * count) + total).argmin()))
    return every[indices].long()
