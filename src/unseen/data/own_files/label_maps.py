"""Labels that are images of class indices, for segmentation; 255 is ignored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from unseen.data.own_files.facts import gather_facts
from unseen.data.own_files.image import read_label_map
from unseen.data.own_files.labels import IGNORED_PIXEL
from unseen.data.own_files.readers import Fact, Reader
from unseen.errors import UnseenError

if TYPE_CHECKING:
    from unseen.data.own_files.collection import Collection


class LabelMapLook(Reader):
    """Looks at label maps: their height, width and number of classes."""

    modality: ClassVar = "image"

    @staticmethod
    def look(path: Path, whole: bool) -> Fact:
        try:
            labels = read_label_map(path, None)
        except UnseenError as error:
            return Fact((), str(error).removeprefix(f"{path} "))
        counted = labels[labels != IGNORED_PIXEL]
        return Fact((*labels.shape, int(counted.max()) + 1 if counted.size else 0))


class MapLabels:
    """The label map of each row, (height, width) of int64; all ignored for a row without one."""

    def __init__(self, paths: Sequence[Path | None], size: tuple[int, int]) -> None:
        self.paths, self.size = paths, size

    def __call__(self, row: int) -> Tensor:
        path = self.paths[row]
        if path is None:
            return torch.full(self.size, IGNORED_PIXEL)
        return torch.from_numpy(read_label_map(path, self.size).astype(np.int64))


def label_paths(made: Collection) -> list[Path | None]:
    """Return the file of each row's label map."""
    return [made.manifest.label_file(row.label) if row.label else None for row in made.rows]


def check_maps(made: Collection, known: int | None) -> list[str]:
    """Add label maps that cannot be used; return the names of the classes.

    Args:
        known: number of classes of the run that these data are targets of.
    """
    rows = [i for i, row in enumerate(made.rows) if row.label]
    paths = [made.manifest.label_file(made.rows[i].label) for i in rows]
    title = f"label maps of {made.manifest.path.resolve()}"
    classes, problems = known or 0, made.problems
    for i, path, fact in zip(rows, paths, gather_facts(paths, LabelMapLook, title), strict=True):
        row, image = made.rows[i], made.facts[i]
        if fact is None:
            problems.add("missing label maps", f"{row.where}: {path} does not exist")
        elif fact.problem:
            problems.add("unreadable label maps", f"{row.where}: {row.label}: {fact.problem}")
        elif image is not None and fact.shape[:2] != image.shape and not made.options.size():
            problems.add("label maps of another size than their image", f"{row.where}: {row.label}")
        elif known is not None and fact.shape[2] > known:
            problems.add("unknown labels in targets", f"{row.where}: {fact.shape[2] - 1}")
        elif known is None and row.domain == made.source:
            classes = max(classes, fact.shape[2])
    return [str(number) for number in range(classes)]
