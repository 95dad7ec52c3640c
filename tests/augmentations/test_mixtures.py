"""AugMix, hybrid images, spectrograms, words, colour and light, against slow obvious code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from unseen import UnseenError
from unseen.augmentations import (
    augmix,
    colour,
    hybrid,
    light,
    mixup,
    specaugment,
    word_dropout,
)
from unseen.augmentations.hybrid_images import low_pass, swap_amplitudes
from unseen.augmentations.image_operations import (
    COLOUR,
    GEOMETRY,
    apply_operations,
    equalize,
    posterize,
    random_operations,
    solarize,
)
from unseen.augmentations.masked_spectrograms import draw_mask
from unseen.augmentations.mixed_chains import mix_chains
from unseen.augmentations.mixed_sounds import add_powers


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def photos(n=4, side=16):
    smooth = torch.rand(n, 3, side // 4, side // 4).repeat_interleave(4, 2).repeat_interleave(4, 3)
    return ((0.8 * smooth + 0.2 * torch.rand(n, 3, side, side)) * 255).round() / 255


def in_pillow(image, change):
    pixels = (image * 255).round().byte().permute(1, 2, 0).numpy()
    return torch.from_numpy(np.asarray(change(Image.fromarray(pixels))) / 255).permute(2, 0, 1)


@pytest.mark.parametrize("level", [0.1, 2.6, 9.9])
def test_colour_operations_equal_pillow(level):
    x, at = photos(), torch.tensor(level)
    bits, threshold = 4 - int(level * 4 / 10), 256 - int(level * 256 / 10)
    cases = {
        equalize: ImageOps.equalize,
        posterize: lambda image: ImageOps.posterize(image, bits),
        solarize: lambda image: ImageOps.solarize(image, threshold),
    }
    for ours, theirs in cases.items():
        for image, made in zip(x, ours(x, at), strict=True):
            torch.testing.assert_close(made.double(), in_pillow(image, theirs), atol=1e-6, rtol=0)


def test_every_image_has_its_own_operation():
    x = photos(len(COLOUR + GEOMETRY))
    levels, signs = torch.full((9,), 3.0), torch.ones(9)
    together = apply_operations(x, list(COLOUR + GEOMETRY), levels, signs)
    for n, name in enumerate(COLOUR + GEOMETRY):
        alone = apply_operations(x[n : n + 1], [name], levels[:1], signs[:1])[0]
        torch.testing.assert_close(together[n], alone)
        assert not torch.equal(alone, x[n])
    shifted = apply_operations(x[:1], ["translate_x"], torch.tensor([3.0]), torch.ones(1))
    torch.testing.assert_close(shifted[0, :, :, :-1], x[0, :, :, 1:])  # 16 / 3 * 3 / 10 pixels: 1
    drawn = random_operations(photos(1).expand(200, -1, -1, -1), 3.0, geometry=False)
    assert 4 <= len({image.numpy().tobytes() for image in drawn}) < 200


def test_augmix_mixes_chains_as_the_paper_does():
    x, chains = photos(2), photos(6)
    weights, share = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]), torch.tensor([0.25, 1.0])
    made = mix_chains(x, chains, weights, share)
    for n in range(2):
        mixture = sum(float(weights[n, k]) * chains[3 * n + k] for k in range(3))
        expected = (1 - share[n]) * x[n] + share[n] * mixture
        torch.testing.assert_close(made[n], expected)
    same = photos(1).expand(32, -1, -1, -1)
    assert len({image.numpy().tobytes() for image in augmix(same)}) == 32


def test_low_pass_is_a_gaussian_filter():
    x = photos(1)[0, 0].double()
    weights = [math.exp(-(d**2) / (2 * 0.7**2)) for d in (-2, -1, 0, 1, 2)]
    weights = [w / sum(weights) for w in weights]
    made = low_pass(x[None, None], kernel=5, sigma=0.7)[0, 0]
    reflect = [2, 1, *range(16), 14, 13]
    for row in range(16):
        for column in (0, 1, 7, 15):
            expected = sum(
                a * b * x[reflect[row + i], reflect[column + j]]
                for i, a in enumerate(weights)
                for j, b in enumerate(weights)
            )
            assert float(made[row, column]) == pytest.approx(float(expected))


def test_swapped_amplitudes_keep_phases():
    x, others = photos(3).double(), photos(3).double()
    made = swap_amplitudes(x, others)
    for own, other, got in zip(x.numpy(), others.numpy(), made.numpy(), strict=True):
        spectrum = np.abs(np.fft.fftn(other)) * np.exp(1j * np.angle(np.fft.fftn(own)))
        np.testing.assert_allclose(got, np.fft.ifftn(spectrum).real, atol=1e-9)


def test_paired_hybrid_takes_low_frequencies_of_the_image_and_high_ones_of_another():
    x = photos(6)
    torch.manual_seed(1)
    made = hybrid(x, share=1.0, amplitude_share=0.0)
    torch.manual_seed(1)
    partner = torch.randperm(6)
    low = low_pass(x)
    torch.testing.assert_close(made, (low + (x - low)[partner]).clamp(0, 1))
    assert torch.equal(hybrid(x, share=0.0), x)


def test_single_hybrid_needs_no_other_image():
    x = photos(1)
    made = torch.cat([hybrid(x, mode="single", share=1.0) for _ in range(8)])
    assert len({image.numpy().tobytes() for image in made}) == 8
    assert made.min() >= 0 and made.max() <= 1


def test_specaugment_masks_whole_bands_and_frames():
    x = torch.rand(64, 1, 12, 20)
    made = specaugment(x, bands=1, band_width=0.5, frames=1, frame_width=0.3, fill="zero")
    for before, after in zip(x[:, 0], made[:, 0], strict=True):
        masked = (after == 0) & (before > 0)
        rows, columns = masked.all(1), masked.all(0)
        assert torch.equal(masked, rows[:, None] | columns)
        assert rows.sum() <= 6 or columns.all()
        assert columns.sum() <= 6 or rows.all()
    filled = specaugment(x)
    changed = filled != x
    assert torch.equal(filled[changed], x.mean((1, 2, 3), keepdim=True).expand(x.shape)[changed])
    widths = draw_mask(4000, 20, 0.25).sum(1)
    assert widths.unique().tolist() == [0, 1, 2, 3, 4, 5]
    assert not specaugment(x, bands=0, frames=0).ne(x).any()


def test_mixed_sounds_add_as_powers():
    x, other = torch.rand(2, 1, 3, 4, dtype=torch.float64), torch.rand(2, 1, 3, 4).double()
    weight = torch.tensor([0.8, 1.0]).double()[:, None, None, None]
    made = add_powers(x, other, weight, 120.0)
    for n in range(2):
        for a, b, got in zip(x[n].flatten(), other[n].flatten(), made[n].flatten(), strict=True):
            power = float(weight[n]) * 10 ** (12 * float(a)) + (1 - float(weight[n])) * 10 ** (
                12 * float(b)
            )
            assert float(got) == pytest.approx(math.log10(power) / 12)
    loud = torch.ones(64, 1, 2, 2)
    loud[32:] = 0
    # full scale against silence: the weight is at least one half, which is 3 dB less
    assert mixup(loud)[:32].min() >= 1 - 3.02 / 120
    assert torch.equal(mixup(loud, share=0.0), loud)


def test_word_dropout_leaves_words_out_at_the_rate():
    x = torch.ones(50, 400)
    made = word_dropout(x, rate=0.3)
    assert set(made.unique().tolist()) == {0.0, 1.0}
    assert float((made == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    varied = (word_dropout(x, rate=0.8, vary=True) == 0).float().mean(1)
    assert varied.min() < 0.2 and varied.max() > 0.6
    with pytest.raises(UnseenError, match=r"needs bags of words.*\(2, 3, 4, 4\)"):
        word_dropout(torch.rand(2, 3, 4, 4))


def test_colour_of_no_strength_changes_nothing_and_grey_has_no_saturation():
    x = photos(5)
    torch.testing.assert_close(colour(x, strength=0.0), x)
    grey = x[:, :1].expand(-1, 3, -1, -1)
    made = colour(grey, strength=1.0, balance=0.0, contrast=0.0)
    torch.testing.assert_close(made, grey)
    made = colour(x, strength=1.0, saturation=0.0, balance=0.0)
    for before, after in zip(x, made, strict=True):  # contrast: one line through the mean
        inner = (after > 0) & (after < 1)
        ratio = ((after - before.mean()) / (before - before.mean()))[inner]
        assert float(ratio.std() / ratio.mean()) < 0.05


def test_light_changes_exposure_smoothly():
    x = torch.full((8, 3, 16, 16), 0.25)
    torch.testing.assert_close(light(x, strength=0.0), x)
    made = light(x, strength=1.0, gamma=0.0, gradient=0.0, noise=0.0)
    stops = (made / x).log2()
    torch.testing.assert_close(stops, stops[:, :1, :1, :1].expand(stops.shape))
    assert stops.abs().max() <= 1.5 and stops[:, 0, 0, 0].std() > 0.3
    slopes = light(x, strength=1.0, exposure=0.0, gamma=0.0, noise=0.0).log2().diff(dim=3)
    torch.testing.assert_close(slopes, slopes[:, :, :, :1].expand(slopes.shape), atol=1e-4, rtol=0)
