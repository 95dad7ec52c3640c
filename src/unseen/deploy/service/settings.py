"""How streams are watched and requests are gathered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unseen.checks import check_fraction, check_int, check_number
from unseen.functional.verdict import RATE, TOLERANCE

SIZE_STEP = 1.5  # ratio of neighbouring sizes with a threshold of the slow score


@dataclass(frozen=True)
class Watching:
    """How streams are watched.

    Parameters
    ----------
    window
        Samples of a domain that are judged together.
    rate
        Maximum rate of alarms by the score on windows of source samples.
    memory
        Length of the slow score, in windows.
    tolerance
        Loss of accuracy against the source that is still fine.
    """

    window: int = 64
    rate: float = RATE
    memory: int = 20
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        check_int("window", self.window, 2)
        check_fraction("rate", self.rate)
        check_int("memory", self.memory, 1)
        check_fraction("tolerance", self.tolerance, zero=True)

    @property
    def decay(self) -> float:
        return 1 - 1 / self.memory

    def size_with_threshold(self, effective: float) -> int:
        """Return the largest size with a threshold up to an effective size."""
        size = self.window
        while (larger := int(size * SIZE_STEP)) <= effective + 1e-6:
            size = larger
        return size

    def sizes(self) -> Iterator[int]:
        """Yield every size that a slow score may have."""
        weight = squares = 0.0
        last = 0
        for _ in range(20 * self.memory):
            weight = self.decay * weight + self.window
            squares = self.decay**2 * squares + self.window
            if (size := self.size_with_threshold(weight**2 / squares)) != last:
                last = size
                yield size


@dataclass(frozen=True)
class Batching:
    """How requests are gathered.

    Parameters
    ----------
    max_batch
        Samples in one pass of the model.
    max_wait
        Milliseconds to wait for more requests if the model is idle.
    """

    max_batch: int = 64
    max_wait: float = 2.0

    def __post_init__(self) -> None:
        check_int("max_batch", self.max_batch, 1)
        check_number("max_wait", self.max_wait, 0)
