"""Settings that save memory leave the numbers as they are: microbatches, recomputation, bf16."""

from __future__ import annotations

import logging

import pytest
import torch
from test_distributed import CASES, METHOD_CASES, SGD, distance, fit, images, processes
from tiny import TinyNet
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

import unseen
from unseen import METHODS, UnseenError
from unseen.methods import Adversary, LossWeights, Noise
from unseen.nn.recomputation import blocks, recomputing

WITHOUT_NORM = {
    name: (method, settings, of_fit, False)
    for name, (method, settings, of_fit, _) in {**CASES, **METHOD_CASES}.items()
}


def peak_of_step(net, batch) -> int:
    """Return the largest number of bytes that a step has allocated at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        net.step(batch)
    events = measured.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    now = peak = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak


# ---- microbatches


# A part of jigen needs an ordered and a shuffled image.
@pytest.mark.parametrize(
    ("size", "name"),
    [(n, name) for name in WITHOUT_NORM for n in (1, 5) if (n, name) != (1, "jigen")],
)
def test_microbatches_have_the_numbers_of_the_whole_batch(size, name):
    case = WITHOUT_NORM[name]
    weights, losses, detector = fit(case, 8)
    divided, divided_losses, divided_detector = fit(case, 8, microbatch=size)
    assert distance(divided, weights) < 1e-5
    assert divided_losses == pytest.approx(losses, abs=1e-5)
    assert distance(divided_detector, detector) < 1e-5


def with_ball(_rank=0, microbatch=None):
    case = CASES["second order"]
    return fit(case, 4, ball=0.05, microbatch=microbatch, loader=DataLoader(images(29), 12))[0]


def test_microbatches_of_several_processes_have_the_numbers_of_one():
    expected = with_ball()
    for answer in processes(2, with_ball, 4):
        assert distance(answer, expected) < 1e-5


def with_views(_rank=0, microbatch=None):
    options = {"views": 2, "augment": "affine:strength=1.0", "microbatch": microbatch}
    cases = [CASES["second order"], WITHOUT_NORM["erm"]]
    return [fit(case, 4, loader=DataLoader(images(29), 12), **options)[0] for case in cases]


def test_microbatches_of_views_in_several_processes_have_the_numbers_of_one():
    expected = with_views()
    for microbatch in (None, 2, 4):
        for answers in (*processes(2, with_views, microbatch), with_views(0, microbatch)):
            for answer, weights in zip(answers, expected, strict=True):
                assert distance(answer, weights) < 1e-5


class Dropping(TinyNet):
    def __init__(self):
        super().__init__()
        self.drop, self.drop2d = nn.Dropout(0.3), nn.Dropout2d(0.3)

    def forward(self, x):
        x = self.drop2d(torch.tanh(self.conv1(x)))
        return self.fc2(torch.tanh(self.fc1(self.drop(self.conv2(x).mean((2, 3))))))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("uncertainty_guided", {"sites": ["conv1"]}),
        ("uncertainty_guided", {"sites": ["conv1"], "meta": "second"}),
        ("uncertainty_guided", {"sites": ["conv2"]}),  # behind a dropout layer
        ("uncertainty_guided", {"sites": ["conv2"], "chunk": 1}),
        ("par", {"warmup": 1}),
    ],
)
def test_microbatches_share_the_mask_of_dropout(name, settings):
    if name == "uncertainty_guided":
        settings = {"draws": 2, "warmup": 1, "embedding": "fc1", **settings}

    def trained(microbatch):
        torch.manual_seed(0)
        net = METHODS[name](Dropping(), lr=1e-2, **settings)
        return fit(CASES["first order"], 4, net=net, microbatch=microbatch)[0]

    assert distance(trained(5), trained(None)) < 1e-5


class Maps(nn.Module):
    """Labels for each pixel, of which some are ignored."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 1)

    def forward(self, x):
        return self.conv2(torch.tanh(self.conv1(x)))


