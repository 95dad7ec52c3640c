"""TensorBoard event files of a run, written from its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from unseen.errors import UnseenError

MISSING = (
    "--tensorboard needs the package tensorboard, which cannot be imported ({reason}): "
    "pip install 'unseen[tensorboard]'"
)


class Curves:
    """Event files with one curve per split and metric; without a folder, nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.writer: Any = None
        if folder is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except Exception as error:  # a broken protobuf raises a TypeError
                raise UnseenError(MISSING.format(reason=error)) from error
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
        """Rewrite the event files from the records, so that a resumed run repeats no step."""
        if self.folder is None:
            return
        for old in self.folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.writer = self._open(str(self.folder))
        self.add(records)

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records."""
        if self.writer is None:
            return
        for record in records:
            self.writer.add_scalar(
                f"{record['split']}/{record['metric']}", record["value"], record["step"]
            )
        self.writer.flush()
