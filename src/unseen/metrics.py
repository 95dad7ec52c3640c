"""What a prediction is worth."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import Dataset

from unseen.batches import EVALUATION_BATCH, batches_of
from unseen.contracts import Method
from unseen.errors import UnseenError
from unseen.sites import evaluating, laid_out_for


@torch.no_grad()
def accuracy(net: Method | nn.Module, data: Dataset, ignore: int = -100) -> tuple[float, int]:
    """Share of labels met, and how many samples there were."""
    right = labels = samples = 0
    model = net.model if isinstance(net, Method) else net
    with evaluating(model):
        for batch in batches_of(data, EVALUATION_BATCH):
            guess = model(*laid_out_for(model, batch.x)).argmax(1).cpu()
            counted = batch.y != ignore
            right += int(((guess == batch.y) & counted).sum())
            labels += int(counted.sum())
            samples += len(batch.y)
    if not labels:
        raise UnseenError("a domain to evaluate on has no labels that count")
    return right / labels, samples
