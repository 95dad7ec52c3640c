"""What the loop does around every update: precision, clipping, averaging, learning rates."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from unseen.api import Batch, Method
from unseen.errors import UnseenError
from unseen.nn.attack import attacked
from unseen.nn.precision import end_of_step
from unseen.nn.ranks import ALONE, Ranks
from unseen.nn.recomputation import check_recomputable, recomputing
from unseen.nn.synchronized import has_batch_norm
from unseen.training.averaging import PREFIX, UPDATES, RawWeights, WeightAverage
from unseen.training.config import LoopSettings
from unseen.training.distributed import Processes
from unseen.training.loop import Schedule, lr_schedulers

log = logging.getLogger("unseen")

SCALER = "scaler/"
BALL_STEPS = 3  # of half the ball each: from anywhere in it to its surface


class Updates:
    """Updates of a method by the settings of a loop; `unseen.fit` and runs make them all here.

    Between steps the method has the weights that are trained. `averaged` gives it the average of
    them, if the settings ask for one, for as long as it is evaluated.
    """

    def __init__(
        self,
        net: Method,
        loop: LoopSettings,
        schedule: Schedule | None = None,
        processes: Ranks = ALONE,
    ) -> None:
        self.net, self.loop, self.processes = net, loop, processes
        self.schedule: Schedule = schedule or loop.lr_schedule
        self.average: WeightAverage | None = None
        self.skipped = False  # the last step, by the scaler of fp16
        earlier = _train_from_raw_weights(net)
        if loop.ema is not None:
            self.average = earlier or WeightAverage(net, loop.ema)
            self.average.decay = loop.ema
        self.scaler = torch.amp.GradScaler(net.device.type) if loop.amp == "fp16" else None
        if loop.amp == "fp16" and net.device.type == "cpu":
            log.warning('amp="fp16" is made for CUDA: on a CPU "bf16" needs no scaled loss')
        if loop.amp == "fp16" and (order := second_order(net)):
            raise UnseenError(
                f'amp="fp16" has no second-order meta step: set {order}, or use amp="bf16"'
            )
        if loop.activation_checkpointing:
            check_recomputable(net.model)
        if loop.microbatch is not None and has_batch_norm(net.model):
            log.warning(
                "microbatch=%d: BatchNorm normalizes each microbatch by itself, so the weights are "
                "not those of training without microbatch; layers without this are GroupNorm and "
                "LayerNorm, and BatchNorm in eval mode",
                loop.microbatch,
            )

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Update once."""
        if isinstance(self.processes, Processes):
            with self.processes.sharing(self.net, batch):
                logs = self._step(batch)
            logs = self.processes.average_logs(logs)
        else:
            logs = self._step(batch)
        if self.scaler is not None:
            self.skipped = end_of_step(self.scaler, self.net.name)
        if self.average is not None and not self.skipped:
            self.average.update(self.net)
        return logs

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        net, loop = self.net, self.loop
        if loop.ball is not None:
            with self._saving_memory():
                batch = attacked(net, batch, loop.ball, loop.ball / 2, BALL_STEPS)
        with self._saving_memory() as opened:
            if loop.amp is not None:
                opened.enter_context(net.mixed_precision(net.model, loop.amp, self.scaler))
            return net.step(batch)

    @contextmanager
    def _saving_memory(self) -> Iterator[ExitStack]:
        """Divide batches and recompute activations; raise if what follows divides no batch."""
        with ExitStack() as opened:
            if self.loop.microbatch is not None:
                opened.enter_context(self.net.dividing(self.loop.microbatch))
            if self.loop.activation_checkpointing:
                opened.enter_context(recomputing(self.net.model))
            yield opened

    @contextmanager
    def running(self, first: int = 0) -> Iterator[list[Any]]:
        """Clip gradients and schedule learning rates while the context is open.

        Yields the schedulers, for the loop to step. Learning rates are restored on exit.
        """
        optimizers = list(self.net.optimizers().values())
        handles = []
        if self.processes.size > 1:  # before they are clipped
            handles = [o.register_step_pre_hook(self._average_gradients) for o in optimizers]
        if self.loop.clip is not None:
            hook = partial(clip_gradients, self.loop.clip)
            handles += [o.register_step_pre_hook(hook) for o in optimizers]
        try:
            yield lr_schedulers(optimizers, self.schedule, self.loop.steps, first)
        finally:
            for handle in handles:
                handle.remove()
            for group in (g for o in optimizers for g in o.param_groups):
                group["lr"] = group.pop("initial_lr", group["lr"])

    def _average_gradients(self, optimizer: Optimizer, *_: Any) -> None:
        self.processes.average_gradients(optimizer)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the method its averaged weights while the context is open."""
        if self.average is None:
            yield
            return
        with self.average.applied(self.net):
            yield

    def finish(self) -> None:
        """Give the method its averaged weights; a later fit goes on from those before."""
        if self.average is not None:
            self.net.__dict__["_raw_weights"] = RawWeights(
                self.average, self.average.replace(self.net)
            )

    def state(self) -> dict[str, Tensor]:
        """Return the average and the scale, for a checkpoint."""
        state = {} if self.average is None else self.average.state()
        for name, value in ({} if self.scaler is None else self.scaler.state_dict()).items():
            state[f"{SCALER}{name}"] = torch.tensor(value, dtype=torch.float64)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        if self.average is not None:
            self.average.load_state(state)
        if self.scaler is not None:
            saved = {n: t.item() for n, t in state.items() if n.startswith(SCALER)}
            kinds = {name: type(value) for name, value in self.scaler.state_dict().items()}
            self.scaler.load_state_dict(
                {name: kind(saved[f"{SCALER}{name}"]) for name, kind in kinds.items()}
            )


def is_of_updates(name: str) -> bool:
    """Return whether a tensor of a checkpoint was written by `Updates.state`."""
    return name.startswith((PREFIX, SCALER)) or name == UPDATES


def clip_gradients(limit: float, optimizer: Optimizer, *_: Any) -> None:
    """Scale the gradients of an optimizer down to this norm; an infinite one stays as it is."""
    held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in held if p.grad is not None])
    if norm.isfinite():  # an overflow is reported by the loop, not hidden as NaN
        torch.nn.utils.clip_grads_with_norm_(held, limit, norm)


def second_order(net: Method) -> str | None:
    """Return the setting that makes a method's meta step first order, if it is second order."""
    if getattr(net, "meta", None) == "second":
        return 'meta="first"'
    return "order=1" if getattr(net, "order", None) == 2 else None


def train_mode(net: Method) -> None:
    """Put a method in train mode; layers that the user put in eval mode stay in it.

    A model that is in eval mode as a whole, as pretrained ones are, is trained as a whole.
    """
    layers = dict(net.model.named_modules())
    if any(layer.training for layer in layers.values()):
        kept = {name for name, layer in layers.items() if not layer.training}
        net.__dict__["_kept_in_eval"] = kept
    net.train()
    for name in net.__dict__.get("_kept_in_eval", ()):
        layers[name].training = False


def _train_from_raw_weights(net: Method) -> WeightAverage | None:
    """Give a method with averaged weights those that were trained; return the average."""
    kept: RawWeights | None = net.__dict__.pop("_raw_weights", None)
    return kept.average if kept is not None and kept.restore(net) else None
