"""Misuse of the Python API: an UnseenError with the remedy, never a raw error of torch."""

from __future__ import annotations

import copy
import functools
import re

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from toy_domains import BarNet, bars

import unseen
from unseen import ERM, Batch, Domain, DomainMonitor, Task, UncertaintyGuided, UnseenError
from unseen.adaptation import adapted_model, draw_shots, fine_tune
from unseen.augmentations import AUGMENTATIONS, cutout, flip_crop, randconv
from unseen.detection import AccuracyEstimator, Mahalanobis, MaxSoftmax, SigmaDetector
from unseen.methods import METHODS
from unseen.training.evaluation import evaluate_metric

X, Y = bars(24, seed=0)
LOADER = [(X[:12], Y[:12]), (X[12:], Y[12:])]
DATA = TensorDataset(X, Y)


@functools.cache
def _trained():
    torch.manual_seed(0)
    net = UncertaintyGuided(BarNet(), sites=["conv1"], embedding="fc1", draws=1, warmup=0)
    return unseen.fit(net, LOADER, 1, held_out=LOADER, progress=False).net


def trained():
    return copy.deepcopy(_trained())


def fit(loader=LOADER, net=None, steps=1, **options):
    options = {"held_out": LOADER, "progress": False, **options}
    return unseen.fit(ERM(BarNet()) if net is None else net, loader, steps, **options)


def task(**changes):
    source, target = (Domain(name, lambda split: DATA) for name in ("near", "far"))
    fields = {
        "name": "t", "summary": "", "source": source, "targets": (target,), "classes": 3,
        "model": BarNet, "sites": ("conv1",), "embedding": "fc1",
    }  # fmt: skip
    return Task(**{**fields, **changes})


def merge_with_itself():
    monitor = DomainMonitor(trained())
    monitor.update(X)
    monitor.merge(monitor)


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 3)

    def forward(self, x):
        return {"logits": self.fc(x.flatten(1))}["logit"]


