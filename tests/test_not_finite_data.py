"""Data with NaN or infinity is refused by name: loader or split, batch and sample."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math

import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset
from toy_domains import BarNet, bars, make

import unseen
from unseen import ERM, Domain, DomainMonitor, UncertaintyGuided, UnseenError
from unseen.adaptation import ADAPTATIONS, adapted_model, fine_tune
from unseen.cli import main
from unseen.detection import DETECTORS, AccuracyEstimator
from unseen.detection.source_statistics import SourceStatistics
from unseen.experiments.evaluate import evaluate
from unseen.training.batches import load_split, random_part, subsample
from unseen.training.evaluation import evaluate_metric
from unseen.training.train import train

X, Y = bars(24, seed=0)
NAN, INF = float("nan"), float("inf")


def spoilt(x=X, sample=17, value=NAN):
    x = x.clone()
    x[sample, 0, 2, 3] = value
    return x


def batches(x, y=Y, size=10):
    return list(zip(x.split(size), y.split(size), strict=True))


GOOD, BAD = batches(X), batches(spoilt())
PLACE = "batch index 1, sample index 7: the input holds NaN"


@functools.cache
def _trained():
    torch.manual_seed(0)
    net = UncertaintyGuided(BarNet(), sites=["conv1"], embedding="fc1", draws=1, warmup=0)
    return unseen.fit(net, GOOD, 1, held_out=GOOD, progress=False).net


def trained():
    return copy.deepcopy(_trained())


@pytest.mark.parametrize("progress", [True, False])
def test_fit_names_loader_batch_and_sample(progress):
    net = ERM(BarNet())
    with pytest.raises(UnseenError, match=f"loader, {PLACE}"):
        unseen.fit(net, BAD, 5, held_out=GOOD, progress=progress)
    with pytest.raises(UnseenError, match=f"held_out, {PLACE}"):
        unseen.fit(net, GOOD, 1, held_out=BAD, progress=progress)


@pytest.mark.parametrize("name", sorted(set(DETECTORS) - {"predictive_variance"}))
def test_one_nan_among_the_held_out_samples_is_refused(name):
    """It made the threshold NaN, which no score exceeds."""
    detector = DETECTORS[name](trained())
    with pytest.raises(UnseenError, match=f"held_out, {PLACE}"):
        detector.calibrate(GOOD, BAD)
    with pytest.raises(UnseenError, match=f"the training data, {PLACE}"):
        detector.calibrate(BAD, GOOD)
    assert math.isfinite(detector.calibrate(GOOD, GOOD).threshold(8))


def test_weights_that_are_not_finite_cannot_calibrate_an_alarm():
    net = ERM(BarNet())
    with torch.no_grad():
        net.model.fc2.weight[0] = NAN
    with pytest.raises(UnseenError, match="look for NaN in the weights"):
        unseen.calibrate(net, GOOD, GOOD)


def test_threshold_is_never_nan():
    detector = trained().detector
    mean, held_out = detector.calibrated().mean, detector.calibrated().held_out.clone()
    held_out[3] = NAN
    detector._set(SourceStatistics(mean, held_out))
    with pytest.raises(UnseenError, match="the threshold is nan"):
        detector.threshold(8)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize(
    "entry",
    ["predict", "uncertainty", "predict_with_uncertainty", "domain_score", "alarm"],
)
def test_prediction_and_scores_name_the_sample(entry, value):
    kind = "NaN" if math.isnan(value) else "infinity"
    with pytest.raises(UnseenError, match=f"sample index 17 of the batch: the input holds {kind}"):
        getattr(trained(), entry)(spoilt(value=value))


def test_both_infinities_in_one_batch_are_found():
    x = spoilt(spoilt(value=INF), sample=4, value=-INF)
    with pytest.raises(UnseenError, match="sample index 4 of the batch"):
        trained().predict(x)


def test_large_finite_numbers_are_not_refused():
    """Their sum overflows."""
    assert trained().predict(torch.full((4, 1, 8, 8), 3e38)).shape == (4, 3)


def test_a_step_is_refused_before_it_changes_weights():
    net = ERM(BarNet())
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(UnseenError, match="sample index 17 of the batch"):
        net.step((spoilt(), Y))
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())


def test_monitor_and_estimator_refuse_it():
    monitor = DomainMonitor(trained())
    with pytest.raises(UnseenError, match=r"batch 1 of the stream .* sample index 17"):
        monitor.update(spoilt())
    assert monitor.seen == 0
    with pytest.raises(UnseenError, match=f"held_out, {PLACE}"):
        AccuracyEstimator.fit(trained(), BAD, samples=8)


@pytest.mark.parametrize("name", ADAPTATIONS)
def test_adaptation_names_source_or_target_and_the_sample(name):
    settings = {"steps": 4, "embedding": "fc1", "batch": 12}
    if name == "fada":
        settings["discriminator_steps"] = 1
    good, bad = TensorDataset(X, Y), TensorDataset(spoilt(), Y)
    for role, pair in (("source", (bad, good)), ("target", (good, bad))):
        with pytest.raises(UnseenError, match=f"{role} of {name}: .*sample index 17: "):
            adapted_model(name, BarNet(), *pair, **settings)
    with pytest.raises(UnseenError, match="sample index 17"):
        fine_tune(BarNet(), spoilt(), Y)


# ---- data sets of tasks


class Pairs(Dataset):
    """Samples that are made one by one, unlike those of a TensorDataset."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


