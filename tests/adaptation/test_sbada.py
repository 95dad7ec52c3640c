"""SBADA-GAN: losses, generators, consistency, self-labelling."""

from __future__ import annotations

import pytest
import torch
from shifted import accuracy, pictures, start
from torch.utils.data import TensorDataset

from unseen.adaptation import adapted_model
from unseen.adaptation.sbada import SBADA, Generator, discriminator_loss, generator_loss
from unseen.api import Batch
from unseen.errors import UnseenError


def test_least_squares_losses_by_hand():
    real, fake = torch.tensor([1.0, 0.5]), torch.tensor([0.5, 0.0])
    assert discriminator_loss(real, fake).item() == pytest.approx((0.125 + 0.125) / 2)
    assert generator_loss(fake).item() == pytest.approx((0.25 + 1) / 2)


def test_generator_starts_near_identity():
    torch.manual_seed(0)
    x = pictures().tensors[0][:50]
    y = Generator(1, 16)(x)
    assert y.shape == x.shape and y.min() >= 0 and y.max() <= 1
    assert torch.corrcoef(torch.stack([x.flatten(), y.detach().flatten()]))[0, 1] > 0.9


def batch(data: TensorDataset, n: int = 64) -> Batch:
    return Batch((data.tensors[0][:n],), data.tensors[1][:n])


def test_translated_images_change_style_and_keep_class():
    torch.manual_seed(0)
    # At the default weight the result depends on rounding; at 10 all of six seeds keep the class.
    net = SBADA(
        start("pictures"), steps=80, width=8, lr=0.001, redraw_lr=0.003, consistency_weight=10.0
    )
    source, target = batch(pictures()), batch(pictures(0.7))
    for done in range(80):
        logs = net.step(source, target, done)
    with torch.no_grad():
        as_target, as_source = net.to_target(source.x[0]), net.to_source(target.x[0])
        read = net.source_model(net.to_source(as_target)).argmax(1)
    light, dark = (float(data.x[0].median()) for data in (target, source))
    assert float(as_target.median()) > (light + dark) / 2 > float(as_source.median())
    assert float((read == source.y).float().mean()) > 0.95 and logs["consistency"] < 0.3


def test_sbada_learns_target_with_style_loss():
    model, target, there = start("pictures"), pictures(0.7), pictures(0.7, seed=9)
    settings = {"steps": 80, "width": 8, "lr": 0.001, "redraw_lr": 0.003, "seed": 1}
    made, unstyled = (
        adapted_model("sbada", model, pictures(), target, style_weight=weight, **settings)
        for weight in (1.0, 0.0)
    )
    assert (
        accuracy(made, there) > 0.9 > accuracy(model, there)
        and accuracy(made, there) > accuracy(unstyled, there) + 0.1
    )


def test_self_labelling_starts_late():
    made = {}
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        net = SBADA(
            start("pictures"), steps=6, width=4, self_label_weight=weight, self_label_from=0.5
        )
        source, target = batch(pictures(), 16), batch(pictures(0.7), 16)
        for done in range(6):
            net.step(source, target, done)
            made[weight, done] = net.source_model.fc2.weight.clone()
    assert [torch.equal(made[0.0, done], made[1.0, done]) for done in range(6)] == [True] * 3 + [
        False
    ] * 3


def test_it_needs_images_in_0_to_1():
    x, y = pictures(n=8).tensors
    with pytest.raises(UnseenError, match=r"sbada needs images in 0\.\.1"):
        adapted_model(
            "sbada", start("pictures"), TensorDataset(3 * x, y), TensorDataset(x, y), steps=1
        )