@pytest.mark.parametrize("meta", ["first", "second"])
def test_microbatches_count_ignored_labels_and_class_weights_as_the_batch_does(meta):
    x = images().tensors[0]
    y = torch.randint(3, (36, 7, 7), generator=torch.Generator().manual_seed(0))
    y[:, :3][torch.arange(36) % 6 < 3] = -100

    def trained(microbatch):
        torch.manual_seed(0)
        net = unseen.UncertaintyGuided(
            Maps(), sites=["conv1"], embedding="conv1", warmup=2, draws=2, lr=1e-2, meta=meta,
            adversary=Adversary(rounds=1, steps=2), class_weights=(1.0, 2.0, 0.5),
        )  # fmt: skip
        case = ("uncertainty_guided", {}, {}, False)
        loader = DataLoader(TensorDataset(x, y), 12)
        return fit(case, 5, net=net, loader=loader, microbatch=microbatch)[0]

    assert distance(trained(5), trained(None)) < 1e-5


UNLABELED = {
    name: case for name, case in WITHOUT_NORM.items() if name not in ("jigen", "mixup", "features")
}


def partly_labeled():
    """Images in batches of 12, of which the first 7 have the label that is ignored."""
    x, y = images().tensors
    return DataLoader(TensorDataset(x, y.where(torch.arange(36) % 12 > 6, -100)), 12)


def with_ignored(_rank, names, steps=4, microbatch=None):
    found = {}
    for name in names:
        method, settings, of_fit, norm = WITHOUT_NORM[name]
        settings = {**settings, "class_weights": (1.0, 2.0, 0.5)} if name == "erm" else settings
        case = (method, settings, of_fit, norm)
        found[name] = fit(case, steps, loader=partly_labeled(), microbatch=microbatch)[0]
    return found


@pytest.mark.parametrize("microbatch", [1, 4])
def test_microbatches_without_a_label_that_counts(microbatch):
    expected = with_ignored(0, UNLABELED)
    for name, weights in with_ignored(0, UNLABELED, microbatch=microbatch).items():
        assert distance(weights, expected[name]) < 1e-5, name


def test_processes_without_a_label_that_counts():
    expected = with_ignored(0, UNLABELED)
    for microbatch in (None, 2):
        for answer in processes(2, with_ignored, UNLABELED, 4, microbatch):
            assert not isinstance(answer, str), answer
            for name, weights in answer.items():
                assert distance(weights, expected[name]) < 1e-5, name


@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_batches_without_a_label_that_counts_are_refused_in_microbatches_too(loss):
    y = torch.full((36,) if loss == "cross_entropy" else (36, 3), -100)
    net = unseen.ERM(TinyNet(), loss=loss)
    loader = DataLoader(TensorDataset(images().tensors[0], y), 12)
    with pytest.raises(UnseenError, match="every label of this batch is the ignored one"):
        unseen.fit(net, loader, 2, microbatch=4, progress=False)


def test_microbatches_without_a_binary_label_that_counts():
    y = torch.randint(2, (36, 3), generator=torch.Generator().manual_seed(0)).float()
    y[torch.arange(36) % 12 < 7] = -100

    def trained(microbatch):
        torch.manual_seed(0)
        net = unseen.ERM(TinyNet(), loss="bce", lr=1e-2)
        loader = DataLoader(TensorDataset(images().tensors[0], y), 12)
        unseen.fit(net, loader, 4, microbatch=microbatch, progress=False)
        return {name: t.double() for name, t in net.state_dict().items()}

    assert distance(trained(1), trained(None)) < 1e-5


