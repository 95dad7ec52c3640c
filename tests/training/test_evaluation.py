"""Metrics over a data set: slow twins, and `predict` as the only source of predictions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from toy_domains import BarNet, bars, make

from unseen import ERM, METHODS, UnseenError
from unseen.experiments.adapt import adapt
from unseen.experiments.evaluate import evaluate
from unseen.training.evaluation import confusion_over, evaluate_metric
from unseen.training.run import Run
from unseen.training.train import train


class CopyInput(nn.Module):
    """Predicts the class that each pixel of the input names."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return nn.functional.one_hot(x[:, 0].long(), self.classes).movedim(-1, 1).float()


def test_metrics_of_label_maps_match_slow_counting():
    generator = torch.Generator().manual_seed(0)
    guess, truth = (torch.randint(4, (300, 5, 6), generator=generator) for _ in range(2))
    truth[torch.rand(truth.shape, generator=generator) < 0.2] = 255
    data = TensorDataset(guess[:, None].float(), truth)
    result = evaluate_metric("miou", CopyInput(6), data, ignore=255)
    slow = []
    for label in range(4):
        counted = truth != 255
        both = int(((guess == label) & (truth == label)).sum())
        either = int((((guess == label) & counted) | (truth == label)).sum())
        slow.append(both / either)
    assert result.value == pytest.approx(sum(slow) / 4) and result.n == 300
    assert result.per_class[:4] == pytest.approx(slow)
    assert all(map(math.isnan, result.per_class[4:]))
    counts, _ = confusion_over(CopyInput(6), data, ignore=255)
    assert int(counts.sum()) == int((truth != 255).sum())
    expected = float((guess == truth)[truth != 255].float().mean())
    measured = evaluate_metric("accuracy", CopyInput(6), data, ignore=255).value
    assert measured == pytest.approx(expected)


def test_labels_that_do_not_count_or_do_not_fit_are_refused():
    x = torch.zeros(2, 1, 3, 3)
    ignored = TensorDataset(x, torch.full((2, 3, 3), 255))
    with pytest.raises(UnseenError, match="no labels that count"):
        evaluate_metric("miou", CopyInput(3), ignored, ignore=255)
    outside = TensorDataset(x, torch.tensor([[[0, 7, 0]] * 3] * 2))
    text = "labels run from 0 to 7; a model with 3 outputs takes 0 to 2"
    with pytest.raises(UnseenError, match=text):
        evaluate_metric("miou", CopyInput(3), outside, ignore=255)


class Contrary(ERM):
    """Predicts class 2 whatever its model says."""

    def predict(self, x):
        return nn.functional.one_hot(torch.full((len(x[0]),), 2), 3).float()


def test_evaluate_metric_uses_predict():
    x, y = bars(60, 1)
    value = evaluate_metric("accuracy", Contrary(BarNet()), TensorDataset(x, y)).value
    assert value == pytest.approx(float((y == 2).float().mean()))


SAMPLED = {"bnn": {"sigma_start": 4.0, "kl_weight": 1.0}, "mc_dropout": {"rate": 0.8}}


@pytest.fixture(scope="module", params=SAMPLED)
def sampled_run(request, tmp_path_factory):
    """A run whose predictions differ from those of its model."""
    overrides = {"steps": 30, "passes": 2, **SAMPLED[request.param]}
    folder = tmp_path_factory.mktemp("runs") / request.param
    return train(make(), request.param, folder, overrides=overrides, progress=False)


def test_evaluate_uses_predict(sampled_run):
    task = make()
    result, net = evaluate(sampled_run, task), sampled_run.load(task)
    differs = False
    for domain in task.targets:
        x, y = domain.load("test").tensors
        expected = float((net.predict(x).argmax(1) == y).float().mean())
        assert result["domains"][domain.name]["accuracy"] == pytest.approx(expected)
        with torch.no_grad():
            differs |= expected != float((net.model(x).argmax(1) == y).float().mean())
    assert differs  # otherwise the test shows nothing


def test_validation_accuracy_uses_predict(sampled_run):
    task = make()
    x, y = task.source.load("val").tensors
    expected = float((sampled_run.load(task).predict(x).argmax(1) == y).float().mean())
    last = [r for r in sampled_run.records() if r["split"] == "val"][-1]
    assert last["value"] == pytest.approx(expected)


def test_adaptation_is_evaluated_by_predict(sampled_run, tmp_path):
    out = tmp_path / "adapted"
    result = adapt(
        sampled_run, make(), "grainy", 3, draws=1, settings={"steps": 3}, out=out, progress=False
    )
    measured = evaluate(Run(out), make())["domains"]["grainy"]["accuracy"]
    assert result["after"] == [pytest.approx(measured)]


def test_every_method_has_an_evaluation_by_predict():
    x, y = bars(20, 1)
    for name, kind in METHODS.items():
        net = kind(BarNet(), sites="conv1", embedding="fc1")
        expected = float((net.predict(x).argmax(1) == y).float().mean())
        value = evaluate_metric("accuracy", net, TensorDataset(x, y)).value
        assert value == pytest.approx(expected), name
