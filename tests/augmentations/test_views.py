"""Views of a batch, and the settings of augmentations as text and as tables."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import unseen
from unseen import UnseenError
from unseen.api import Batch
from unseen.augmentations import Views, affine, augment_batch, randconv
from unseen.methods import ERM
from unseen.nn.inputs import Inputs
from unseen.report.settings import format_value
from unseen.schema import parse_settings
from unseen.schema.augment import format_augment, parse_augment
from unseen.tasks import task_named
from unseen.training.config import resolve


def batch(n=6, side=8):
    x = torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0))
    return Batch((x,), torch.arange(n))


HALF = {"name": "affine", "strength": 0.5}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (None, None),
        ("randconv", "randconv"),  # as in runs of earlier versions: their identifiers stay
        (["flip_crop", "cutout"], ["flip_crop", "cutout"]),
        ("flip_crop,cutout", ["flip_crop", "cutout"]),
        ("affine:strength=0.5", [HALF]),
        (HALF, [HALF]),
        ({"name": "affine"}, ["affine"]),
        (["affine:strength=0.5", "randconv"], [HALF, "randconv"]),
        ("affine:strength=0.5,shear=0,randconv", [{**HALF, "shear": 0}, "randconv"]),
        ("affine:strength=0.5:fill=zeros", [{**HALF, "fill": "zeros"}]),
        ("/affine:strength=0.5,randconv", [[], [HALF, "randconv"]]),
        (["/affine", "randconv/none"], [[], ["affine", "randconv"], []]),
        ([[], ["affine:strength=0.5"], [HALF, "cutout"]], [[], [HALF], [HALF, "cutout"]]),
    ],
)
def test_text_tables_and_lists_give_one_value(given, value):
    parsed = parse_augment(given)
    assert parsed == value
    assert parse_augment(json.loads(json.dumps(parsed))) == value  # as config.json has it
    if value is not None:
        text = parse_augment(format_augment(value))
        assert ([text] if isinstance(text, str) else text) in (value, [value])


@pytest.mark.parametrize("text", ["affine:0.5", "strength=0.5", "affine:=3"])
def test_text_without_meaning_is_refused(text):
    with pytest.raises(UnseenError, match=r"is no setting; write NAME:setting=value|no augment"):
        Views(text)


def test_settings_reach_the_augmentation():
    torch.manual_seed(0)
    expected = affine(batch().x[0], strength=0.1, vary=False)
    torch.manual_seed(0)
    made = augment_batch(batch(), "affine:strength=0.1,vary=false")
    assert torch.equal(made.x[0], expected)


def test_two_views_are_the_batch_and_an_augmented_copy():
    torch.manual_seed(0)
    expected = randconv(batch().x[0], share=1.0)
    torch.manual_seed(0)
    made = Views("randconv:share=1.0", 2)(batch())
    assert torch.equal(made.x[0], torch.cat([batch().x[0], expected]))
    assert torch.equal(made.y, torch.arange(6).repeat(2))


def test_augmented_views_differ_and_may_have_their_own_augmentations():
    made = Views("affine", 3)(batch()).x[0].chunk(3)
    assert torch.equal(made[0], batch().x[0]) and not torch.equal(made[1], made[2])
    made = Views("affine:strength=0/cutout:side=4").plan
    assert [[step.name for step in view] for view in made] == [["affine"], ["cutout"]]
    first, second = Views("affine:strength=0/cutout:side=4")(batch()).x[0].chunk(2)
    torch.testing.assert_close(first, batch().x[0])
    assert (second == 0).all()


def test_views_take_functions_and_named_inputs():
    x = Inputs((batch().x[0],), ("image",))
    made = Views([lambda x: 1 - x, "affine:strength=0"], 2)(Batch(x, torch.arange(6)))
    assert isinstance(made.x, Inputs) and made.x.names == ("image",)
    torch.testing.assert_close(made.x[0], torch.cat([x[0], 1 - x[0]]))


def test_wrong_views_are_refused():
    with pytest.raises(UnseenError, match=r"views=2 needs an augmentation.*set augment"):
        Views(None, 2)
    with pytest.raises(UnseenError, match=r"augment has 3 lists .*but views is 2"):
        Views("/affine/cutout", 2)
    with pytest.raises(UnseenError, match="augment: affine: unknown setting angle"):
        Views("affine:angle=3")


def test_fit_trains_on_views():
    seen = []

    class Spy(ERM):
        def losses(self, batch):
            seen.append(batch)
            return super().losses(batch)

    net = Spy(nn.Sequential(nn.Flatten(), nn.Linear(192, 6)), embedding="0")
    unseen.fit(net, [batch()], steps=2, augment="affine", views=2, progress=False)
    assert [len(b.y) for b in seen] == [12, 12] and len(seen[0].x[0]) == 12
    with pytest.raises(UnseenError, match="needs an augmentation"):
        unseen.fit(net, [batch()], steps=2, views=2, progress=False)


def test_settings_are_checked_before_training_and_recorded():
    task = task_named("mini_digits")
    words = parse_settings(["augment=affine:strength=0.5,randconv", "views=2"])
    loop = resolve(task, ERM, "fast", words).loop
    assert loop.augment == [HALF, "randconv"] and loop.views == 2
    assert format_value(loop.augment) == "affine:strength=0.5,randconv"
    assert resolve(task, ERM, "fast", {"views": 1}).loop.views is None
    with pytest.raises(UnseenError, match=r"--set: augment: affine: strength must be at least 0"):
        resolve(task, ERM, "fast", parse_settings(["augment=affine:strength=-1"]))
