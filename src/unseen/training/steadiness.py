"""Compare a method with ERM, which it is until the end of its warm-up."""

from __future__ import annotations

import math

from unseen.api import Method
from unseen.training.history import History

TOLERATED = 0.02  # loss of accuracy, on the few samples that are watched
TOLERATED_RATIO = 1.1  # of losses


class Steadiness:
    """Keeps the source metric at the end of the warm-up; `warning` compares the last one with it.

    `step` is the last step of the warm-up, None if the fit does not pass it.
    """

    def __init__(self, net: Method, total: int, history: History) -> None:
        done = len(history)  # of a fit that is resumed
        left = getattr(net, "warmup", 0) - int(net.steps_done) + done
        self.step = left if 0 < left < total else None
        self.classifies = net.objective.classifies
        name = "source_accuracy" if self.classifies else "source_loss"
        known = name in history.columns and left <= done
        self.before = history[name][left - 1] if self.step and known else math.nan

    def warning(self, after: float) -> str | None:
        """Return what to do if the method ends worse on the source than ERM was."""
        if self.step is None or not math.isfinite(self.before):
            return None
        if self.classifies:
            name, worse = "accuracy", after < self.before - TOLERATED
        else:
            name, worse = "loss", after > TOLERATED_RATIO * self.before
        if not worse:
            return None
        return (
            f"the source {name} is {after:.2f} at the end, it was {self.before:.2f} for ERM at the "
            f"end of the warm-up (step {self.step}): the noise is too strong for so short a "
            "training. Raise steps; or lower noise.scale or adversary.rounds; or set ema=0.99"
        )