class Returns(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.fc = nn.Linear(64, 3)
        self.change = change

    def forward(self, x):
        return self.change(self.fc(x.flatten(1)))


CASES = {
    # inputs
    "predict: channels": (lambda: trained().predict(X.repeat(1, 3, 1, 1)), 'layer "conv1"'),
    "predict: size": (lambda: trained().predict(torch.rand(4, 1, 9, 9)), 'layer "fc1"'),
    "predict: no batch": (lambda: trained().predict(X[0]), "with the batch first"),
    "predict: rank": (lambda: trained().predict(torch.rand(4, 5)), "(4, 5) of float32"),
    "predict: a number": (lambda: trained().predict(torch.tensor(1.0)), "batch dimension"),
    "predict: int64": (lambda: trained().predict(X.long()), "x.float()"),
    "predict: int": (lambda: trained().predict(3), "or a tuple or dict of tensors, not int"),
    "predict: None": (lambda: trained().predict(None), "not NoneType"),
    "predict: numpy": (lambda: trained().predict(X.numpy()), "torch.as_tensor"),
    "predict: dict": (lambda: trained().predict({"a": X, "b": X}), "forward takes x"),
    "predict: list of samples": (lambda: trained().predict(list(X)), "torch.stack"),
    "predict: (x, y)": (lambda: trained().predict((X, Y)), "without labels"),
    "predict: Batch": (lambda: trained().predict(Batch((X,), Y)), "give batch.x"),
    "predict: empty tuple": (lambda: trained().predict(()), "not nothing"),
    "uncertainty: channels": (lambda: trained().uncertainty(X.repeat(1, 3, 1, 1)), "conv1"),
    "uncertainty: (x, y)": (lambda: trained().uncertainty((X, Y)), "without labels"),
    "uncertainty: empty": (lambda: trained().uncertainty(X[:0]), "x is empty"),
    "domain_score: str": (lambda: trained().domain_score("x"), "not str"),
    "alarm: rank": (lambda: trained().alarm(X[:, :, None]), "the model failed"),
    "monitor: size": (lambda: DomainMonitor(trained()).update(X[..., :4]), "fc1"),
    "mahalanobis: channels": (
        lambda: Mahalanobis(trained()).calibrate([(X.repeat(1, 2, 1, 1), Y)]),
        'layer "conv1"',
    ),
    # batches and loaders
    "step: int": (lambda: ERM(BarNet()).step(3), "must yield (x, y)"),
    "step: float labels": (lambda: ERM(BarNet()).step((X, Y.float())), "y.long()"),
    "step: one-hot": (lambda: ERM(BarNet()).step((X, torch.eye(3)[Y])), "y.argmax(1)"),
    "step: fewer labels": (lambda: ERM(BarNet()).step((X, Y[:5])), "24 inputs and 5 labels"),
    "step: label 3": (lambda: ERM(BarNet()).step((X, Y + 1)), "takes 0 to 2"),
    "step: channels": (lambda: ERM(BarNet()).step((X.repeat(1, 3, 1, 1), Y)), "conv1"),
    "fit: int": (lambda: fit(3), "loader must yield batches (x, y)"),
    "fit: one batch": (lambda: fit((X, Y)), "[(x, y)]"),
    "fit: data set": (lambda: fit(DATA), "DataLoader"),
    "fit: dicts": (lambda: fit([{"x": X, "class": Y}]), "its labels as one of"),
    "fit: only x": (lambda: fit([(X,)]), "must yield (x, y)"),
    "fit: generator": (lambda: fit(b for b in LOADER), "only once"),
    "fit: numpy labels": (lambda: fit([(X, Y.numpy())]), "convert it with torch.as_tensor(y)"),
    "fit: empty batch": (lambda: fit([(X[:0], Y[:0])]), "batch index 0: a batch is empty"),
    "fit: held_out int": (lambda: fit(held_out=3), "held_out must yield"),
    "fit: held_out labels": (lambda: fit(held_out=[(X, Y + 9)], progress=True), "takes 0 to 2"),
    "fit: module": (lambda: fit(net=BarNet()), "unseen.ERM(model)"),
    "fit: class": (lambda: fit(net=ERM), "the class ERM"),
    "fit: no steps": (lambda: unseen.fit(ERM(BarNet()), LOADER), "steps=3000"),
    "fit: steps 0": (lambda: fit(steps=0), "at least 1, not 0"),
    "fit: steps 1.5": (lambda: fit(steps=1.5), "an integer"),
    "fit: steps True": (lambda: fit(steps=True), "an integer"),
    "fit: augment fails": (lambda: fit(augment=lambda a, b: a), "given as augment failed"),
    "fit: augment returns None": (lambda: fit(augment=lambda t: None), "not NoneType"),
    "fit: device": (lambda: fit(device="gpu"), "auto, cpu or cuda"),
    "calibrate: module": (lambda: unseen.calibrate(BarNet(), LOADER), "unseen.ERM(model)"),
    "calibrate: int": (lambda: unseen.calibrate(trained(), 3), "training data must yield"),
    "calibrate: generator": (lambda: unseen.calibrate(trained(), iter(LOADER)), "only once"),
    "calibrate: held_out": (lambda: unseen.calibrate(trained(), LOADER, [X]), "held_out, batch"),
    "estimator: one-hot": (
        lambda: AccuracyEstimator.fit(trained(), [(X, torch.eye(3)[Y])], samples=4),
        "y.argmax(1)",
    ),
    "estimator: column": (
        lambda: AccuracyEstimator.fit(trained(), [(X, Y[:, None])], samples=4),
        "labels have shape",
    ),
    "estimator: int": (lambda: AccuracyEstimator.fit(trained(), 3), "held_out must yield"),
    "estimator: two shapes": (
        lambda: AccuracyEstimator.fit(trained(), [(X, Y), (X[..., :4], Y)]),
        "held_out must have one shape",
    ),
    "estimator: seed": (lambda: AccuracyEstimator.fit(trained(), LOADER, seed="a"), "seed must be"),
    "estimator: path": (lambda: AccuracyEstimator.load(3, trained()), "path must be a path"),
    "estimator: None": (lambda: unseen.estimate_accuracy(trained(), X, None), "AccuracyEstimator"),
    # models
    "model raises": (lambda: ERM(Raises()).predict(X), "KeyError: 'logit'"),
    "model raises in a step": (lambda: ERM(Raises()).step((X, Y)), "(24, 1, 8, 8) of float32"),
    "model returns a dict": (
        lambda: ERM(Returns(lambda o: {"a": o, "b": o})).uncertainty(X),
        'name the logits, as output="a"',
    ),
    "output is not there": (
        lambda: ERM(Returns(lambda o: {"a": o}), output="b").uncertainty(X),
        'no "b"; it has a',
    ),
    "output=3": (lambda: ERM(BarNet(), output=3), "output must name the logits"),
    "model returns a list of dicts": (
        lambda: ERM(Returns(lambda o: [{"a": o}])).uncertainty(X),
        "must return logits",
    ),
    "model returns integers": (
        lambda: ERM(Returns(lambda o: o.long())).step((X, Y)),
        "logits of floats",
    ),
    "model returns fewer rows": (lambda: ERM(Returns(lambda o: o[:2])).predict(X), "24 samples"),
    # constructors
    "detector: module": (lambda: SigmaDetector(BarNet()), "unseen.ERM(model)"),
    "detector: None": (lambda: MaxSoftmax(None), "needs a method, not NoneType"),
    "detector: set": (lambda: setattr(trained(), "detector", 3), "a Detector"),
    "sites=5": (lambda: ERM(BarNet(), sites=5), "names of layers"),
    "sites=None": (lambda: ERM(BarNet(), sites=None), "names of layers"),
    "sites=[3]": (lambda: ERM(BarNet(), sites=[3]), "the model has: conv1"),
    "sites=[[...]]": (lambda: ERM(BarNet(), sites=[["conv1"]]), "the model has: conv1"),
    "sites=nope": (lambda: ERM(BarNet(), sites=["nope"]), "the model has: conv1"),
    "sites=[]": (lambda: UncertaintyGuided(BarNet(), sites=[]), 'sites="auto"'),
    "embedding=3": (lambda: ERM(BarNet(), embedding=3), "the model has: conv1"),
    "embedding=[...]": (lambda: ERM(BarNet(), embedding=["fc1"]), "the model has: conv1"),
    "lr": (lambda: ERM(BarNet(), lr="a"), "lr must be a finite number"),
    "ignore_label": (lambda: ERM(BarNet(), ignore_label="a"), "ignore_label must be an integer"),
    "unknown setting": (lambda: METHODS["pgd"](BarNet(), epsilon=1), "it has: "),
    "model class": (lambda: ERM(BarNet), "not the class BarNet"),
    # thresholds, alarms, monitors, files
    "threshold n=0": (lambda: trained().threshold(0), "at least 1"),
    "threshold n=[1]": (lambda: trained().threshold([1]), "an integer"),
    "rate=2": (lambda: trained().alarm(X, false_alarm_rate=2), "between 0 and 1"),
    "rate=[...]": (lambda: trained().threshold(64, [0.1]), "false-alarm rate"),
    "merge(3)": (lambda: DomainMonitor(trained()).merge(3), "another DomainMonitor"),
    "monitor path": (lambda: DomainMonitor.load(3, trained()), "path must be a path"),
    "merge with itself": (merge_with_itself, "count twice"),
    "monitor of a module": (lambda: DomainMonitor(BarNet()), "unseen.ERM(model)"),
    "load(3)": (lambda: unseen.load(3, BarNet()), "folder must be a path"),
    "save(None)": (lambda: trained().save(None), "folder must be a path"),
    "open_monitor(3)": (lambda: unseen.open_monitor(3, "mini_digits"), "must be a path"),
    # adaptation
    "fine_tune: module": (lambda: fine_tune(3, X, Y), "torch.nn.Module"),
    "fine_tune: scalar": (lambda: fine_tune(BarNet(), X, Y[0]), "one label for each"),
    "fine_tune: channels": (
        lambda: fine_tune(BarNet(), X.repeat(1, 3, 1, 1), Y, steps=1),
        'layer "conv1"',
    ),
    "adapt: loader": (
        lambda: adapted_model("fine_tune", BarNet(), DATA, DataLoader(DATA)),
        "loader.dataset",
    ),
    "adapt: None": (lambda: adapted_model("fine_tune", BarNet(), None, DATA), "source must be"),
    "adapt: empty": (
        lambda: adapted_model("fine_tune", BarNet(), DATA, TensorDataset(X[:0], Y[:0])),
        "target has 0 samples",
    ),
    "adapt: name": (lambda: adapted_model([], BarNet(), DATA, DATA), "there are: fine_tune"),
    "adapt: setting": (lambda: adapted_model("se", BarNet(), DATA, DATA, foo=1), "it has: "),
    "shots": (lambda: draw_shots(Y.tolist(), 1, 3, torch.Generator()), "tensor of class indices"),
    # tasks
    "domain name": (lambda: Domain(3, lambda split: DATA), "name of a domain"),
    "domain load": (lambda: Domain("a", DATA), "a function from the name of a split"),
    "task source": (lambda: task(source=3), "source must be a Domain"),
    "task targets": (lambda: task(targets=Domain("a", lambda s: DATA)), "a tuple of Domains"),
    "task classes": (lambda: task(classes="3"), "classes must be an integer"),
    "task model": (lambda: task(model=BarNet()), "makes a model"),
    "task presets": (lambda: task(presets={"fast": 3}), "preset fast"),
    "task.domain([])": (lambda: task().domain([]), "it has: "),
    # augmentations
    "cutout: int": (lambda: cutout(3), "not int"),
    "cutout: side": (lambda: cutout(X, "a"), "side must be"),
    "flip_crop: rank": (lambda: flip_crop(X[0]), "(N, C, H, W)"),
    "flip_crop: padding": (lambda: flip_crop(X, -1), "padding must be"),
    "randconv: most": (lambda: randconv(X, most=0), "most must be"),
    "autoaugment: None": (lambda: AUGMENTATIONS["autoaugment"](None), "not NoneType"),
}


@pytest.mark.parametrize("name", CASES)
def test_misuse_is_refused_with_a_remedy(name):
    misuse, text = CASES[name]
    with pytest.raises(UnseenError, match=re.escape(text)):
        misuse()


def test_error_of_the_model_keeps_its_cause():
    with pytest.raises(UnseenError) as caught:
        trained().predict(torch.rand(4, 5, 8, 8))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert str(caught.value.__cause__) in str(caught.value)


def test_failed_batch_does_not_change_how_later_ones_are_laid_out():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 36, 3))
    net = ERM(model)
    with pytest.raises(UnseenError):
        net.predict(torch.rand(4, 5, 8, 8))
    assert net._ready(X)[0].is_contiguous(memory_format=torch.channels_last)


