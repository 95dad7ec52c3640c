"""The checkpoint of `unseen.fit`: one file with all that a killed fit needs to continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from unseen.api import Method
from unseen.augmentations.views import Views
from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.nn.tensor_files import read_metadata, read_tensors, tensor_bytes
from unseen.schema import plain
from unseen.training.checkpoint import (
    check_training_state,
    restore_training_state,
    training_state,
)
from unseen.training.distributed import Processes
from unseen.training.history import PREFIX, History
from unseen.training.loop import Schedule
from unseen.training.repeated import RepeatedLoader
from unseen.training.updates import Updates

KIND = "unseen fit 1"


class FitCheckpoint:
    """Writes and restores the state of a fit; does nothing without a path."""

    def __init__(
        self,
        path: Path | None,
        net: Method,
        updates: Updates,
        history: History,
        batches: RepeatedLoader,
        schedule: Schedule,
        views: Views,
    ) -> None:
        self.path, self.net, self.updates = path, net, updates
        self.history, self.batches = history, batches
        name = schedule if isinstance(schedule, str) else "own"
        self.settings: dict[str, Any] = {
            **{"method": net.name, "schedule": name, "settings": plain(net.settings())},
            **{n: getattr(updates.loop, n) for n in ("steps", "ball", "clip", "ema", "amp")},
            "learning rates": _rates(net),
            "augment": plain(views.describe()),
        }

    def due_at(self, step: int) -> bool:
        """Return whether the state is written after this step."""
        loop = self.updates.loop
        return self.path is not None and (step % loop.checkpoint_every == 0 or step == loop.steps)

    def write(self, step: int) -> None:
        """Write the state after a step; a kill leaves the file before it or the new one."""
        assert self.path is not None
        if not self.updates.processes.leads:
            return
        state = training_state(self.net)
        check_training_state(self.net, state, step)
        state |= {**self.updates.state(), **self.history.state(), **self.batches.state()}
        metadata = {"kind": KIND, "step": str(step), "settings": json.dumps(self.settings)}
        write_atomically(self.path, tensor_bytes(state, metadata))

    def restore(self, resume: bool) -> int:
        """Restore the state if there is one; return the number of steps that are done."""
        processes = self.updates.processes
        if isinstance(processes, Processes):  # only process 0 need see the file
            content = processes.from_leader(lambda: self._read(resume))
        else:
            content = self._read(resume)
        return 0 if content is None else self._load(*content)

    def _read(self, resume: bool) -> tuple[dict[str, Tensor], int] | None:
        """Return the state and the number of steps that are done; None if there is no file."""
        path = self.path
        if path is None or not path.exists():
            return None
        if path.is_dir():
            raise UnseenError(f"{path} is a folder; checkpoint names a file")
        if not resume:
            raise UnseenError(
                f"{path} exists already: add resume=True to continue from it, or name another file"
            )
        metadata = read_metadata(path)
        if metadata.get("kind") != KIND or not metadata.get("step", "").isdigit():
            raise UnseenError(f"{path} is not a checkpoint of unseen.fit: name another file")
        self._check_settings(path, metadata)
        return read_tensors(path), int(metadata["step"])

    def _load(self, state: dict[str, Tensor], steps: int) -> int:
        assert self.path is not None
        path = self.path
        # A log that a step does not have is NaN in the history.
        finite = {name: t for name, t in state.items() if not name.startswith(PREFIX)}
        restore_training_state(self.net, finite, path)
        try:
            self.updates.load_state(state)
            self.history.load_state(state)
            self.batches.load_state(state)
        except (KeyError, RuntimeError, ValueError) as error:
            raise UnseenError(
                f"{path} is not a complete checkpoint: {type(error).__name__}: {error}"
            ) from error
        return steps

    def _check_settings(self, path: Path, metadata: dict[str, str]) -> None:
        try:
            before = json.loads(metadata["settings"])
            before.setdefault("ball", None)  # not in older files
            for newer in ("learning rates", "augment"):
                before.setdefault(newer, self.settings[newer])
            pairs = {name: (before[name], value) for name, value in self.settings.items()}
        except (KeyError, ValueError, TypeError) as error:
            raise UnseenError(f"{path} is not a complete checkpoint: no settings") from error
        for name, (old, new) in pairs.items():
            new = json.loads(json.dumps(new))
            if name == "settings" and old != new:  # of the method: name the one that differs
                name = next(n for n in {**old, **new} if old.get(n) != new.get(n))
                old, new = old.get(name), new.get(name)
            if old != new:
                raise UnseenError(
                    f"{path} was written with {name} = {old}, now it is {new}: repeat the "
                    "settings it was started with, or name another file"
                )


def _rates(net: Method) -> dict[str, list[float]]:
    """Return the learning rates of each optimizer, before any schedule; a user's own has them."""
    return {
        name: [float(g.get("initial_lr", g["lr"])) for g in optimizer.param_groups]
        for name, optimizer in net.optimizers().items()
    }
