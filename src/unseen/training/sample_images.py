"""What a report shows of a run beside its figures: a few samples with what the model makes of them, as small whole numbers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from unseen.api import Method
from unseen.training.batches import take

EXAMPLES = 3  # samples a domain
SIDE = 320  # pixels at most, for pictures of whole streets


def pixels(x: tuple[Tensor, ...], count: int) -> Tensor | None:
    """The first few inputs as pictures, (N, C, H, W) uint8; None if they are no pictures in 0..1."""
    first = x[0][:count].detach().cpu()
    if (
        len(x) != 1
        or first.dim() != 4
        or not first.is_floating_point()
        or first.shape[1] not in (1, 3)
    ):
        return None
    if not (float(first.min()) >= 0 and float(first.max()) <= 1):
        return None
    return _thinned((first * 255).round().to(torch.uint8))


def examples_of(net: Method, data: Dataset) -> dict[str, Tensor]:
    """Evenly spaced samples with their labels and the model's guesses; nothing if they cannot be looked at."""
    total = len(data)  # type: ignore[arg-type]
    index = torch.linspace(0, total, 2 * min(EXAMPLES, total) + 1)[1::2].long().clamp(max=total - 1)
    batch = take(data, index)
    seen = pixels(batch.x, EXAMPLES)
    if seen is None:
        return {}
    guess = net.predict(batch.x).argmax(1).cpu()
    return {"x": seen, "y": _small(batch.y), "guess": _small(guess)}


def _small(labels: Tensor) -> Tensor:
    """Class numbers as int16: 255 and -100, the labels to ignore, fit too."""
    return (_thinned(labels) if labels.dim() > 1 else labels).to(torch.int16)


def _thinned(pictures: Tensor) -> Tensor:
    every = -(-max(pictures.shape[-2:]) // SIDE)
    return pictures[..., ::every, ::every].contiguous()
