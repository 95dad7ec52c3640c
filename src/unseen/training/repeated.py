"""A user's loader, repeated; its place and its random state can be restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from unseen.api import Batch
from unseen.errors import UnseenError
from unseen.nn.batch import batches_from, iterate

START, TAKEN, OWN = "loader/random", "loader/taken", "loader/generator"
EPOCH = "loader/epoch"


class RepeatedLoader:
    """Iterate the batches of a loader, over and over.

    A loader that shuffles draws its order from torch's global generator, or from its own, at the
    start of an epoch. Both are kept, so that an epoch can be repeated up to the place of a
    checkpoint.
    """

    def __init__(
        self, loader: Iterable[Any], at_epoch: Callable[[int], object] = lambda epoch: None
    ) -> None:
        """`at_epoch` is called with the number of each epoch, from 0, before it begins."""
        self.loader, self.at_epoch, self.epoch = loader, at_epoch, 0
        self.taken = 0  # batches of this epoch
        self.skip = 0  # batches to pass over before the first
        self.start: dict[str, Tensor] = {}  # random state at the start of the epoch
        generator = getattr(loader, "generator", None)
        self.generator = generator if isinstance(generator, torch.Generator) else None

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self.taken = self.skip
            if not self.skip:
                self.start = self._random_state()
            self.at_epoch(self.epoch)
            for batch in batches_from(self._from_place(), "loader"):
                self.taken += 1
                yield batch
            if not self.taken:
                raise UnseenError(
                    "the loader yielded no batch: is it a generator, which can be iterated only "
                    "once, or has it drop_last=True and too few samples?"
                )
            self.epoch += 1

    def _from_place(self) -> Iterable[Any]:
        """Yield what the loader yields, from the place of the checkpoint on."""
        skip, self.skip = self.skip, 0
        if not skip:
            yield from iterate(self.loader, "loader")
            return
        now = self._random_state()
        self._set_random_state(self.start)
        items = iterate(self.loader, "loader")
        for _ in range(skip):
            if next(items, None) is None:
                raise UnseenError(
                    f"the loader has fewer than the {skip} batches of the epoch that the "
                    "checkpoint was written in: give the same loader"
                )
        torch.set_rng_state(now[START])
        yield from items

    def state(self) -> dict[str, Tensor]:
        """Return the place for a checkpoint."""
        return {
            **self.start, TAKEN: torch.tensor(self.taken), EPOCH: torch.tensor(self.epoch)
        }  # fmt: skip

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state`."""
        self.skip = int(state[TAKEN])
        self.epoch = int(state.get(EPOCH, 0))  # files of version 0.2 have none
        self.start = {name: state[name] for name in (START, OWN) if name in state}

    def _random_state(self) -> dict[str, Tensor]:
        own = {} if self.generator is None else {OWN: self.generator.get_state()}
        return {START: torch.get_rng_state(), **own}

    def _set_random_state(self, state: Mapping[str, Tensor]) -> None:
        torch.set_rng_state(state[START])
        if self.generator is not None and OWN in state:
            self.generator.set_state(state[OWN])
