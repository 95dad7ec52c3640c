"""The network for bags of words, and binarised counts as a part of it."""

from __future__ import annotations

import torch

from unseen.methods import ERM
from unseen.models import ReviewMLP
from unseen.tasks import task_named
from unseen.training.config import resolve
from unseen.training.identity import identity


def test_binarised_counts_hold_in_predictions():
    torch.manual_seed(0)
    counts = torch.randint(4, (6, 20)).float()
    net = ERM(ReviewMLP(20, 5, binarise=True))
    assert torch.equal(net.predict(counts), net.predict(counts.clamp(max=1)))
    net.model.binarise = False
    assert not torch.equal(net.predict(counts), net.predict(counts.clamp(max=1)))


def test_identifier_of_runs_without_binarised_counts_stays():
    task = task_named("amazon_reviews")
    net = ERM(ReviewMLP(20, 5))
    chosen = resolve(task, ERM, "fast", {})
    older = chosen._replace(model={})  # as before the setting
    assert (
        identity(task, net, "fast", chosen, 0)["run"]
        == identity(task, net, "fast", older, 0)["run"]
    )
    binarised = resolve(task, ERM, "fast", {"binarise": True})
    other = identity(task, net, "fast", binarised, 0)
    assert other["run"] != identity(task, net, "fast", chosen, 0)["run"]
    assert other["model"] == {"binarise": True}
