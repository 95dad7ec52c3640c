"""The views of a batch that one step trains on: clean, or changed by augmentations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseen.api import Batch
from unseen.augmentations.registry import AUGMENTATIONS, moves_pixels
from unseen.augmentations.settings import Transform, check_settings
from unseen.checks import check_int
from unseen.errors import UnseenError
from unseen.nn.batch import gather_batch, take_batch
from unseen.nn.inputs import Inputs, describe_tensors, inputs, map_inputs
from unseen.schema.augment import format_augment, parse_augment, steps_of, views_of

# Names with settings; lists of lists have one list for each view.
Augment = str | dict[str, Any] | Sequence[Any] | Callable[[Tensor], Tensor] | None


class Step(NamedTuple):
    """An augmentation with its settings; a user's function has no name."""

    name: str | None
    function: Transform
    settings: dict[str, Any]


class Views:
    """Turns a batch into the concatenation of its views; labels are repeated.

    One view is the batch after `augment`. Of several, the first is the batch itself and each other
    one is augmented with random numbers of its own; an `augment` with lists in a list has the
    augmentations of every view, the first included.

    Method, BatchNorm and loss see one larger batch: running statistics are those of the mixture,
    as in AugMix, and a step costs as much as one with `views` times the batch size.
    """

    def __init__(self, augment: Augment = None, views: int | None = None) -> None:
        self.augment = augment if callable(augment) else parse_augment(augment)
        own = views_of(self.augment)
        if own is not None and views not in (None, len(own)):
            raise UnseenError(
                f"augment has {len(own)} lists ({format_augment(self.augment)}), one for each "
                f"view, but views is {views}: leave views out, or give one list"
            )
        count = len(own) if own else 1 if views is None else check_int("views", views, 1)
        if own is None:
            steps = steps_of(self.augment)
            if count > 1 and not steps:
                raise UnseenError(
                    f"views={views} needs an augmentation, or every view is the same: "
                    "set augment, to randconv say"
                )
            own = [steps] if count == 1 else [[]] + [steps] * (count - 1)
        self.plan = [[make_step(step) for step in view] for view in own]

    def describe(self) -> list[list[dict[str, Any]]]:
        """Return name and settings of the augmentations of each view, for a checkpoint."""
        return [[{"name": s.name or "own", **s.settings} for s in view] for view in self.plan]

    def __call__(self, batch: Batch) -> Batch:
        batch = batch if isinstance(batch, Batch) else Batch.of(batch)
        if not any(self.plan):
            return batch
        # Processes that share a batch augment all of it, with the random numbers of one process.
        batch = gather_batch(batch)
        made = [_apply_all(steps, batch) for steps in self.plan]
        return take_batch(made[0] if len(made) == 1 else concatenate(made))


def make_step(step: Any) -> Step:
    """Return the function of a name, of a table or of a user's own function; check settings."""
    if callable(step):
        return Step(None, step, {})
    name = step.get("name") if isinstance(step, dict) else step
    if not isinstance(name, str) or name not in AUGMENTATIONS:
        raise UnseenError(f'no augmentation "{name}"; there are: {", ".join(AUGMENTATIONS)}')
    settings = {n: v for n, v in step.items() if n != "name"} if isinstance(step, dict) else {}
    check_settings(AUGMENTATIONS[name], settings, f"augment: {name}")
    return Step(name, AUGMENTATIONS[name], settings)


def augment_batch(batch: Batch, augment: Augment, views: int | None = None) -> Batch:
    """Apply augmentations in order to the inputs of a batch; labels are unchanged."""
    return Views(augment, views)(batch)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Put batches behind each other; a tensor without one row for each sample stays whole."""
    first, samples = batches[0], len(batches[0].y)
    tensors = [
        torch.cat(parts) if parts[0].shape[:1] == (samples,) else parts[0]
        for parts in zip(*(b.x for b in batches), strict=True)
    ]
    return Batch(Inputs.like(first.x, tensors), torch.cat([b.y for b in batches]))


def _apply_all(steps: Sequence[Step], batch: Batch) -> Batch:
    for step in steps:
        if step.name is None:
            batch = Batch(_apply_own(step.function, batch.x), batch.y)
            continue
        if batch.y.dim() > 1 and moves_pixels(step.name, step.settings):
            raise UnseenError(
                f"augment={step.name} moves pixels of the images but not of the label maps: "
                "use one that keeps them in place, such as randconv"
            )
        if len(batch.x) != 1:
            raise UnseenError(
                f"augment={step.name} needs one input; this model is given "
                f"{describe_tensors(batch.x)}"
            )
        batch = Batch(Inputs.like(batch.x, [step.function(batch.x[0], **step.settings)]), batch.y)
    return batch


def _apply_own(augment: Callable[[Tensor], Tensor], x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Apply a user's function; its inputs are its own."""
    try:
        out = map_inputs(augment, x)
    except Exception as error:  # it may raise anything
        raise UnseenError(
            f"the function given as augment failed on {describe_tensors(x)}: "
            f"{type(error).__name__}: {error}; it takes and returns one tensor"
        ) from error
    return inputs(out)
