"""PAR: patch classifier, adversarial term, errors."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import nn

import unseen
from unseen import UnseenError
from unseen.api import Batch
from unseen.functional.losses import cross_entropy
from unseen.methods.erm import ERM
from unseen.methods.par import PAR, local_loss


def two_cues(seed: int, n: int = 32, flipped: bool = False) -> Batch:
    """The label is in the tint of every patch (channel 0) and in the bright half (channel 1)."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n,), generator=g)
    x = 0.5 * torch.randn(n, 2, 8, 8, generator=g)
    sign = (2.0 * y - 1).view(-1, 1, 1)
    x[:, 0] += 0.3 * (-sign if flipped else sign)
    x[:, 1, :, 4:] += sign
    x[:, 1, :, :4] -= sign
    return Batch((x,), y)


def what_patches_tell(model: TinyNet) -> float:
    """The loss that a fresh patch classifier reaches on conv1's features: log 2 means nothing."""
    batch = two_cues(1000, 256)
    with torch.no_grad():
        h = model.conv1(batch.x[0])
        h = (h - h.mean((0, 2, 3), keepdim=True)) / h.std((0, 2, 3), keepdim=True)
    torch.manual_seed(0)
    probe = nn.Conv2d(4, 2, 1)
    optimizer = torch.optim.Adam(probe.parameters(), 0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss = local_loss(probe(h), batch.y)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def trained(local_weight: float) -> PAR:
    torch.manual_seed(0)
    # The patch classifier learns much faster than the model, so that it is always near its best.
    net = PAR(TinyNet(2), sites=["conv1"], lr=1e-3, patch_lr=0.1, local_weight=local_weight)
    for seed in range(200):
        net.step(two_cues(seed))
    return net


def test_penalty_removes_local_information_and_keeps_accuracy():
    free, penalised = trained(0.0), trained(10.0)
    assert what_patches_tell(free.model) < 0.4
    assert what_patches_tell(penalised.model) > 0.5
    fresh = two_cues(999, 128)
    assert (penalised.predict(fresh.x).argmax(1) == fresh.y).float().mean() > 0.95


# ---- the step


def test_the_local_loss_by_hand():
    """Two samples, two places: -log of the label's probability, each place counted once."""
    p = torch.tensor([[[[0.5, 0.25]], [[0.5, 0.75]]], [[[0.9, 0.2]], [[0.1, 0.8]]]])  # (N, C, 1, 2)
    expected = -(math.log(0.5) + math.log(0.25) + math.log(0.1) + math.log(0.8)) / 4
    assert float(local_loss(p.log(), torch.tensor([0, 1]))) == pytest.approx(expected)
    first_only = -(math.log(0.5) + math.log(0.25)) / 2
    assert float(local_loss(p.log(), torch.tensor([0, 7]), ignore=7)) == pytest.approx(first_only)


def test_one_step_is_the_patch_classifiers_turn_then_the_models():
    """The release's order, spelled out with a pass for each."""
    batch = tiny_batch(8)
    torch.manual_seed(0)
    net = PAR(TinyNet(), sites=["conv1"], lr=0.01, patch_lr=0.02, local_weight=0.7, classes=3)
    model, patch = TinyNet(), nn.Conv2d(4, 3, 1)
    model.load_state_dict(net.model.state_dict())
    with torch.no_grad():
        patch.weight.copy_(net.patch_classifier.weight[:, :, None, None])
        patch.bias.copy_(net.patch_classifier.bias)
    of_patch, of_model = (
        torch.optim.Adam(patch.parameters(), 0.02),
        torch.optim.Adam(model.parameters(), 0.01),
    )
    places = batch.y.view(-1, 1, 1).expand(-1, 6, 6)
    for _ in range(3):
        of_patch.zero_grad()
        cross_entropy(patch(model.conv1(*batch.x).detach()), places).backward()
        of_patch.step()
        of_model.zero_grad()
        (
            cross_entropy(model(*batch.x), batch.y)
            - 0.7 * cross_entropy(patch(model.conv1(*batch.x)), places)
        ).backward()
        of_model.step()
        net.step(batch)
    for a, b in zip(net.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        net.patch_classifier.weight, patch.weight.flatten(1), rtol=1e-4, atol=1e-6
    )
    assert int(net.steps_done) == 3


def test_warm_up_is_plain_training_with_a_patch_classifier_that_already_learns():
    batch = tiny_batch(8)
    torch.manual_seed(0)
    net = PAR(TinyNet(), sites=["conv1"], lr=0.01, warmup=3, classes=3)
    plain = ERM(TinyNet(), lr=0.01)
    plain.model.load_state_dict(net.model.state_dict())
    losses = [float(net.step(batch)["local_loss"]) for _ in range(3)]
    for _ in range(3):
        plain.step(batch)
    for a, b in zip(net.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert losses[0] > losses[-1]
    logs = net.step(batch)
    torch.testing.assert_close(logs["loss"], logs["source_loss"] - logs["local_loss"])


class Registered(TinyNet):
    """Registers layers in another order than it runs them, and one that it never runs."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(6, 5)
        self._modules = {"idle": nn.Conv2d(2, 4, 3), **dict(reversed(self._modules.items()))}


def test_it_reads_the_first_site_or_else_the_first_conv_layer_that_runs(tmp_path):
    assert PAR(TinyNet(), sites=["conv2", "conv1"]).layer == "conv2"
    net = PAR(Registered())
    net.step(tiny_batch())
    assert net.layer == "conv1" and net.patch_classifier.out_features == 3
    net.save(tmp_path)
    again = unseen.load(tmp_path, Registered())
    torch.testing.assert_close(again.patch_classifier.weight, net.patch_classifier.weight)
    again.step(tiny_batch())
    assert again.layer == "conv1"


def test_sounds_have_patches_too():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 4, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    assert torch.isfinite(
        PAR(model).step(Batch((torch.randn(6, 1, 30),), torch.arange(6) % 3))["local_loss"]
    )


# ---- clear errors


def test_site_without_patches_is_named():
    with pytest.raises(
        UnseenError, match='par reads patches from a conv layer; its site "fc1" is Linear'
    ):
        PAR(TinyNet(), sites=["fc1"])
    with pytest.raises(UnseenError, match="this model runs none"):
        PAR(nn.Sequential(nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 3)))


def test_wrong_number_of_classes_names_the_setting():
    with pytest.raises(
        UnseenError, match="the model has 3 outputs, par's patch classifier 5: set classes=3"
    ):
        PAR(TinyNet(), classes=5).step(tiny_batch())


def test_labels_of_pixels_are_refused():
    x, y = tiny_batch().x, torch.zeros(4, 6, 6, dtype=torch.int64)
    with pytest.raises(
        UnseenError, match=r"par needs one label per sample, \(N,\), got \(4, 6, 6\)"
    ):
        PAR(nn.Sequential(nn.Conv2d(2, 3, 3))).step(Batch(x, y))
