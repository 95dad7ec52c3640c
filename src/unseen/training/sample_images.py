"""Sample images with labels and predictions, for the report of a run."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from unseen.api import Method
from unseen.training.batches import take

EXAMPLES = 3  # samples per domain
SIDE = 320  # pixels at most


def pixels(x: tuple[Tensor, ...], count: int) -> Tensor | None:
    """Return the first inputs as images (N, C, H, W) of uint8; None if not images in 0..1."""
    first = x[0][:count].detach().cpu()
    if (
        len(x) != 1
        or first.dim() != 4
        or not first.is_floating_point()
        or first.shape[1] not in (1, 3)
        or not first.numel()
    ):
        return None
    if not (float(first.min()) >= 0 and float(first.max()) <= 1):
        return None
    return _downsample((first * 255).round().to(torch.uint8))


def examples_of(net: Method, data: Dataset) -> dict[str, Tensor]:
    """Return evenly spaced samples, labels and predictions of classes; only if they are images."""
    if not net.objective.classifies:
        return {}
    total = len(data)  # type: ignore[arg-type]
    index = torch.linspace(0, total, 2 * min(EXAMPLES, total) + 1)[1::2].long().clamp(max=total - 1)
    batch = take(data, index)
    x = pixels(batch.x, EXAMPLES)
    if x is None:
        return {}
    prediction = net.predict(batch.x).argmax(1).cpu()
    return {"x": x, "y": _to_int16(batch.y), "guess": _to_int16(prediction)}


def _to_int16(labels: Tensor) -> Tensor:
    return (_downsample(labels) if labels.dim() > 1 else labels).to(torch.int16)


def _downsample(images: Tensor) -> Tensor:
    stride = -(-max(images.shape[-2:]) // SIDE)
    return images[..., ::stride, ::stride].contiguous()