@pytest.mark.parametrize("meta", ["first", "second"])
def test_microbatches_take_less_memory(meta):
    def peak(microbatch):
        torch.manual_seed(0)
        net = unseen.UncertaintyGuided(
            TinyNet(), sites=["conv1"], embedding="fc1", draws=5, warmup=0, meta=meta,
            noise=Noise(per="feature"), adversary=Adversary(rounds=9, steps=1),
        )  # fmt: skip
        batch = unseen.Batch((torch.rand(64, 2, 32, 32),), torch.arange(64) % 3)
        net.prepare(batch)
        if microbatch is None:
            return peak_of_step(net, batch)
        with net.dividing(microbatch):
            return peak_of_step(net, batch)

    assert peak(8) < peak(None) / 4


def test_batchnorm_with_microbatches_gives_a_warning_and_trains(caplog):
    case = ("uncertainty_guided", SGD, {}, True)
    with caplog.at_level(logging.WARNING):
        weights, losses, _ = fit(case, 4, microbatch=6)
    assert "BatchNorm normalizes each microbatch by itself" in caplog.text
    assert all(torch.isfinite(t).all() for t in weights.values()) and len(losses) == 4


class Unaware(unseen.ERM):
    name, summary = "unaware", "one backward pass for all"

    def step(self, batch):
        loss = self.source_loss(batch)
        self.model_optimizer.zero_grad()
        loss.backward()
        self.apply_gradients(self.model_optimizer)
        return {"loss": loss.detach()}


@pytest.mark.parametrize("ball", [None, 0.05])  # inputs are attacked in microbatches
def test_a_method_that_does_not_divide_its_batches_is_refused(ball):
    with pytest.raises(UnseenError, match=r"unaware does not divide its batches.*microbatches"):
        fit(CASES["first order"], 4, net=Unaware(TinyNet()), microbatch=6, ball=ball)


class Comparing(unseen.ERM):
    name, summary = "comparing", "compares all samples"

    def losses(self, batch):
        z = self.logits(batch.x)
        others = unseen.nn.ranks.ranks().gather(z)
        return {"loss": self.objective(z, batch.y) + (z.mean() - others.mean()).square()}


def test_a_loss_over_all_samples_is_refused():
    with pytest.raises(UnseenError, match="compares all samples of a batch"):
        fit(CASES["first order"], 4, net=Comparing(TinyNet()), microbatch=6)


@pytest.mark.parametrize("value", [0, -1, 1.5, "8"])
def test_microbatch_must_be_a_count(value):
    with pytest.raises(UnseenError, match="microbatch"):
        fit(CASES["first order"], 4, microbatch=value)


# ---- activation checkpointing


class Residual(nn.Module):
    def __init__(self, width, drop=0.0):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm, self.drop = nn.BatchNorm2d(width), nn.Dropout(drop)

    def forward(self, x, *, scale=1.0):
        return x + scale * self.drop(self.conv2(torch.tanh(self.norm(self.conv1(x)))))


class Blocks(nn.Module):
    """A stem, two stages of residual blocks, a head."""

    def __init__(self, width=4, drop=0.0, depth=2):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 3)
        self.stage1 = nn.Sequential(*[Residual(width, drop) for _ in range(depth)])
        self.stage2 = nn.ModuleList([Residual(width, drop) for _ in range(depth)])
        self.fc1, self.fc2 = nn.Linear(width, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage1(torch.tanh(self.stem(x)))
        for block in self.stage2:
            x = block(x, scale=0.5)
        return self.fc2(torch.tanh(self.fc1(x.mean((2, 3)))))


RECOMPUTED = {
    "first order": ("uncertainty_guided", {"meta": "first"}),
    "second order": ("uncertainty_guided", {"meta": "second", "weights": LossWeights(kl=0.1)}),
    "no mixup": ("uncertainty_guided", {"mixup": None}),
    "sites in blocks": (
        "uncertainty_guided",
        {"sites": ["stage1.0.conv1", "stage2.1"], "meta": "second", "embedding": "stage2.1"},
    ),
    **{name: (name, {}) for name in METHODS if name not in ("uncertainty_guided", "autoaugment")},
}


@pytest.mark.parametrize("name", RECOMPUTED)
def test_recomputed_activations_give_the_same_weights(name):
    method, settings = RECOMPUTED[name]

    def trained(on, **options):
        torch.manual_seed(0)
        chosen = {"sites": ["stem"], "embedding": "fc1", "optimizer": "sgd", "lr": 0.05}
        chosen |= {"uncertainty_guided": {"warmup": 1, "draws": 2}, "jigen": {"puzzles": 3}}.get(
            method, {}
        )
        if method in ("gud", "m_ada"):
            chosen |= {"every": 2, "capacity": 12, "ascent_steps": 2}
        if method == "m_ada":
            chosen |= {"order": 2}
        net = METHODS[method](Blocks(drop=0.2), **{**chosen, **settings})
        case = (method, {}, {}, False)
        return fit(case, 5, net=net, activation_checkpointing=on, **options)[0]

    assert distance(trained(True), trained(False)) < 1e-5
    if name in ("first order", "second order"):
        both = trained(True, microbatch=4, amp="bf16")
        assert distance(both, trained(False, microbatch=4, amp="bf16")) < 1e-5


def test_blocks_are_modules_with_layers_but_no_sequences_of_blocks():
    model = Blocks()
    assert blocks(model) == [*model.stage1, *model.stage2]
    assert blocks(nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2)))


