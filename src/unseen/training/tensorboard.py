"""A run's records as TensorBoard curves: the event files are made from the records, so both always tell the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from unseen.errors import UnseenError

NEEDED = "--tensorboard needs the package tensorboard, which cannot be imported here ({why}): pip install 'unseen[tensorboard]'"


class Curves:
    """Event files in a folder, a curve for each split and metric; with no folder, nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.writer: Any = None
        if folder is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except Exception as error:  # a broken protobuf raises a TypeError
                raise UnseenError(NEEDED.format(why=error)) from error
            self._open = SummaryWriter

    def __enter__(self) -> Curves:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.writer is not None:
            self.writer.close()

    def restart(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write the curves anew from the records: a resumed run goes on where its checkpoint is, with no step told twice."""
        if self.folder is None:
            return
        for old in self.folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.writer = self._open(str(self.folder))
        self.add(records)

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Go on with these."""
        if self.writer is None:
            return
        for record in records:
            self.writer.add_scalar(
                f"{record['split']}/{record['metric']}", record["value"], record["step"]
            )
        self.writer.flush()