@pytest.mark.parametrize("kind", [TensorDataset, Pairs])
def test_evaluation_names_split_and_sample(kind):
    """An image with NaN was counted as an ordinary answer."""
    data = load_split(Domain("street", lambda split: kind(spoilt(), Y)), "test")
    for part in (data, Subset(data, range(10, 24)), subsample(data, 23)):
        with pytest.raises(UnseenError, match="street/test, sample index 17: the input holds NaN"):
            evaluate_metric("accuracy", trained(), part)
    with pytest.raises(UnseenError, match="street/test, sample index 17"):
        random_part(data, 24)


@pytest.mark.parametrize("label", [-1, 3, 99])
def test_evaluation_names_a_label_out_of_range(label):
    y = Y.clone()
    y[17] = label
    data = load_split(Domain("street", lambda split: TensorDataset(X, y)), "test")
    with pytest.raises(UnseenError, match="street/test, sample index 17: labels run from"):
        evaluate_metric("accuracy", BarNet(), data)
    assert evaluate_metric("accuracy", BarNet(), data, ignore=label).n == 23  # labelled


def test_evaluation_refuses_outputs_that_are_nan():
    net = BarNet()
    with torch.no_grad():
        net.fc2.bias[0] = NAN
    with pytest.raises(UnseenError, match="sample index 0: the model's output is NaN"):
        evaluate_metric("accuracy", net, TensorDataset(X, Y))


def with_source(split, x=None, y=None):
    """The toy task with one split of its source replaced."""
    task = make()

    def load(wanted):
        return TensorDataset(x, y) if wanted == split else task.source.load(wanted)

    return dataclasses.replace(task, source=Domain("bars", load))


@pytest.mark.parametrize("split", ["train", "val"])
def test_train_names_split_and_sample(tmp_path, split):
    x, y = bars(400, seed=5)
    with pytest.raises(UnseenError, match=f"bars/{split}, sample index 123: the input holds NaN"):
        train(with_source(split, spoilt(x, 123), y), "erm", tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "done").exists()


def test_train_names_a_label_out_of_range(tmp_path):
    x, y = bars(400, seed=5)
    y[123] = 3
    text = "bars/train, sample index 123: labels run from 0 to 3; a model with 3 outputs"
    with pytest.raises(UnseenError, match=text):
        train(with_source("train", x, y), "erm", tmp_path / "run", progress=False)


TASK = """
import dataclasses
import torch
from torch.utils.data import TensorDataset
from toy_domains import bars, make
from unseen import Domain

def broken(split):
    x, y = bars(50, seed=9)
    x[31] = torch.nan
    return TensorDataset(x, y)

def toy():
    task = make()
    return dataclasses.replace(task, targets=(*task.targets, Domain("broken", broken)))
"""


def test_evaluate_command_exits_with_2(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_task.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run = train(make(), "erm", tmp_path / "run", overrides={"steps": 2}, progress=False)
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(run.folder), "--task", "broken_task:toy"])
    assert ended.value.code == 2
    assert "broken/test, sample index 31: the input holds NaN" in capsys.readouterr().err
    with pytest.raises(UnseenError, match="broken/test"):
        import broken_task

        evaluate(run, broken_task.toy())
