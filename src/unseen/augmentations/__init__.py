"""Batch transforms: images (N, C, H, W) in 0..1 to images of the same shape and range.

Random numbers come from torch's global generator, whose state is part of a checkpoint, so a resumed
run repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from unseen.api import Batch
from unseen.augmentations.auto_augment import autoaugment
from unseen.augmentations.cut_out import cutout
from unseen.augmentations.flip_and_crop import flip_crop
from unseen.augmentations.random_convolution import randconv
from unseen.errors import UnseenError
from unseen.nn.inputs import Inputs, describe_tensors, images, inputs, map_inputs

AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cutout": cutout,
    "autoaugment": autoaugment,
    "randconv": randconv,
    "flip_crop": flip_crop,
}
GEOMETRIC = ("autoaugment", "flip_crop")  # move pixels, so label maps would no longer match
Augment = str | Sequence[str] | Callable[[Tensor], Tensor] | None


def augmentation_names(names: str | Sequence[str] | None) -> list[str]:
    """Return the names as a list; raise an error that lists all augmentations if one is unknown."""
    wanted = [] if names is None else [names] if isinstance(names, str) else names
    for name in wanted if isinstance(wanted, list | tuple) else [wanted]:
        if not isinstance(name, str) or name not in AUGMENTATIONS:
            raise UnseenError(f'no augmentation "{name}"; there are: {", ".join(AUGMENTATIONS)}')
    return list(wanted)


def augment_batch(batch: Batch, augment: Augment) -> Batch:
    """Apply the augmentations in order to the images of a batch; labels are unchanged."""
    batch = batch if isinstance(batch, Batch) else Batch.of(batch)
    if callable(augment):
        return Batch(_apply(augment, batch.x), batch.y)
    for name in augmentation_names(augment):
        if name in GEOMETRIC and batch.y.dim() > 1:
            raise UnseenError(
                f"augment={name} moves pixels of the images but not of the label maps: "
                "use cutout or randconv"
            )
        x = AUGMENTATIONS[name](images(batch.x, f"augment={name}"))
        batch = Batch(Inputs.like(batch.x, [x]), batch.y)
    return batch


def _apply(augment: Callable[[Tensor], Tensor], x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Apply a user's function; its inputs are its own."""
    try:
        out = map_inputs(augment, x)
    except Exception as error:  # it may raise anything
        raise UnseenError(
            f"the function given as augment failed on {describe_tensors(x)}: "
            f"{type(error).__name__}: {error}; it takes and returns one tensor"
        ) from error
    return inputs(out)


__all__ = [
    "AUGMENTATIONS",
    "Augment",
    "augment_batch",
    "augmentation_names",
    "autoaugment",
    "cutout",
    "flip_crop",
    "randconv",
]
