"""The training loop that fit, train and adaptation share."""

from __future__ import annotations

import pytest
import torch
from tiny import TinyNet, tiny_batch

import unseen
from unseen import UnseenError
from unseen.training.loop import lr_schedulers, training_steps
from unseen.training.progress import TrainingProgress


def iterate(update, batches, total=3, first=0):
    progress = TrainingProgress("test", total, first, quiet=True)
    return list(training_steps(update, batches, progress))


def test_steps_continue_after_the_first_and_take_no_batch_too_many():
    batches = iter(range(100))
    steps = iterate(lambda batch: {"loss": torch.tensor(float(batch))}, batches, total=5, first=2)
    assert [(step, float(logs["loss"])) for step, logs in steps] == [(3, 0.0), (4, 1.0), (5, 2.0)]
    assert next(batches) == 3


def test_infinite_loss_names_step_and_remedy():
    losses = [torch.tensor(1.0), torch.tensor(torch.inf)]
    with pytest.raises(UnseenError, match=r"loss is inf at step 2 .*lower the learning rates"):
        iterate(lambda loss: {"loss": loss}, losses)


def test_error_of_torch_names_step_and_batch_shape():
    net = unseen.ERM(TinyNet())
    wrong = tiny_batch()._replace(x=(torch.zeros(4, 5, 8, 8),))
    with pytest.raises(UnseenError, match=r'step 1: the model failed at its layer "conv1"'):
        iterate(net.step, [wrong])


def test_fit_names_the_shape_of_a_batch_that_does_not_fit():
    with pytest.raises(UnseenError, match=r"given \(4, 5, 8, 8\) of float32"):
        data = [(torch.zeros(4, 5, 8, 8), torch.zeros(4).long())]
        unseen.fit(unseen.ERM(TinyNet()), data, steps=2, progress=False)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_resumed_schedule_continues_with_the_same_rates(schedule):
    def rates(first, steps=8):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        schedulers = lr_schedulers([optimizer], schedule, steps, first)
        result = []
        for _ in range(first, steps):
            result.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            for scheduler in schedulers:
                scheduler.step()
        return result

    assert rates(0)[0] == 0.1 and rates(0)[3:] == rates(3)
