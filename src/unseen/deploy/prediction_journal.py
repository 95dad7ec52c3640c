"""The folder of predictions that are not finished: a killed command continues after its last part.

OUT.parts/plan.json    which model and samples, and how many to a part
OUT.parts/000000.npz   predictions of the first part, written whole or not at all
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unseen.deploy.predictions import Part, StoredPart, merged, read_sums
from unseen.deploy.sums import Sums
from unseen.errors import UnseenError
from unseen.files import read_json, write_atomically, write_json

PLAN = "plan.json"
WORK = "work"  # what is locked; the lock is in the folder of the parts, and goes with it
LOCK = f".{WORK}.lock"
WEIGHTS = ("model.safetensors", "source.safetensors")  # of a run; its estimator follows from them


def parts_folder(out: Path) -> Path:
    """Return the folder of the parts of a file."""
    return out.with_name(f"{out.name}.parts")


class Journal:
    """The parts that are done. Whoever makes or removes one holds the lock of `WORK` in its folder.

    Args:
        out: the file that all predictions will be written to.
        plan: model, samples and size of a part.
        restart: discard parts of an earlier command, whatever they are.
    """

    def __init__(self, out: Path, plan: dict[str, Any], restart: bool = False) -> None:
        self.out, self.folder = out, parts_folder(out)
        self.plan = json.loads(json.dumps(plan))
        if restart or not (self.folder / PLAN).exists():
            self._discard()
        if (self.folder / PLAN).exists():
            before = read_json(self.folder / PLAN)
            if changed := [name for name in plan if before.get(name) != self.plan[name]]:
                other = "other samples" if changed[0] == "samples" else f"another {changed[0]}"
                raise UnseenError(
                    f"{self.folder} holds unfinished predictions of {other}: finish them with the "
                    "same options, discard them with --restart, or use another --out"
                )
        else:
            write_json(self.folder / PLAN, self.plan)

    def path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"

    @property
    def done(self) -> int:
        """The number of parts that are done; they are the first ones."""
        number = 0
        while self.path(number).exists():
            number += 1
        return number

    def write(self, number: int, part: Part) -> None:
        write_atomically(self.path(number), part.to_bytes())

    def parts(self, count: int) -> Iterator[StoredPart]:
        """Yield the first parts in order; memory holds one of them."""
        for number in range(count):
            yield StoredPart.read(self.path(number))

    def sums(self, count: int) -> dict[str, Sums]:
        """Return the sums over all samples of each domain."""
        total: dict[str, Sums] = {}
        for number in range(count):
            total = merged(total, read_sums(self.path(number)))
        return total

    def remove(self) -> None:
        """Remove everything, the lock too."""
        self._discard()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _discard(self) -> None:
        """Remove everything but the lock; the plan last, for parts without one may be of any."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        for path in sorted(found, key=lambda path: path.name == PLAN):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != LOCK:
                path.unlink(missing_ok=True)


def model_digest(path: Path) -> str:
    """Return a digest of an exported model, or of the weights and statistics of a run."""
    digest = hashlib.sha256()
    for file in [path / name for name in WEIGHTS] if path.is_dir() else [path]:
        with file.open("rb") as content:
            while block := content.read(2**20):
                digest.update(block)
    return digest.hexdigest()
