"""Batch transforms that any method can take: images (N, C, H, W) in 0..1 to images of the same shape and range.

Random numbers come from torch's global generator, which a checkpoint holds: a resumed run draws what it would have drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from unseen.api import Batch, images
from unseen.augmentations.auto_augment import autoaugment
from unseen.augmentations.cut_out import cutout
from unseen.augmentations.flip_and_crop import flip_crop
from unseen.augmentations.random_convolution import randconv
from unseen.errors import UnseenError

AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cutout": cutout,
    "autoaugment": autoaugment,
    "randconv": randconv,
    "flip_crop": flip_crop,
}
MOVING = ("autoaugment", "flip_crop")  # these move pixels, so a map of labels would no longer fit
Augment = str | Sequence[str] | Callable[[Tensor], Tensor] | None


def augmentations_named(names: str | Sequence[str] | None) -> list[str]:
    """The names as a list, each known, or an error that lists them all."""
    wanted = [] if names is None else [names] if isinstance(names, str) else names
    for name in wanted if isinstance(wanted, list | tuple) else [wanted]:
        if not isinstance(name, str) or name not in AUGMENTATIONS:
            raise UnseenError(f'no augmentation "{name}"; there are: {", ".join(AUGMENTATIONS)}')
    return list(wanted)


def augmented(batch: Batch, augment: Augment) -> Batch:
    """The batch with its images transformed, by one name after the other; the labels stay."""
    if callable(augment):
        return Batch(tuple(augment(t) for t in batch.x), batch.y)  # a user's own knows its inputs
    for name in augmentations_named(augment):
        if name in MOVING and batch.y.dim() > 1:
            raise UnseenError(
                f"augment={name} moves the pixels of images, not of label maps: use cutout or randconv"
            )
        batch = Batch((AUGMENTATIONS[name](images(batch.x, f"augment={name}")),), batch.y)
    return batch


__all__ = [
    "AUGMENTATIONS",
    "Augment",
    "augmentations_named",
    "augmented",
    "autoaugment",
    "cutout",
    "flip_crop",
    "randconv",
]
