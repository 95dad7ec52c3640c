"""Batches and outputs as loaders and models have them."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import Tensor, nn
from torch.utils.data import Dataset

import unseen
from unseen import ERM, UncertaintyGuided, UnseenError
from unseen.adaptation import ADAPTATIONS, fine_tune
from unseen.api import Batch
from unseen.detection.sampling import pad_alike, random_samples
from unseen.detection.synthetic_shifts import shifts_for
from unseen.methods import METHODS
from unseen.nn.calls import bind, logits_from
from unseen.nn.inputs import Inputs, inputs, take_rows

X, Y = tiny_batch(12).x[0], tiny_batch(12).y


class Pair(nn.Module):
    """Two inputs; both must be given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.numbers = TinyNet(), nn.Linear(4, 6)

    def forward(self, *, pixels: Tensor, numbers: Tensor) -> Tensor:
        h = self.image.conv2(torch.tanh(self.image.conv1(pixels))).mean((2, 3))
        return self.image.fc2(torch.tanh(self.image.fc1(h)) + self.numbers(numbers))


class Returning(TinyNet):
    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(super().forward(x))


@dataclass
class Answer:
    features: Tensor
    logits: Tensor


Named = namedtuple("Named", "features logits")
OUTPUTS = {
    "tensor": (lambda o: o, None),
    "tuple": (lambda o: (o, o + 1), None),
    "list": (lambda o: [o, o + 1], None),
    "dict": (lambda o: {"features": o + 1, "logits": o}, None),
    "dict of one": (lambda o: {"score": o}, None),
    "torchvision": (lambda o: {"aux": o + 1, "out": o}, None),
    "dataclass": (lambda o: Answer(o + 1, o), None),
    "named tuple": (lambda o: Named(o + 1, o), None),
    "key": (lambda o: {"a": o + 1, "b": o}, "b"),
    "place in a tuple": (lambda o: (o + 1, o), "1"),
    "function": (lambda o: {"nested": {"a": o}}, lambda out: out["nested"]["a"]),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_logits_are_found_in_every_kind_of_output(kind):
    wrap, output = OUTPUTS[kind]
    assert logits_from(wrap(X), output) is X


def uncertain(model: nn.Module, **settings: Any) -> UncertaintyGuided:
    named = {"sites": ["conv1"], "embedding": "fc1", "draws": 2, "warmup": 0, **settings}
    return UncertaintyGuided(model, **named)


@pytest.mark.parametrize("kind", ["tuple", "dict", "dataclass", "key", "function"])
def test_a_model_with_any_output_trains_scores_saves_and_adapts_like_one_with_logits(
    kind, tmp_path
):
    wrap, output = OUTPUTS[kind]
    nets = []
    for make, where in ((lambda o: o, None), (wrap, output)):
        torch.manual_seed(0)
        net = uncertain(Returning(make), output=where)
        net.step((X, Y))
        unseen.calibrate(net, [(X, Y)], [(X, Y)])
        nets.append(net)
    expected, net = nets
    assert torch.equal(expected.predict(X), net.predict(X))
    assert torch.equal(expected.uncertainty(X), net.uncertainty(X))
    net.save(tmp_path)
    given = {"output": output} if callable(output) else {}
    loaded = unseen.load(tmp_path, Returning(wrap), **given)
    assert torch.equal(loaded.predict(X), net.predict(X)) and loaded.alarm(X) == net.alarm(X)
    adapted = fine_tune(net, X, Y, steps=1)
    assert not torch.equal(logits_from(adapted(X), output), net.predict(X))


def test_a_function_that_finds_logits_is_not_saved_and_asked_for(tmp_path):
    ERM(Returning(lambda o: {"a": o, "b": o}), output=lambda out: out["a"]).save(tmp_path)
    with pytest.raises(UnseenError, match=r"output was the function .*lambda.*output=\.\.\."):
        unseen.load(tmp_path, Returning(lambda o: {"a": o, "b": o}))


BATCHES = {
    "pair": (X, Y),
    "list": [X, Y],
    "more": (X, Y, torch.arange(12)),
    "metadata": (X, Y, {"file": ["a"] * 12}),
    "dict": {"x": X, "labels": Y},
    "another name": {"image": X, "label": Y, "file": ["a"] * 12, "note": None},
    "dict of inputs": ({"x": X}, Y),
    "batch": Batch((X,), Y),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_a_step_takes_every_kind_of_batch(kind):
    losses = []
    for batch in ((X, Y), BATCHES[kind]):
        torch.manual_seed(0)
        losses.append(uncertain(TinyNet()).step(batch)["loss"])
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ({"x": X}, "must hold its labels as one of labels, label"),
        ({"x": X, "label": Y, "labels": Y}, "must hold its labels as one of"),
        ({"a": X, "b": X, "labels": Y}, r"inputs a, b, the model's forward takes x"),
        ({"x": [X], "labels": Y}, "not x as a list of 1: let the loader make one padded tensor"),
        ({"file": ["a"], "labels": Y}, "not nothing"),
    ],
)
def test_a_dict_that_is_no_batch_says_why(batch, text):
    with pytest.raises(UnseenError, match=text):
        ERM(TinyNet()).step(batch)


def two_inputs(n: int, shift: float = 0.0, seed: int = 0) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    pixels = torch.randn(n, 2, 8, 8, generator=g) + y[:, None, None, None] + shift
    numbers = torch.randn(n, 4, generator=g) + shift
    more = {"index": torch.arange(n), "file": [str(i) for i in range(n)]}
    return {"numbers": numbers, "pixels": pixels, "labels": y, **more}


def take(batch: dict[str, Any], n: int) -> dict[str, Any]:
    return {name: value[:n] for name, value in batch.items()}


def without_labels(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name != "labels"}


