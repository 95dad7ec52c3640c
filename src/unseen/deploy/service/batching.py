"""Gather requests into batches: one thread for the model, one that makes the state durable.

While the model runs, requests wait in a queue; the next batch takes as many as fit. The second
thread writes the journal of batch k while the model computes batch k + 1, and then answers.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from unseen.deploy.service.problems import Problem, overloaded


@dataclass
class Item:
    """One request on its way through the model."""

    content: Any
    n: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    dropped: bool = False  # nobody waits for it any more
    since: float = field(default_factory=time.monotonic)


Outcome = tuple[Item, Any]  # a result, or an exception
Compute = Callable[[Sequence[Item]], tuple[list[Outcome], Callable[[], None]]]


class Batcher:
    """Runs batches of requests.

    Args:
        compute: gets the items of a batch; returns outcomes, and a function that makes the changed
            state durable. Answers are sent after that function.
        max_batch: samples in a batch; a request with more is a batch of its own.
        max_wait: seconds to wait for more requests if the model is idle.
        max_queue: samples that may wait.
    """

    def __init__(
        self, compute: Compute, *, max_batch: int, max_wait: float, max_queue: int
    ) -> None:
        self._compute = compute
        self.max_batch, self.max_wait, self.max_queue = max_batch, max_wait, max_queue
        self._waiting: deque[Item] = deque()
        self._samples = 0  # that wait
        self._changed = threading.Condition()
        self._closing = False
        # Bounded: if the disk is slow, the model waits instead of running ahead.
        self._finished: queue.Queue[Any] = queue.Queue(maxsize=2)
        self._threads = [
            threading.Thread(target=self._run, name="unseen-model", daemon=True),
            threading.Thread(target=self._answer, name="unseen-commit", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Number of samples in the queue."""
        return self._samples

    async def submit(self, content: Any, n: int, seconds: float) -> Any:
        """Return the outcome of a request; raise Problem if the queue is full or time is up."""
        loop = asyncio.get_running_loop()
        item = Item(content, n, loop, loop.create_future())
        with self._changed:
            if self._closing:
                raise overloaded("the service is stopping or reloading: try again")
            if self._samples and self._samples + n > self.max_queue:
                raise overloaded(
                    f"{self._samples} samples are waiting, at most {self.max_queue} may: try again"
                )
            self._waiting.append(item)
            self._samples += n
            self._changed.notify()
        try:
            return await asyncio.wait_for(item.future, seconds)
        except asyncio.TimeoutError:
            item.dropped = True
            raise Problem(
                503, "answer_timeout", f"no answer within {seconds:g} s: try again", retry=1
            ) from None
        except asyncio.CancelledError:
            item.dropped = True
            raise

    def close(self) -> None:
        """Finish what is waiting, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        for thread in self._threads:
            thread.join()

    def _take(self) -> list[Item]:
        """Return the next batch; an empty one at the end."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            if not self._waiting:
                return []
            end = self._waiting[0].since + self.max_wait
            while self._samples < self.max_batch and not self._closing:
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            taken: list[Item] = []
            size = 0
            while self._waiting and (not taken or size + self._waiting[0].n <= self.max_batch):
                item = self._waiting.popleft()
                size += item.n
                self._samples -= item.n
                taken.append(item)
            return taken

    def _run(self) -> None:
        while taken := self._take():
            items = [item for item in taken if not item.dropped]
            if items:
                try:
                    self._finished.put(self._compute(items))
                except BaseException as error:
                    self._finished.put(([(item, error) for item in items], lambda: None))
        self._finished.put(None)

    def _answer(self) -> None:
        while (done := self._finished.get()) is not None:
            outcomes, commit = done
            try:
                commit()
            except BaseException as error:
                reason = f"the state cannot be saved: {error}"
                failure = Problem(503, "state_not_saved", reason, retry=5)
                outcomes = [(item, failure) for item, _ in outcomes]
            by_loop: dict[Any, list[Outcome]] = {}
            for item, result in outcomes:
                by_loop.setdefault(item.loop, []).append((item, result))
            for loop, group in by_loop.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_resolve, group)


def _resolve(outcomes: Sequence[Outcome]) -> None:
    for item, result in outcomes:
        if item.future.done():
            continue
        if isinstance(result, BaseException):
            item.future.set_exception(result)
        else:
            item.future.set_result(result)