@pytest.mark.parametrize("draws", [1, 5])
def test_recomputation_takes_less_memory(draws):
    def peak(on):
        torch.manual_seed(0)
        net = unseen.UncertaintyGuided(
            Blocks(depth=6), sites=["stem"], embedding="fc1", draws=draws, warmup=0,
            adversary=None, mixup=None,
        )  # fmt: skip
        batch = unseen.Batch((torch.rand(32, 2, 24, 24),), torch.arange(32) % 3)
        net.prepare(batch)
        if not on:
            return peak_of_step(net, batch)
        with recomputing(net.model):
            return peak_of_step(net, batch)

    assert peak(True) < 0.6 * peak(False)


def test_the_model_is_left_as_it_was_found():
    model = Blocks()
    before = {name: set(vars(m)) for name, m in model.named_modules()}
    with pytest.raises(ZeroDivisionError), recomputing(model):
        model(torch.rand(2, 2, 9, 9)).sum().backward()
        raise ZeroDivisionError
    assert {name: set(vars(m)) for name, m in model.named_modules()} == before


def test_batchnorm_tracks_a_recomputed_pass_once():
    model = Blocks()
    with recomputing(model):
        model(torch.rand(4, 2, 9, 9)).sum().backward()
    assert all(int(block.norm.num_batches_tracked) == 1 for block in blocks(model))


def test_a_model_without_blocks_is_refused():
    with pytest.raises(UnseenError, match=r"found no block in TinyNet.*use microbatch"):
        fit(CASES["first order"], 4, activation_checkpointing=True)


# ---- 16 bits


@pytest.mark.parametrize("meta", ["first", "second"])
def test_bf16_trains_the_method_close_to_32_bits_in_less_memory(meta):
    def net():
        torch.manual_seed(0)
        return unseen.UncertaintyGuided(
            Blocks(8), sites=["stem"], embedding="fc1", draws=3, warmup=1, lr=1e-3, meta=meta,
            adversary=Adversary(rounds=1, steps=2),
        )  # fmt: skip

    case = ("uncertainty_guided", {}, {}, False)
    _, losses, _ = fit(case, 12, net=net())
    _, rounded, _ = fit(case, 12, net=net(), amp="bf16")
    assert rounded == pytest.approx(losses, rel=0.05)

    def peak(amp):
        one = net()
        one.steps_done += 1
        batch = unseen.Batch((torch.rand(32, 2, 24, 24),), torch.arange(32) % 3)
        one.prepare(batch)
        if not amp:
            return peak_of_step(one, batch)
        with one.mixed_precision(one.model, "bf16", None):
            return peak_of_step(one, batch)

    assert peak(True) < 0.85 * peak(False)
