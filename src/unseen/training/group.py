"""The processes that torchrun started for one run: joining, starting alike, following."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from unseen.api import Batch
from unseen.errors import UnseenError
from unseen.nn.ranks import Ranks
from unseen.training.checkpoint import restore_training_state, training_state
from unseen.training.distributed import Processes
from unseen.training.loop import training_steps
from unseen.training.machine import pick_device
from unseen.training.progress import TrainingProgress
from unseen.training.updates import Updates

TIMEOUT = timedelta(minutes=30)  # of an exchange; process 0 evaluates while the others wait


def started_by_torchrun() -> bool:
    """Return whether torchrun started this process as one of several."""
    known = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)
    return known and int(os.environ["WORLD_SIZE"]) > 1


@contextmanager
def process_group(device: str = "auto") -> Iterator[bool]:
    """Join the processes that torchrun started; yield whether this one writes and speaks.

    A group that is there already is used as it is.
    """
    if not dist.is_available() or dist.is_initialized() or not started_by_torchrun():
        yield not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0
        return
    # Its functions take the group that is there when they are imported as their default, and what
    # trains imports it: a group that they hold outlives its end, and its threads abort the process.
    from torch.distributed import nn  # noqa: F401

    on_gpu = pick_device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=TIMEOUT)
    try:
        with first_speaks():
            yield dist.get_rank() == 0
    finally:
        dist.destroy_process_group()


@contextmanager
def first_speaks() -> Iterator[None]:
    """Leave messages to process 0 of the group, if there is one: the others say the same."""
    logger = logging.getLogger("unseen")
    before = logger.level
    if dist.is_available() and dist.is_initialized() and dist.get_rank() > 0:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class Start(NamedTuple):
    """What process 0 tells the others before the first step."""

    run: str  # the identity of the run
    finished: bool = False
    steps: int = 0  # that are done
    state: dict[str, Tensor] | None = None


@contextmanager
def telling_failures(processes: Ranks) -> Iterator[None]:
    """In process 0, before `tell_start`: let the others end with the error of this one."""
    try:
        yield
    except UnseenError as error:
        if isinstance(processes, Processes):
            failure = error

            def fail() -> Any:
                raise failure

            processes.from_leader(fail)
        raise


def tell_start(processes: Ranks, run: str, updates: Updates | None, steps: int = 0) -> None:
    """In process 0: start the others after these steps; without updates the run is finished."""
    if not isinstance(processes, Processes):
        return
    if updates is None:
        processes.from_leader(lambda: Start(run, finished=True))
        return
    state = {**training_state(updates.net), **updates.state()} if steps else None
    processes.from_leader(lambda: Start(run, False, steps, state))
    processes.start(updates.net, {"run": run})


def hear_start(updates: Updates, run: str, path: Path) -> int | None:
    """In the other processes: return after how many steps to start; None if the run is finished.

    `path` names the checkpoint of process 0 in errors.
    """
    processes = updates.processes
    assert isinstance(processes, Processes)
    start = processes.from_leader(lambda: Start(run))
    if start.finished:
        return None
    if start.state is not None:
        restore_training_state(updates.net, start.state, path)
        updates.load_state(start.state)
    processes.start(updates.net, {"run": start.run})
    return start.steps


def follow_steps(updates: Updates, batches: Iterable[Batch], first: int) -> None:
    """Take the steps that process 0 takes and records, and wait until it has finished."""
    silent = TrainingProgress(updates.net.name, updates.loop.steps, first, quiet=True)
    with updates.running(first) as schedulers:
        for _ in training_steps(
            updates.step,
            batches,
            silent,
            schedulers,
            weights=updates.net,
            skipped=lambda: updates.skipped,
        ):
            pass
    updates.processes.everywhere(True)
