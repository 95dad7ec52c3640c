"""The contract of every method."""

from __future__ import annotations

import pytest
import torch
from tiny import TinyNet
from torch import nn
from torch.utils.data import TensorDataset

import unseen
from unseen import METHODS, Domain, Task, UnseenError
from unseen.api import Batch
from unseen.experiments import evaluate as exam
from unseen.experiments.score import score as score_domain
from unseen.methods import Adversary
from unseen.nn.objectives import CrossEntropy
from unseen.training.checkpoint import restore_training_state, training_state
from unseen.training.train import train

NEED_IMAGES = {"cutout", "autoaugment", "par", "self_super", "jigen"}
QUICK = {  # so that every part of a method is reached within a few steps
    "uncertainty_guided": {"warmup": 2, "adversary": Adversary(rounds=1, steps=2), "draws": 2},
    "gud": {"every": 2, "rounds": 2, "capacity": 8, "ascent_steps": 2},
    "m_ada": {"every": 2, "rounds": 2, "capacity": 8, "ascent_steps": 2},
    "bnn": {"passes": 4},
    "mc_dropout": {"passes": 4},
}


class SmallNet(nn.Module):
    """conv-conv-fc-fc on 3x12x12 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 3, stride=2)
        self.fc1, self.fc2 = nn.Linear(8 * 16, 16), nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def coloured(split="train", shift=0.0, n=60):
    """Images whose class is where the light falls."""
    g = torch.Generator().manual_seed({"train": 0, "val": 1, "test": 2}[split])
    y = torch.arange(n) % 3
    x = 0.5 * torch.rand(n, 3, 12, 12, generator=g)
    for i, label in enumerate(y):
        x[i, :, 4 * label : 4 * label + 4] += 0.5
    return TensorDataset((x + shift).clamp(0, 1), y)


def image_task():
    return Task(
        name="light",
        summary="a toy",
        classes=3,
        model=SmallNet,
        sites=("conv1",),
        embedding="fc1",
        source=Domain("near", coloured),
        targets=(Domain("far", lambda split: coloured(split, 0.3)),),
        presets={
            "fast": {"steps": 12, "batch_size": 10, "checkpoint_every": 5, "lr": 3e-3, **QUICK}
        },
    )


def net_of(name, model, **settings):
    torch.manual_seed(0)
    common = (
        {"sites": ("conv1",), "embedding": "fc1"}
        if hasattr(model, "conv1")
        else {"sites": ("0",), "embedding": "2"}
    )
    return METHODS[name](model, **{**common, "lr": 3e-3, **QUICK.get(name, {}), **settings}).train()


@pytest.mark.parametrize("name", METHODS)
def test_method_learns_toy_and_reloads_equal(tmp_path, name):
    torch.manual_seed(0)
    data = coloured()
    net = net_of(name, SmallNet())
    loader = [tuple(t[i : i + 10] for t in data.tensors) for i in range(0, 60, 10)]
    unseen.fit(net, loader, steps=60, progress=False)
    x, y = coloured("test").tensors
    assert (net.predict(x).argmax(1) == y).float().mean() > 0.8
    net.save(tmp_path / "saved")
    again = unseen.load(tmp_path / "saved", SmallNet())
    assert torch.equal(net.predict(x), again.predict(x)) and torch.equal(
        net.uncertainty(x), again.uncertainty(x)
    )
    assert net.steps_done == 60


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("at", [3, 7])
def test_checkpoint_resumes_with_equal_bits(name, at):
    data = coloured()
    batches = [
        Batch((data.tensors[0][i : i + 10],), data.tensors[1][i : i + 10]) for i in range(0, 50, 10)
    ] * 3

    def trained(net, parts):
        for batch in parts:
            net.step(batch)
        return net

    whole = trained(net_of(name, SmallNet()), batches[:at])
    state = {k: t.clone() for k, t in training_state(whole).items()}
    whole = trained(whole, batches[at:])
    resumed = net_of(name, SmallNet())
    torch.manual_seed(99)
    restore_training_state(resumed, state, None)
    trained(resumed, batches[at:])
    for key, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


@pytest.mark.usefixtures("quick_estimators")
@pytest.mark.parametrize("name", METHODS)
def test_method_trains_and_evaluates_as_a_run(tmp_path, name):
    done = train(image_task(), name, tmp_path / "run", progress=False)
    result = exam.evaluate(done, image_task())
    assert 0 <= result["average"] <= 1
    assert score_domain(done, image_task(), "far")["fallback"] == (name != "uncertainty_guided")


@pytest.mark.parametrize("name", METHODS)
def test_vectors_are_accepted_or_refused_with_a_reason(name):
    net = (
        net_of(
            name,
            nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)),
        )
        if (name != "par")
        else None
    )
    batch = Batch((torch.rand(6, 20),), torch.arange(6) % 3)
    if net is None:
        with pytest.raises(UnseenError, match="conv"):
            net_of(
                name,
                nn.Sequential(
                    nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
                ),
            ).step(batch)
    elif name in NEED_IMAGES:
        with pytest.raises(UnseenError, match=f"{name} needs images"):
            net.step(batch)
    else:
        for _ in range(8):
            assert torch.isfinite(net.step(batch)["loss"])


@pytest.mark.parametrize("name", METHODS)
def test_batchnorm_learns_and_the_users_model_keeps_its_names_and_hooks(name):
    class Normed(SmallNet):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(6)

        def forward(self, x):
            x = torch.relu(self.conv2(torch.relu(self.norm(self.conv1(x)))))
            return self.fc2(torch.relu(self.fc1(x.flatten(1))))

    model = Normed()
    names = list(model.state_dict())
    net = net_of(name, model)
    x, y = coloured().tensors
    for i in range(6):
        net.step(Batch((x[10 * i : 10 * i + 10],), y[10 * i : 10 * i + 10]))
    assert list(model.state_dict()) == names and not any(m._forward_hooks for m in model.modules())
    assert model.norm.running_mean.abs().sum() > 0 and torch.isfinite(model.norm.running_var).all()


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_read_from_the_signature_and_checked(name):
    settings = METHODS[name].settings_of()
    assert {"sites", "embedding", "lr", "ignore_label"} <= settings.keys()
    net = net_of(name, SmallNet())
    assert net.settings().keys() == settings.keys()
    with pytest.raises(UnseenError, match="lr"):
        net_of(name, SmallNet(), lr=-1.0)


def test_mixups_loss_is_the_one_with_soft_targets():
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, partner = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([1, 1, 0, 2, 0])
    soft = 0.3 * nn.functional.one_hot(y, 3) + 0.7 * nn.functional.one_hot(partner, 3)
    expected = -(soft * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(CrossEntropy().paired(logits, y, partner, 0.3), expected)
    # A label to ignore, on either side, takes its row out.
    y2, partner2 = y.clone(), partner.clone()
    y2[0], partner2[3] = -100, -100
    kept = [1, 2, 4]
    expected = -(soft * logits.log_softmax(1)).sum(1)[kept].mean()
    torch.testing.assert_close(CrossEntropy().paired(logits, y2, partner2, 0.3), expected)


def test_mixup_shows_the_model_blends_of_two_samples():
    seen = []

    class Watching(TinyNet):
        def forward(self, x):
            seen.append(x.detach())
            return super().forward(x)

    net = METHODS["mixup"](Watching(), alpha=1.0)
    x = torch.stack([torch.full((2, 8, 8), float(i)) for i in range(4)])
    torch.manual_seed(0)
    net.step(Batch((x,), torch.tensor([0, 1, 2, 0])))
    levels = seen[-1][:, 0, 0, 0]
    assert not torch.equal(levels, torch.arange(4.0))
    torch.testing.assert_close(
        levels.sum(), torch.tensor(6.0)
    )  # a permutation blended with itself keeps the sum


def test_cutout_shows_the_model_images_with_a_hole():
    seen = []

    class Watching(SmallNet):
        def forward(self, x):
            seen.append(x.detach())
            return super().forward(x)

    net = METHODS["cutout"](Watching(), side=0.5)
    net.step(Batch((torch.ones(8, 3, 12, 12),), torch.arange(8) % 3))
    holes = (seen[-1] == 0).flatten(1).any(1)
    assert (
        holes.all() and (net.predict(torch.ones(2, 3, 12, 12)), seen[-1].min())[1] == 1
    )  # the exam is given whole images
