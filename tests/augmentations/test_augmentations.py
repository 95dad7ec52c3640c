"""Batch transforms, checked against slow literal versions."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F

from unseen import UnseenError
from unseen.api import Batch
from unseen.augmentations import (
    AUGMENTATIONS,
    GEOMETRIC,
    augment_batch,
    auto_augment,
    autoaugment,
    cutout,
    randconv,
    random_kernel,
)
from unseen.augmentations.own_kernels import convolve_each, identity_kernel
from unseen.augmentations.random_convolution import (
    RandomLayer,
    bilinear_taps,
    convolve_repeatedly,
    deformable_convolution,
    draw_layer,
)

ANY_RANGE = ("cutout", "flip_crop", "affine", "specaugment", "word_dropout")
WORDS = ("word_dropout",)  # not for images


def photos(n=8, side=32):
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_transform_keeps_shape_and_range_and_follows_the_seed(name):
    transform, x = AUGMENTATIONS[name], photos().flatten(1) if name in WORDS else photos()
    before = x.clone()
    made = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made.append(transform(x))
    assert made[0].shape == x.shape and made[0].min() >= 0 and made[0].max() <= 1
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])
    assert not torch.equal(made[0], x) and torch.equal(x, before)


def test_cutout_blanks_one_square_of_the_stated_side_and_nothing_else():
    torch.manual_seed(0)
    x = torch.ones(200, 3, 16, 16)
    blank = cutout(x, side=0.5)[:, 0] == 0
    for hole in blank:
        rows, columns = hole.any(1), hole.any(0)
        assert torch.equal(hole, rows[:, None] & columns)  # a rectangle
        assert rows.sum() <= 8 and columns.sum() <= 8  # smaller only where part of it falls outside
    assert (blank.sum((1, 2)) == 64).any()
    assert not torch.equal(blank[0], blank[1])


def test_autoaugment_draws_a_pair_for_every_image():
    torch.manual_seed(0)
    same = photos(1).expand(24, -1, -1, -1).clone()
    out = autoaugment(same)
    assert len({row.numpy().tobytes() for row in out}) > 8


def test_autoaugment_without_kornia_names_the_extra(monkeypatch):
    auto_augment._load_policy.cache_clear()
    for name in [n for n in sys.modules if n.partition(".")[0] == "kornia"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kornia", None)
    with pytest.raises(UnseenError, match=r"needs kornia: pip install 'unseen\[augment\]'"):
        autoaugment(photos())


def slow_deformable_convolution(x, weight, shake):
    """Every tap of every pixel by hand: bilinear, zero outside."""
    n, _, height, width = x.shape
    out = torch.zeros(n, weight.shape[0], height, width, dtype=x.dtype)

    def at(row, column):
        return (
            x[:, :, row, column]
            if 0 <= row < height and 0 <= column < width
            else torch.zeros_like(x[:, :, 0, 0])
        )

    for row in range(height):
        for column in range(width):
            for tap in range(9):
                down = row + tap // 3 - 1 + float(shake[tap, row, column, 1])
                across = column + tap % 3 - 1 + float(shake[tap, row, column, 0])
                top, left = int(torch.tensor(down).floor()), int(torch.tensor(across).floor())
                a, b = down - top, across - left
                value = (1 - a) * (1 - b) * at(top, left) + (1 - a) * b * at(top, left + 1)
                value = value + a * (1 - b) * at(top + 1, left) + a * b * at(top + 1, left + 1)
                out[:, :, row, column] += value @ weight[:, :, tap // 3, tap % 3].T
    return out


def test_deformable_convolution_equals_slow_version():
    g = torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, 4, 3, generator=g, dtype=torch.float64)
    weight = torch.randn(2, 3, 3, 3, generator=g, dtype=torch.float64)
    still = torch.zeros(9, 4, 3, 2, dtype=torch.float64)
    shake = 0.4 * torch.randn(9, 4, 3, 2, generator=g, dtype=torch.float64)
    # two groups of the same images, with shifts of their own
    rows = x.flatten(2).permute(2, 1, 0).expand(2, -1, -1, -1)
    taps = bilinear_taps(torch.stack([still, shake]))
    both = deformable_convolution(rows, weight.expand(2, -1, -1, -1, -1), taps)
    straight, shaken = both.permute(0, 3, 2, 1).reshape(2, 2, 2, 4, 3)
    torch.testing.assert_close(straight, F.conv2d(x, weight, padding=1))
    torch.testing.assert_close(shaken, slow_deformable_convolution(x, weight, shake))


def slow_passes(x, layer, passes):
    for _ in range(passes):
        x = slow_deformable_convolution(x, layer.weight, layer.shifts)
        x = torch.tanh(F.instance_norm(x) * layer.gain + layer.offset)
    return x


def test_each_group_of_images_has_its_layer_and_its_passes():
    torch.manual_seed(0)
    x = torch.rand(5, 2, 3, 4, dtype=torch.float64)
    layers = [RandomLayer(*(t.double() for t in draw_layer(2, 3, 4, 0.2))) for _ in range(2)]
    made = convolve_repeatedly(x, layers, [3, 1])
    expected = torch.cat([slow_passes(x[:3], layers[0], 3), slow_passes(x[3:], layers[1], 1)])
    torch.testing.assert_close(made, expected)


def test_randconv_divides_images_among_layers():
    torch.manual_seed(0)
    x = photos(1, 8).expand(12, -1, -1, -1)
    for layers, kinds in ((1, 1), (4, 4), (99, 12)):
        out = randconv(x, share=1.0, layers=layers)
        assert len({(image * 1e4).round().numpy().tobytes() for image in out}) == kinds


def test_random_kernel_equals_one_convolution_per_image():
    torch.manual_seed(0)
    x = photos(3, 6).double()
    kernels = identity_kernel(3).double() + 0.3 * torch.randn(3, 3, 3, 3, 3, dtype=torch.float64)
    gains, offsets = torch.randn(2, 3, 3, 1, dtype=torch.float64)
    made = convolve_each(x, kernels, gains, offsets)
    for image, kernel, gain, offset, got in zip(x, kernels, gains, offsets, made, strict=True):
        out = F.instance_norm(F.conv2d(image[None], kernel, padding=1))[0]
        expected = (torch.tanh(gain[..., None] * out + offset[..., None]) + 1) / 2
        torch.testing.assert_close(got, expected)
    torch.testing.assert_close(
        F.conv2d(x, identity_kernel(3).double(), padding=1), x
    )  # the centre of the kernels
    assert torch.equal(random_kernel(x.float(), share=0.0), x.float())


def test_randconv_leaves_a_share_of_the_images_alone():
    torch.manual_seed(0)
    x = photos(200, 8)
    changed = (randconv(x, share=0.3) != x).flatten(1).any(1).float().mean()
    assert 0.2 < changed < 0.4
    assert torch.equal(randconv(x, share=0.0), x)


def test_randconv_changes_colour_and_texture_but_keeps_edges_where_they_are():
    torch.manual_seed(0)
    x = torch.zeros(1, 3, 32, 32)
    x[:, :, :, 16:] = 1
    moved = 0
    for _ in range(20):
        steps = randconv(x, share=1.0).diff(dim=3).abs().mean((0, 1, 2))
        moved += int(steps[13:18].sum() < steps[4:11].sum())
    assert moved <= 2  # the strongest change stays at the edge, whatever the colours


def test_augment_batch_takes_names_and_functions():
    batch = Batch((photos(),), torch.arange(8) % 3)
    torch.manual_seed(0)
    assert not torch.equal(augment_batch(batch, "cutout").x[0], batch.x[0])
    assert torch.equal(augment_batch(batch, lambda x: 1 - x).x[0], 1 - batch.x[0])
    assert augment_batch(batch, None) is batch


def test_errors_list_augmentations_and_requirements():
    with pytest.raises(
        UnseenError, match=r'no augmentation "blur"; there are: cutout, autoaugment, randconv'
    ):
        augment_batch(Batch((photos(),), torch.arange(8)), "blur")
    with pytest.raises(UnseenError, match=r"cutout needs images.*\(4, 5000\)"):
        augment_batch(Batch((torch.rand(4, 5000),), torch.zeros(4, dtype=torch.long)), "cutout")


@pytest.mark.parametrize("name", [n for n in AUGMENTATIONS if n not in ANY_RANGE])
def test_images_that_were_normalised_already_are_refused(name):
    with pytest.raises(UnseenError, match=f"{name} needs images in 0..1, these run from"):
        AUGMENTATIONS[name]((photos() - 0.5) / 0.25)


def test_augmentations_that_move_pixels_refuse_label_maps():
    batch = Batch((photos(4),), torch.zeros(4, 32, 32, dtype=torch.long))
    moving = (*GEOMETRIC, "augmix", "hybrid:mode=single", "mixup")
    for text in moving:
        with pytest.raises(UnseenError, match="not of the label maps"):
            augment_batch(batch, text)
    still = "randconv,random_kernel,colour,light,hybrid,augmix:geometry=false,cutout"
    assert augment_batch(batch, still).y is batch.y


@pytest.mark.parametrize(
    "text", ["randconv:layers=2", "random_kernel", "colour", "light", "hybrid:kernel=5"]
)
def test_augmentations_of_label_maps_keep_pixels_in_place(text):
    # a white square on black: wherever the image changes little, its corners stay
    x = torch.zeros(8, 3, 16, 16)
    x[:, :, 4:12, 4:12] = 1
    torch.manual_seed(0)
    steps = augment_batch(Batch((x,), torch.arange(8)), text).x[0].diff(dim=3).abs().mean((0, 1, 2))
    assert set(steps.topk(2).indices.tolist()) <= {2, 3, 4, 10, 11, 12}


def test_flip_crop_yields_flipped_and_shifted_views():
    x = 0.25 + 0.5 * torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    out = augment_batch(Batch((x,), torch.zeros(64, dtype=torch.long)), "flip_crop").x[0]
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))
    kinds = set()
    for image, moved in zip(
        padded, out, strict=True
    ):  # slow: each result is one of the 2 x 81 views of its image
        views = {
            (flip, i, j): (image.flip(2) if flip else image)[:, i : i + 8, j : j + 8]
            for flip in (False, True)
            for i in range(9)
            for j in range(9)
        }
        found = [key for key, view in views.items() if torch.equal(view, moved)]
        assert len(found) == 1
        kinds |= {("flip", found[0][0]), ("down", found[0][1]), ("right", found[0][2])}
    assert {
        ("flip", False),
        ("flip", True),
        ("down", 0),
        ("down", 8),
        ("right", 0),
        ("right", 8),
    } <= kinds


def test_several_augmentations_come_one_after_the_other():
    batch = Batch((photos(4),), torch.zeros(4, dtype=torch.long))
    torch.manual_seed(0)
    together = augment_batch(batch, ["flip_crop", "cutout"])
    torch.manual_seed(0)
    one_by_one = augment_batch(augment_batch(batch, "flip_crop"), "cutout")
    assert torch.equal(together.x[0], one_by_one.x[0])
    with pytest.raises(UnseenError, match='no augmentation "blur"'):
        augment_batch(batch, ["cutout", "blur"])
