"""The training loop. `fit`, `train` and adaptation all iterate it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from unseen.api import Batch
from unseen.errors import UnseenError
from unseen.nn.finite import check_update, infinities
from unseen.training.progress import TrainingProgress

# From the fraction of steps done to the fraction of the learning rate that is left.
Schedule = str | Callable[[float], float]
LR_SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}

Item = TypeVar("Item")


def training_steps(
    update: Callable[[Item], dict[str, Tensor]],
    batches: Iterable[Item],
    progress: TrainingProgress,
    schedulers: Iterable[LambdaLR] = (),
    *,
    weights: nn.Module | None = None,
    check_at: Callable[[int], bool] = lambda step: False,
    skipped: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Update once per batch and yield the number of the step, from 1, and its logs.

    Continue after `progress.first` steps and stop after `progress.total`. The caller may add to
    `progress.metrics`, which are shown when it asks for the next step.

    The loss must be finite at every step. It is computed before the update, so the weights and
    buffers of `weights` are checked too: after the last step, and where `check_at` says. A step
    that was `skipped`, as one that overflowed in 16 bits is, needs no finite loss.
    """
    constants = infinities({} if weights is None else weights.state_dict())
    with progress:
        for step, batch in zip(
            range(progress.first + 1, progress.total + 1), batches, strict=False
        ):
            try:
                logs = update(batch)
            except UnseenError as error:
                raise UnseenError(f"step {step}: {error}") from error.__cause__
            except RuntimeError as error:  # of torch, such as shapes that do not fit
                shapes = _shapes(batch)
                raise UnseenError(
                    f"step {step} failed on a batch of shape {shapes}: {error}"
                ) from error
            if not skipped():
                progress.metrics["loss"] = finite_loss(logs, step)
            if weights is not None and (step == progress.total or check_at(step)):
                check_update(weights.state_dict(), constants, step)
            for scheduler in schedulers:
                scheduler.step()
            yield step, logs
            progress.show(step)


def finite_loss(logs: dict[str, Tensor], step: int) -> float:
    """Return the loss, or raise an error if it is not finite."""
    loss = float(logs["loss"])
    if not math.isfinite(loss):
        parts = ", ".join(f"{name} {float(value):.3g}" for name, value in logs.items())
        raise UnseenError(
            f"the loss is {loss} at step {step} ({parts}): "
            "lower the learning rates, or look for NaN in the data"
        )
    return loss


def lr_schedulers(
    optimizers: Iterable[Optimizer], schedule: Schedule, steps: int, first: int = 0
) -> list[LambdaLR]:
    """Schedule the learning rates of fresh optimizers, from step `first` of `steps` on."""
    if schedule == "none":
        return []
    factor = LR_SCHEDULES[schedule] if isinstance(schedule, str) else _checked(schedule)
    schedulers = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        schedulers.append(
            LambdaLR(optimizer, lambda done: factor(done / steps), last_epoch=first - 1)
        )
    return schedulers


def _checked(schedule: Callable[[float], float]) -> Callable[[float], float]:
    """Return a user's schedule, which must give a number of at least 0."""

    def factor(done: float) -> float:
        value = schedule(done)
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise UnseenError(
                f"schedule gave {value} after {done:.0%} of the steps: it must give the fraction "
                "of the learning rate that is left, a number of at least 0"
            )
        return float(value)

    return factor


def _shapes(batch: Any) -> str:
    if isinstance(batch, Batch):
        return ", ".join(str(tuple(t.shape)) for t in batch.x)
    return " and ".join(_shapes(part) for part in batch if isinstance(part, Batch))
