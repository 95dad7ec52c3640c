"""Exponential moving average of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

PREFIX, UPDATES = "average/", "average_updates"


class WeightAverage:
    """Average of a module's weights and buffers; integers are those of the last step.

    The decay of update n is min(decay, (1 + n) / (10 + n)): the first steps are forgotten soon.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.values = _copy(module)

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Add the weights of one step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        own, new = [], []
        for name, t in module.state_dict().items():
            if not isinstance(t, Tensor):
                continue
            if t.is_floating_point() and t.isfinite().all():
                own.append(self.values[name])
                new.append(t)
            else:  # a mask of infinities does not change
                self.values[name].copy_(t)
        get_ema_multi_avg_fn(decay)(own, new, None)
        self.updates += 1

    @contextmanager
    def applied(self, module: nn.Module) -> Iterator[None]:
        """Give the module the average while the context is open."""
        raw = _copy(module)
        _load(module, self.values)
        try:
            yield
        finally:
            _load(module, raw)

    def replace(self, module: nn.Module) -> dict[str, Tensor]:
        """Give the module the average for good; return the weights that it had."""
        raw = _copy(module)
        _load(module, self.values)
        return raw

    def state(self) -> dict[str, Tensor]:
        """Return the average for a checkpoint."""
        named = {f"{PREFIX}{name}": t for name, t in self.values.items()}
        return {**named, UPDATES: torch.tensor(self.updates)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`; KeyError if the checkpoint has none."""
        for name, t in self.values.items():
            t.copy_(state[f"{PREFIX}{name}"])
        self.updates = int(state[UPDATES])


class RawWeights:
    """The weights that training goes on from, of a method that has their average since a fit."""

    def __init__(self, average: WeightAverage, raw: dict[str, Tensor]) -> None:
        self.average, self.raw = average, raw

    def restore(self, module: nn.Module) -> bool:
        """Give the module these weights, unless it has changed since; return whether it has not."""
        now = module.state_dict()
        same = all(
            name in now and torch.equal(t.to(now[name].device), now[name])
            for name, t in self.average.values.items()
        )
        if same:
            _load(module, self.raw)
        return same


def _copy(module: nn.Module) -> dict[str, Tensor]:
    state = module.state_dict()
    return {name: t.detach().clone() for name, t in state.items() if isinstance(t, Tensor)}


@torch.no_grad()
def _load(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, t in module.state_dict().items():
        if name in values:
            t.copy_(values[name])
