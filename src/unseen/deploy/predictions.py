"""Predictions of a part of the samples, and the sums over each of its domains. No torch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from unseen.deploy.reductions import Array
from unseen.deploy.samples import UNKNOWN, Chunk, Samples
from unseen.deploy.scorer import Scorer
from unseen.deploy.seen import LabelKind, Seen
from unseen.deploy.sums import Sums
from unseen.deploy.transport import softmax
from unseen.errors import SampleError, UnseenError

MOST_MAP_CLASSES = 256  # in a PNG of class indices


@dataclass
class Part:
    """Predictions of consecutive samples."""

    start: int  # number of the first sample
    names: list[str] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)  # probabilities or numbers, (N, C)
    scores: list[Array] = field(default_factory=list)
    raw: list[Array] = field(default_factory=list)  # correctness, before its mean is set
    correct: list[Array] = field(default_factory=list)  # (N,) int8: 1, 0 or UNKNOWN
    sums: dict[str, Sums] = field(default_factory=dict)  # by domain

    def add(self, chunk: Chunk, seen: Seen, outputs: Array, sums: dict[str, Sums]) -> None:
        """Add the predictions of a batch."""
        self.names += chunk.names
        self.domains += chunk.domains
        self.outputs.append(outputs)
        self.scores.append(seen.scores)
        if seen.raw_correctness is not None:
            self.raw.append(seen.raw_correctness)
        correct = np.full(seen.n, UNKNOWN, np.int8)
        known = chunk.labels != UNKNOWN
        if known.any():
            correct[known] = seen.logits.argmax(1)[known] == chunk.labels[known]
        self.correct.append(correct)
        self.sums = merged(self.sums, sums)

    def to_bytes(self) -> bytes:
        """Return the content of a .npz file."""
        codes = list(dict.fromkeys(self.domains))
        arrays: dict[str, Any] = {
            "start": np.array(self.start),
            "names": np.array(self.names),
            "domains": np.array(codes),
            "codes": np.array([codes.index(d) for d in self.domains], np.int32),
            "outputs": np.concatenate(self.outputs),
            "scores": np.concatenate(self.scores),
            "correct": np.concatenate(self.correct),
        }
        if self.raw:
            arrays["raw"] = np.concatenate(self.raw)
        for number, name in enumerate(codes):
            for key, array in self.sums[name].to_arrays().items():
                arrays[f"sums/{number}/{key}"] = array
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()


@dataclass(frozen=True)
class StoredPart:
    """A part that was written, without its sums."""

    start: int
    names: Array
    domains: Array  # (N,) names
    outputs: Array
    scores: Array
    raw: Array | None
    correct: Array

    @classmethod
    def read(cls, path: Path) -> StoredPart:
        with np.load(path, allow_pickle=False) as file:
            return cls(
                int(file["start"]),
                file["names"],
                file["domains"][file["codes"]],
                file["outputs"],
                file["scores"],
                file["raw"] if "raw" in file.files else None,
                file["correct"],
            )


def read_sums(path: Path) -> dict[str, Sums]:
    """Return the sums of a part by domain."""
    with np.load(path, allow_pickle=False) as file:
        found = {}
        for number, name in enumerate(file["domains"].tolist()):
            prefix = f"sums/{number}/"
            keys = [key for key in file.files if key.startswith(prefix)]
            found[name] = Sums.from_arrays({k.removeprefix(prefix): file[k] for k in keys})
        return found


def merged(a: dict[str, Sums], b: dict[str, Sums]) -> dict[str, Sums]:
    """Return the sums of both by domain, in order of appearance."""
    result = dict(a)
    for name, sums in b.items():
        result[name] = result[name].merge(sums) if name in result else sums
    return result


def predict_part(
    scorer: Scorer, samples: Samples, references: Iterator[Any], start: int, size: int,
    maps: Path | None = None, on_batch: Callable[[int], None] = lambda number: None,
) -> Part:  # fmt: skip
    """Predict the next `size` samples, whose first one has the number `start`.

    The next batch is read while the model computes.

    Args:
        maps: folder for the PNG files of label maps.
        on_batch: called after each batch with the number of the next sample.
    """
    part, number = Part(start), start
    with ThreadPoolExecutor(1) as ahead:
        waiting = list(islice(references, min(samples.batch, size)))
        reading = ahead.submit(samples.read, waiting)
        while waiting:
            chunk = reading.result()
            left = start + size - number - len(waiting)
            waiting = list(islice(references, min(samples.batch, left)))
            if waiting:
                reading = ahead.submit(samples.read, waiting)
            seen = observe_named(scorer, chunk)
            outputs = outputs_of(scorer.labels, seen)
            if scorer.labels == "map":
                write_maps(seen.logits, maps, number)
            part.add(chunk, seen, outputs, domain_sums(scorer, chunk.domains, seen, number))
            number += len(chunk.names)
            on_batch(number)
    return part


def observe_named(scorer: Scorer, chunk: Chunk) -> Seen:
    """Observe a batch; an error names the sample."""
    try:
        seen = scorer.observe(chunk.x)
    except SampleError as error:
        raise UnseenError(f"{chunk.names[error.sample]}: {error.problem}") from None
    # Now, with its name: the score of a domain of a million samples would not say which one it is.
    with np.errstate(invalid="ignore", over="ignore"):
        outputs = outputs_of(scorer.labels, seen)
    for values in (seen.scores, seen.features, outputs):
        finite = np.isfinite(values).reshape(seen.n, -1).all(1)
        if not finite.all():
            raise UnseenError(
                f"{chunk.names[int(finite.argmin())]}: the outputs of the model are not finite: "
                "look for very large numbers in the sample"
            )
    return seen


def domain_sums(scorer: Scorer, domains: Sequence[str], seen: Seen, start: int) -> dict[str, Sums]:
    """Return the sums over the samples of each domain."""
    names = np.array(domains)
    numbers = np.arange(start, start + len(names), dtype=np.uint64)
    if len(kinds := list(dict.fromkeys(domains))) == 1:
        return {kinds[0]: scorer.sums(seen, numbers)}
    chosen = {name: np.flatnonzero(names == name) for name in kinds}
    return {name: scorer.sums(seen.take(i), numbers[i]) for name, i in chosen.items()}


def outputs_of(labels: LabelKind, seen: Seen) -> Array:
    """Return probabilities of classes or labels, or the predicted numbers, (N, C)."""
    logits = seen.logits
    if labels == "classes":
        return softmax(logits)
    if labels == "several":
        return np.asarray(1 / (1 + np.exp(-logits.reshape(seen.n, -1))))
    if labels == "number":
        return logits.reshape(seen.n, -1)
    return np.zeros((seen.n, 0), np.float32)


def map_name(folder: Path, number: int) -> str:
    """Return the path of a sample's label map, from the folder that holds the predictions."""
    return f"{folder.name}/{number:08d}.png"


def write_maps(logits: Array, folder: Path | None, start: int) -> None:
    """Write a PNG of class indices for each sample."""
    from PIL import Image

    if folder is None or logits.shape[1] > MOST_MAP_CLASSES:
        raise UnseenError(f"label maps are written as PNG, of at most {MOST_MAP_CLASSES} classes")
    folder.mkdir(parents=True, exist_ok=True)
    for number, indices in enumerate(logits.argmax(1).astype(np.uint8), start):
        Image.fromarray(indices).save(folder.parent / map_name(folder, number))
