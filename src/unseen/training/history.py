"""What a fit has logged."""

from __future__ import annotations

import bisect
import math
import warnings
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from unseen.api import Method
from unseen.errors import UnseenError

PREFIX = "history/"


class History:
    """Logs of every step, by name, and the trained method as `net`.

    Until 0.4 the attributes of the method can be read from a history too, with a
    DeprecationWarning: before 0.3, `unseen.fit` returned the method itself.
    """

    def __init__(self, net: Method) -> None:
        self.net = net
        self.steps: list[int] = []
        self.columns: dict[str, array[float]] = {}  # by name; short where a log has ended

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> list[float]:
        """Return the values of one log, such as "loss"; nan where a step did not log it."""
        if name not in self.columns:
            known = ", ".join(self.columns) or "nothing"
            raise UnseenError(f'the history has no "{name}"; it has: {known}')
        return self._padded(name).tolist()

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __repr__(self) -> str:
        return f"History of {len(self)} steps: {', '.join(self.columns)}"

    def add(self, step: int, logs: Mapping[str, float]) -> None:
        """Add the logs of a step."""
        if not self.steps or self.steps[-1] != step:
            self.steps.append(step)
        for name, value in logs.items():
            column = self.columns.setdefault(name, array("d"))
            column.extend([math.nan] * (len(self.steps) - 1 - len(column)))
            column.append(value)

    def points(self, first: int = 1) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the logs of every step from `first` on, for loggers."""
        for place in range(bisect.bisect_left(self.steps, first), len(self.steps)):
            yield (
                self.steps[place],
                {
                    f"train/{name}": column[place]
                    for name, column in self.columns.items()
                    if place < len(column) and not math.isnan(column[place])
                },
            )

    def to_frame(self) -> Any:
        """Return a pandas.DataFrame with one row per step."""
        try:
            import pandas
        except ImportError:
            raise UnseenError(
                "a data frame needs pandas: pip install pandas; without it, history.columns has "
                "the same numbers"
            ) from None
        columns = {name: self._padded(name) for name in self.columns}
        return pandas.DataFrame(columns, index=pandas.Index(self.steps, name="step"))

    def _padded(self, name: str) -> array[float]:
        column = self.columns[name]
        column.extend([math.nan] * (len(self.steps) - len(column)))
        return column

    def state(self) -> dict[str, Tensor]:
        """Return the logs for a checkpoint."""
        steps = torch.tensor(self.steps, dtype=torch.int64)
        columns = {
            f"{PREFIX}{place:03d}/{name}": torch.tensor(self._padded(name), dtype=torch.float64)
            for place, name in enumerate(self.columns)  # a file has no order
        }
        return {"history_steps": steps, **columns}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.steps = state["history_steps"].tolist()
        self.columns = {
            name.removeprefix(PREFIX).partition("/")[2]: array("d", t.tolist())
            for name, t in sorted(state.items())
            if name.startswith(PREFIX)
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "net":
            raise AttributeError(name)
        value = getattr(self.net, name)
        _warn(name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("net", "steps", "columns"):
            super().__setattr__(name, value)
            return
        _warn(name)
        setattr(self.net, name, value)


def _warn(name: str) -> None:
    warnings.warn(
        f"unseen.fit returns a History: use history.net.{name}, or the method that was given; "
        "0.4 removes this alias",
        DeprecationWarning,
        stacklevel=3,
    )
