"""The samples of a task's domain, to predict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from unseen.api import Task
from unseen.deploy.samples import UNKNOWN, Chunk, Samples, batch_size
from unseen.training.batches import load_split, sample_names, take


class TaskSamples(Samples):
    """The test split of a domain; "source" is the held-out source."""

    def __init__(self, task: Task, domain: str) -> None:
        self.data, self.domain = load_split(task.domain(domain), "test"), domain
        self.total = len(self.data)  # type: ignore[arg-type]
        first = take(self.data, torch.zeros(1, dtype=torch.int64))
        self.batch = batch_size(first.x[0].shape[1:])
        self.identity = {
            "task": task.name, "variant": task.variant, "domain": domain, "samples": self.total,
        }  # fmt: skip
        self.ignore = task.ignore_label
        self.classified = task.metric == "accuracy"

    def references(self, start: int) -> Iterator[int]:
        return iter(range(start, self.total))

    def read(self, references: Sequence[int]) -> Chunk:
        index = torch.tensor(references)
        batch = take(self.data, index)
        labels = torch.full((len(index),), UNKNOWN)
        if self.classified:
            labels = batch.y.where(batch.y != self.ignore, UNKNOWN)
        names = sample_names(self.data, index)
        return Chunk(names, [self.domain] * len(index), labels.numpy(), batch.x)
