"""Batch transforms that any method can take: images (N, C, H, W) in 0..1 to images of the same shape and range.

Random numbers come from torch's global generator, which a checkpoint holds: a resumed run draws what it would have drawn.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from unseen.augmentations.autoaugment import autoaugment
from unseen.augmentations.cutout import cutout
from unseen.augmentations.randconv import randconv
from unseen.contracts import Batch, images
from unseen.errors import UnseenError

AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cutout": cutout,
    "autoaugment": autoaugment,
    "randconv": randconv,
}


def augmentation_named(name: str) -> Callable[[Tensor], Tensor]:
    """The batch transform of that name, or an error that lists them."""
    if not isinstance(name, str) or name not in AUGMENTATIONS:
        raise UnseenError(f'no augmentation "{name}"; there are: {", ".join(AUGMENTATIONS)}')
    return AUGMENTATIONS[name]


def augmented(batch: Batch, augment: str | Callable[[Tensor], Tensor] | None) -> Batch:
    """The batch with its images transformed; the labels stay."""
    if augment is None:
        return batch
    if augment == "autoaugment" and batch.y.dim() > 1:
        raise UnseenError("augment=autoaugment turns and shears images, not label maps: use cutout or randconv")
    if isinstance(augment, str):
        return Batch((augmentation_named(augment)(images(batch.x, f"augment={augment}")),), batch.y)
    return Batch(tuple(augment(t) for t in batch.x), batch.y)  # a user's own knows its inputs


__all__ = ["AUGMENTATIONS", "augmentation_named", "augmented", "autoaugment", "cutout", "randconv"]