def test_keyword_inputs_train_score_judge_monitor_save_and_adapt(tmp_path, caplog):
    torch.manual_seed(0)
    net = UncertaintyGuided(
        Pair(), sites=["image.conv1"], embedding="image.fc1", draws=2, warmup=2, lr=1e-2
    )
    loader = [two_inputs(24, seed=s) for s in range(4)]
    held_out = [two_inputs(100, seed=s) for s in (9, 10)]
    unseen.fit(net, loader, steps=8, held_out=held_out, progress=False)
    assert caplog.text.count("index of the batch left out") == 1
    assert not net.alarm(two_inputs(64, seed=5))
    shifted = without_labels(two_inputs(64, shift=9.0, seed=6))
    assert net.alarm(shifted) and net.predict(shifted).shape == (64, 3)
    assert net.uncertainty(shifted).shape == (64,)
    some = [take(batch, 25) for batch in held_out]
    net.accuracy_estimator = unseen.AccuracyEstimator.fit(net, some, samples=10)
    assert net.verdict(shifted).verdict != "ok"
    monitor = unseen.DomainMonitor(net, batch=64)
    assert monitor.update(shifted).alarm
    net.save(tmp_path)
    loaded = unseen.load(tmp_path, Pair())
    assert torch.equal(loaded.predict(shifted), net.predict(shifted))
    assert loaded.alarm(shifted) and not loaded.alarm(two_inputs(64, seed=5))
    adapted = fine_tune(net, shifted, two_inputs(64, seed=6)["labels"], steps=2)
    assert isinstance(adapted, Pair)


class Rows(Dataset):
    """Samples that are dicts, as a Hugging Face data set has them."""

    def __init__(self, n: int) -> None:
        self.columns = {"image": X[:n], "label": Y[:n]}

    def __len__(self) -> int:
        return len(self.columns["label"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


@pytest.mark.parametrize("name", ADAPTATIONS)
def test_every_adaptation_takes_data_sets_of_dicts_and_outputs_of_dicts(name):
    settings = {"discriminator_steps": 0} if name == "fada" else {}
    if name == "sbada":
        settings = {"width": 2}
    rows = Rows(12)
    rows.columns["image"] = rows.columns["image"].sigmoid()
    net = ERM(Returning(lambda o: {"a": o + 1, "b": o}), embedding="fc1", output="b")
    adapt = ADAPTATIONS[name](net, embedding="fc1", steps=2, batch=6, **settings)
    adapted = adapt.run(rows, rows, progress=False)
    pairs = zip(adapted.parameters(), net.model.parameters(), strict=True)
    assert (
        any(not torch.equal(a, b) for a, b in pairs) or name == "se"
    )  # a mean teacher moves slowly


@pytest.mark.parametrize("name", [name for name in METHODS if name != "autoaugment"])  # RGB only
def test_every_method_takes_dicts_and_outputs_of_dicts(name):
    torch.manual_seed(0)
    model = Returning(lambda o: {"a": o + 1, "b": o})
    settings = {"sites": ["conv1"]} if name in ("uncertainty_guided", "par") else {}
    net = METHODS[name](model, embedding="fc1", output="b", **settings)
    batch = {"image": torch.rand(6, 2, 9, 9), "label": Y[:6]}
    assert torch.isfinite(net.step(batch)["loss"])
    assert net.predict(batch).shape == (6, 3)
    assert torch.equal(net.predict(batch), net.predict(batch["image"]))


def test_inputs_survive_copies_and_keep_what_has_no_row_for_each_sample():
    x = inputs({"pixels": X, "scale": torch.ones(3)})
    for copied in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x):
        assert copied.names == ("pixels", "scale") and torch.equal(copied[0], X)
    part = take_rows(x, slice(2))
    assert part.names == x.names and len(part[0]) == 2 and len(part[1]) == 3
    assert bind(TinyNet(), Inputs([X], ["pixels"])).names == ()


class Words(nn.Module):
    """The mean of the words that a padding mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.fc = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.unsqueeze(2)
        return self.fc((self.words(input_ids) * mask).sum(1) / mask.sum(1))


def padded(n: int, length: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(length)
    mask = (torch.arange(length) < torch.randint(2, length + 1, (n, 1), generator=g)).long()
    ids = torch.randint(1, 20, (n, length), generator=g) * mask
    return {"input_ids": ids, "attention_mask": mask, "labels": ids[:, 0] % 3}


def test_batches_that_are_padded_to_different_lengths_are_put_together():
    batches = pad_alike([Batch.of(padded(4, 3)), Batch.of(padded(5, 7))])
    assert [[tuple(t.shape) for t in b.x] for b in batches] == [[(4, 7)] * 2, [(5, 7)] * 2]
    model = Words()
    short = padded(4, 3)
    expected = model(short["input_ids"], short["attention_mask"])
    torch.testing.assert_close(ERM(model).predict(batches[0].x), expected)
    net = UncertaintyGuided(model, draws=2, warmup=0)
    net.step(padded(8, 5))
    assert net.sites == ("words",) and net._forward.fold_at == "input"
    unseen.calibrate(net, [padded(20, 4), padded(20, 6)], [padded(20, 5), padded(20, 7)])
    assert net.uncertainty(padded(9, 6)).shape == (9,)
    chosen = random_samples([padded(20, 5), padded(20, 7)], "held_out", 30, seed=0)
    assert [tuple(t.shape) for t in chosen.x] == [(30, 7)] * 2


def test_a_mask_is_not_shifted_with_its_words():
    x = inputs(padded(6, 5))
    for kinds in shifts_for(x).values():
        shifted = kinds[-1](x, torch.Generator().manual_seed(0))
        assert shifted.names == x.names and torch.equal(shifted[1], x[1])
    assert not torch.equal(shifted[0], x[0])