# ---- inputs that are converted


def entries():
    """Entries that take x, as functions to numbers that must not depend on its type."""
    net = trained()
    return {
        "predict": net.predict,
        "uncertainty": net.uncertainty,
        "domain_score": net.domain_score,
        "monitor": lambda x: DomainMonitor(net).update(x).score,
        "evaluate": lambda x: evaluate_metric("accuracy", net, TensorDataset(x, Y)).value,
        "step": lambda x: copy.deepcopy(net).step((x, Y))["source_loss"],
        "calibrate": lambda x: SigmaDetector(net).calibrate([(x, Y)]).calibrated().mean,
        "fine_tune": lambda x: fine_tune(net.model, x, Y, steps=1).fc2.weight.detach(),
        "cutout": lambda x: cutout(x, 1e-6).double(),
    }


@pytest.mark.parametrize("entry", entries())
def test_images_of_uint8_are_scaled_and_doubles_cast_everywhere(entry):
    use, pixels = entries()[entry], (255 * X).to(torch.uint8)
    expected = use(pixels.float() / 255)
    torch.testing.assert_close(use(pixels), expected)
    torch.testing.assert_close(use(pixels.double() / 255), expected)


def test_scaling_is_noticed_once(caplog):
    from unseen.nn.inputs import _notice_scaling

    _notice_scaling.cache_clear()
    for _ in range(3):
        trained().predict((255 * X).to(torch.uint8))
    assert sum("divided by 255" in record.message for record in caplog.records) == 1


class Tokens(nn.Module):
    """Two inputs: numbers, and tokens that may be of uint8."""

    def __init__(self):
        super().__init__()
        self.words, self.numbers = nn.Embedding(9, 8), nn.Linear(4, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x, tokens):
        return self.out(torch.relu(self.numbers(x) + self.words(tokens.long()).mean(1)))


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8])
def test_several_inputs_and_tokens_go_on_working(kind):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(24, 4, generator=g), torch.randint(9, (24, 5), generator=g).to(kind)
    net = UncertaintyGuided(Tokens(), sites=["numbers"], embedding="out", draws=1, warmup=0)
    unseen.fit(net, [(x, Y)], 2, held_out=[(x, Y)], progress=False)
    assert net.predict(x).shape == (24, 3) and net.uncertainty(x).shape == (24,)
    with pytest.raises(UnseenError, match='layer "words"'):
        net.predict((x[0], torch.full((24, 5), 99)))
    with pytest.raises(UnseenError, match="forward takes"):
        net.predict(x[0])
