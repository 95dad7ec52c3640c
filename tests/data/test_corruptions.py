"""The corruptions of CIFAR-10-C: determinism, ranges, and comparison with slow versions."""

from __future__ import annotations

import colorsys
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import affine_transform, gaussian_filter, map_coordinates, zoom
from sklearn.datasets import load_sample_images

from unseen.data.corruptions import (
    CORRUPTIONS,
    GROUPS,
    SEVERITIES,
    blur,
    corrupt,
    digital,
    noise,
    sampling,
    weather,
)
from unseen.data.location import VARIABLE, MissingData
from unseen.errors import UnseenError

RANDOM = {
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "glass_blur",
    "motion_blur",
    "snow",
    "frost",
    "fog",
    "elastic_transform",
}


@pytest.fixture(scope="module")
def photos() -> np.ndarray:
    """120 pieces of two photographs, as small as CIFAR's."""
    small = [
        np.asarray(Image.fromarray(photo).resize((320, 192), Image.Resampling.BOX))
        for photo in load_sample_images().images
    ]
    return np.concatenate(
        [s.reshape(6, 32, 10, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3) for s in small]
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A data folder with overlays of our own in place of the published photographs of frost."""
    root = tmp_path_factory.mktemp("data")
    (root / "cifar10/frost").mkdir(parents=True)
    draws = np.random.default_rng(0)
    for i, name in enumerate(weather.OVERLAYS):
        crystals = gaussian_filter(draws.normal(size=(200 + 10 * i, 240, 3)), (4, 4, 0)) * 600 + 150
        Image.fromarray(np.clip(crystals, 0, 255).astype(np.uint8)).save(
            root / "cifar10/frost" / name
        )
    return root


@pytest.fixture(autouse=True)
def ice(root, monkeypatch) -> tuple[np.ndarray, ...]:
    monkeypatch.setenv(VARIABLE, str(root))
    return weather.load_overlays(weather.frost_folder())


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


# ---- what each does to pictures


def mean_difference(clean: np.ndarray, made: np.ndarray) -> float:
    return float(np.abs(np.clip(made, 0, 255) - clean.astype(np.float64)).mean())


def grows_plainly(name: str, clean: np.ndarray, severity: int) -> float:
    return mean_difference(clean, CORRUPTIONS[name](clean, severity, rng()))


def hidden_by_ice(name: str, clean: np.ndarray, severity: int) -> float:
    """Return the fraction of variance that the clean image does not explain."""
    made = np.clip(CORRUPTIONS[name](clean, severity, rng()), 0, 255)
    return float(
        np.mean(
            [
                1 - np.corrcoef(a.ravel(), b.ravel())[0, 1] ** 2
                for a, b in zip(clean, made, strict=True)
            ]
        )
    )


def light_strayed(name: str, clean: np.ndarray, severity: int) -> float:
    """Return the mean squared displacement of the light of a point."""
    point = np.zeros((400, 32, 32, 3), np.uint8)
    point[:, 16, 16] = 255
    light = CORRUPTIONS[name](point, severity, rng()).mean(axis=(0, 3))
    way = (np.arange(32) - 16) ** 2
    return float((light * (way[:, None] + way)).sum() / light.sum())


def stretched_beyond_tilt(name: str, clean: np.ndarray, severity: int) -> float:
    """Return the effect of the displacement alone: the affine part shrinks with severity."""
    amplitude, smoothness, reach = digital.ELASTIC[severity - 1]
    return mean_difference(
        digital.random_affine(clean, reach, rng()), _after_tilt(clean, amplitude, smoothness, reach)
    )


def _after_tilt(clean: np.ndarray, amplitude: float, smoothness: float, reach: float) -> np.ndarray:
    draws = rng()
    return digital.random_displacement(
        digital.random_affine(clean, reach, draws), amplitude, smoothness, draws
    )


DISTORTION = {
    "frost": hidden_by_ice,
    "glass_blur": light_strayed,
    "elastic_transform": stretched_beyond_tilt,
}
# Severities with the same effect: a Gaussian too narrow for bytes, and a trail cut where invisible.
TIES = {("glass_blur", 2), ("motion_blur", 4)}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_mean_distortion_grows_with_severity(name, photos):
    amounts = [
        DISTORTION.get(name, grows_plainly)(name, photos, severity) for severity in SEVERITIES
    ]
    for severity, before, after in zip(SEVERITIES[1:], amounts, amounts[1:], strict=False):
        if (name, severity) in TIES:
            assert after == pytest.approx(before, rel=0.01)
        else:
            assert after > 1.02 * before, (name, severity, amounts)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(name, photos):
    before = photos.copy()
    once, again, other = (corrupt(photos, name, 3, seed) for seed in (7, 7, 8))
    assert once.dtype == np.uint8 and once.shape == photos.shape and (photos == before).all()
    assert (once == again).all() and (once == other).all() == (name not in RANDOM)
    one, twin = corrupt(photos[[0, 0]], name, 3)
    assert (one == twin).all() == (name not in RANDOM), "every image has draws of its own"


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_first_images_are_the_same_however_many_follow(name, photos, monkeypatch):
    monkeypatch.setattr("unseen.data.corruptions.BLOCK", 40)
    made = corrupt(photos[np.arange(100) % 40], name, 4)
    assert (made[:40] == corrupt(photos[:40], name, 4)).all()
    assert (made[40:80] == made[:40]).all() == (name not in RANDOM), (
        "draws of one block come back in the next"
    )


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_values_stay_in_range(name, severity):
    extremes = np.zeros((4, 32, 32, 3), np.uint8)
    extremes[1], extremes[2, :, ::2], extremes[3, ..., 0] = 255, 255, 255
    with np.errstate(all="raise"):
        made = corrupt(extremes, name, severity)
    values = CORRUPTIONS[name](extremes, severity, rng())
    assert np.isfinite(values).all() and made.dtype == np.uint8
    if name not in ("impulse_noise", "fog"):  # pepper is black, and fog is grey
        assert made[1].min() > 100, "white that overflows would come out black"
    if name not in ("impulse_noise", "fog", "frost", "snow", "brightness"):
        assert made[0].max() < 140, "black that underflows would come out white"


def test_fifteen_corruptions_and_errors(photos):
    assert {group: len(names) for group, names in GROUPS.items()} == {
        "noise": 3,
        "blur": 4,
        "weather": 4,
        "digital": 4,
    }
    with pytest.raises(UnseenError, match='no corruption "rain"; there are: gaussian_noise'):
        corrupt(photos, "rain", 1)
    with pytest.raises(UnseenError, match="severity must be one of 1, 2, 3, 4, 5, not 0"):
        corrupt(photos, "fog", 0)
    with pytest.raises(UnseenError, match=r"not \(120, 3, 32, 32\) of uint8"):
        corrupt(photos.transpose(0, 3, 1, 2), "fog", 1)
    with pytest.raises(UnseenError, match="of float64"):
        corrupt(photos / 255, "fog", 1)


# ---- noise


def test_noise_has_the_published_strength():
    grey = np.full((50, 32, 32, 3), 100, np.uint8)
    assert noise.gaussian_noise(grey, 5, rng()).std() == pytest.approx(25.5, rel=0.01)
    assert noise.shot_noise(grey, 3, rng()).var() == pytest.approx(100 * 255 / 100, rel=0.02), (
        "photons: mean over their number"
    )
    made = noise.impulse_noise(grey, 5, rng())
    assert ((made == 0).mean(), (made == 255).mean()) == (
        pytest.approx(0.035, rel=0.05),
        pytest.approx(0.035, rel=0.05),
    )
    assert ((made != 100).any(-1)).mean() == pytest.approx(1 - 0.93**3, rel=0.05), (
        "each colour by itself"
    )


# ---- blur


def test_a_defocused_point_is_the_published_disk():
    assert blur.soft_disk(1.5, 0.1)[1:4, 1:4] == pytest.approx(np.full((3, 3), 1 / 9))
    cross = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]]) / 5
    assert blur.soft_disk(1, 0.2)[1:4, 1:4] == pytest.approx(cross, abs=1e-5)
    rim = np.exp(-1 / (2 * 0.4**2))  # a disk of one pixel leaves the softening alone
    assert blur.soft_disk(0.3, 0.4)[2] == pytest.approx(
        np.array([0, rim, 1, rim, 0]) / (1 + 2 * rim) ** 2
    )
    edge = np.zeros((1, 32, 32, 3), np.uint8)
    edge[:, 1:] = 90
    made = blur.defocus_blur(edge, 5, rng())[0, :, 5, 0]
    assert made[0] == pytest.approx(60), (
        "mirrored at the outermost row: two of three rows are bright"
    )
    assert made[1] == pytest.approx(60) and made[2] == pytest.approx(90)


def test_glass_copies_as_the_published_swap_of_views_does(photos):
    down, right = rng().integers(-1, 1, (2, 3, 32, 32))
    made = blur.displace(photos[:3], down, right)
    for i, image in enumerate(photos[:3].copy()):
        for h in range(31, 1, -1):
            for w in range(31, 1, -1):
                h2, w2 = h + down[i, h, w], w + right[i, h, w]
                image[h, w], image[h2, w2] = image[h2, w2], image[h, w]
        assert (made[i] == image).all()


def test_motion_blur_is_the_half_gaussian_trail_of_imagemagick(photos):
    angles = np.array([-45.0, 0.0, 30.0, -100.0])
    made = blur.directional_blur(photos[:4], 6, 2.0, angles)
    weights = [np.exp(-(k**2) / 8) for k in range(13)]
    for i, (image, angle) in enumerate(zip(photos, np.radians(angles), strict=False)):
        for y, x in [(0, 0), (3, 29), (16, 16), (31, 31), (30, 2)]:
            total = np.zeros(3)
            for k, weight in enumerate(weights):
                row, column = (
                    y + np.ceil(k * np.sin(angle) - 0.5),
                    x + np.ceil(k * np.cos(angle) - 0.5),
                )
                total += weight * image[int(np.clip(row, 0, 31)), int(np.clip(column, 0, 31))]
            assert made[i, y, x] == pytest.approx(total / sum(weights), abs=0.51)


def zoomed(image: np.ndarray, factor: float) -> np.ndarray:
    kept = int(np.ceil(32 / factor))
    top = (32 - kept) // 2
    large = zoom(image[top : top + kept, top : top + kept], (factor, factor, 1), order=1)
    trim = (large.shape[0] - 32) // 2
    return large[trim : trim + 32, trim : trim + 32]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_zoom_blur_is_the_mean_of_enlarged_copies(photos, severity):
    made = blur.zoom_blur(photos[:2], severity, rng())
    for i, image in enumerate(photos[:2].astype(np.float64)):
        copies = [
            zoomed(image, factor)
            for factor in np.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1], 0.01)
        ]
        assert made[i] == pytest.approx((image + sum(copies)) / (len(copies) + 1), abs=1e-3)


@pytest.mark.parametrize("factor", [1.0, 1.25, 1.75, 2.25])
def test_flakes_are_enlarged_as_scipy_does(photos, factor):
    layer = photos[0, :, :, :1].astype(np.float64)
    matrix = sampling.zoom_matrix(factor)
    assert matrix @ layer[..., 0] @ matrix.T == pytest.approx(
        zoomed(layer, factor)[..., 0], abs=1e-3
    )


# ---- weather


def test_plasma_is_the_diamond_square_algorithm_one_point_at_a_time():
    fast, draws = weather.plasma(1, 2.0, rng())[0], rng()
    height, step, reach = np.zeros((32, 32)), 32, 100.0
    while step > 1:
        half, n = step // 2, 32 // step
        for dy, dx in ((half, half), (0, half), (half, 0)):
            shifts = reach * draws.uniform(-reach, reach, (n, n))
            around = (
                [(half, half), (half, -half), (-half, half), (-half, -half)]
                if dy and dx
                else [(half, 0), (-half, 0), (0, half), (0, -half)]
            )
            for i in range(n):
                for j in range(n):
                    y, x = i * step + dy, j * step + dx
                    height[y, x] = (
                        sum(height[(y + a) % 32, (x + b) % 32] for a, b in around) / 4
                        + shifts[i, j]
                    )
        step, reach = half, reach / 2
    height -= height.min()
    assert fast == pytest.approx(height / height.max())


def test_fog_on_black_is_the_plasma_and_nothing_is_brighter_than_before():
    lit = np.zeros((1, 32, 32, 3), np.uint8)
    lit[0, 0, 0] = 204
    made = weather.fog(lit, 4, rng())[0]
    plasma = weather.plasma(1, 2.0, rng())[0]
    assert made[1:] == pytest.approx(
        np.repeat(255 * plasma[1:, :, None] * 0.8 / 1.8, 3, axis=2), rel=1e-5
    )


def test_snow_whitens_the_scene_and_adds_streaks_and_the_same_turned_by_180_degrees():
    scene = np.zeros((40, 32, 32, 3), np.uint8)
    made = weather.snow(scene, 5, rng())
    streaks = made - 0.2 * 127.5
    assert streaks.min() == pytest.approx(0, abs=1e-4) and streaks.max() > 50
    assert np.abs(streaks - streaks[:, ::-1, ::-1]).max() < 1e-3
    across, along = np.abs(np.diff(streaks, axis=2)).mean(), np.abs(np.diff(streaks, axis=1)).mean()
    assert along < 0.7 * across, "flakes fall more down than sideways"


def test_frost_adds_a_piece_of_a_published_overlay(photos, ice):
    picture = np.asarray(Image.open(weather.frost_folder() / "frost2.png"))
    assert (ice[1] == picture[2::5, 2::5]).all(), "the middle one of every five pixels"
    made = weather.add_overlays(photos, 5, rng(), ice) - 0.75 * photos
    for piece in made[:20]:
        found = [
            np.abs(overlay[y : y + 32, x : x + 32] * 0.45 - piece).max() < 1e-3
            for overlay in ice
            for y in range(overlay.shape[0] - 32)
            for x in range(overlay.shape[1] - 32)
        ]
        assert any(found)


def test_without_overlays_there_is_no_frost(photos, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(
        MissingData,
        match=r"elsewhere/cifar10/frost/frost1\.png is missing.*in .*elsewhere/cifar10/frost",
    ):
        corrupt(photos, "frost", 1)


@pytest.mark.parametrize("severity", [1, 5])
def test_brightness_raises_the_value_of_hsv(photos, severity):
    image = photos[::40].copy()
    image[0, 0, :4] = [[0, 0, 0], [255, 255, 255], [255, 0, 0], [1, 0, 0]]
    made = np.clip(weather.brightness(image, severity, rng()), 0, 255)
    for before, after in zip(image[:, :3].reshape(-1, 3), made[:, :3].reshape(-1, 3), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(before / 255))
        expected = colorsys.hsv_to_rgb(h, s, min(1, v + (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]))
        assert after / 255 == pytest.approx(expected, abs=1e-5)


# ---- digital


def test_contrast_draws_every_colour_to_its_own_mean(photos):
    made = digital.contrast(photos, 5, rng())
    assert made.mean(axis=(1, 2)) == pytest.approx(photos.mean(axis=(1, 2)), rel=1e-4)
    assert made.std(axis=(1, 2)) == pytest.approx(0.15 * photos.std(axis=(1, 2)), rel=1e-3)


@pytest.mark.parametrize(
    ("beyond", "mode"),
    [(sampling.mirror, "mirror"), (sampling.reflect, "reflect"), (sampling.clamp, "nearest")],
)
def test_reading_between_pixels_is_scipys_bilinear_interpolation(photos, beyond, mode):
    rows, columns = rng().uniform(-40, 70, (2, 3, 32, 32))
    made = sampling.bilinear(photos[:3].astype(np.float32), rows, columns, beyond)
    for i in range(3):
        for channel in range(3):
            slow = map_coordinates(
                photos[i, :, :, channel].astype(float), [rows[i], columns[i]], order=1, mode=mode
            )
            assert made[i, :, :, channel] == pytest.approx(slow, abs=1e-2)


def test_the_tilt_moves_three_points_as_drawn_and_all_others_with_them(photos):
    made = digital.random_affine(photos[:2], 2.0, rng())
    shifts = rng().uniform(-2.0, 2.0, (2, 2, 3))
    for i in range(2):
        points = np.array([[26.0, 26.0], [26.0, 6.0], [6.0, 6.0]])  # x, y
        there = np.linalg.solve(
            np.c_[points, np.ones(3)], points + shifts[i].T
        )  # [x y 1] @ there = [x' y']
        linear, offset = there[:2].T[::-1, ::-1], there[2][::-1]  # of rows and columns
        back = np.linalg.inv(linear)
        for channel in range(3):
            slow = affine_transform(
                photos[i, :, :, channel].astype(float), back, -back @ offset, order=1, mode="mirror"
            )
            assert made[i, :, :, channel] == pytest.approx(slow, abs=1e-2)


def test_stretching_by_nothing_changes_nothing_and_never_reaches_beyond_its_amplitude(photos):
    floats = photos.astype(np.float32)
    assert (digital.random_displacement(floats, 0.0, 0.0, rng()) == floats).all()
    ramp = np.broadcast_to(
        np.arange(32, dtype=np.float32)[None, :, None, None], (20, 32, 32, 3)
    ).copy()
    way = digital.random_displacement(ramp, 3.2, 0.96, rng()) - ramp
    assert 1.0 < np.abs(way).max() <= 3.2 and np.abs(way[:, 4:-4].mean()) < 0.05


def test_pixelate_and_jpeg_are_pillows(photos):
    image = Image.fromarray(photos[7])
    small = image.resize((20, 20), Image.Resampling.BOX).resize((32, 32), Image.Resampling.BOX)
    assert (corrupt(photos, "pixelate", 5)[7] == np.asarray(small)).all()
    file = io.BytesIO()
    image.save(file, "JPEG", quality=40)
    assert (corrupt(photos, "jpeg_compression", 5)[7] == np.asarray(Image.open(file))).all()


def test_extra_corruptions_are_not_in_the_benchmark():
    from unseen.data.corruptions import EXTRA

    assert not set(EXTRA) & set(CORRUPTIONS)
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    images[0, 0, 0] = 100  # grey has no hue of its own
    made = corrupt(images, "saturate", 4).astype(int)
    for i, j in ((0, 0), (5, 7), (31, 31)):
        hue, saturation, value = colorsys.rgb_to_hsv(*(images[0, i, j] / 255))
        slow = np.array(colorsys.hsv_to_rgb(hue, min(1, 2 * saturation + 0.1), value)) * 255
        assert np.abs(made[0, i, j] - slow).max() <= 1  # cut, not rounded
    black, light = np.zeros((1, 32, 32, 3), np.uint8), np.full((1, 32, 32, 3), 120, np.uint8)
    assert (corrupt(black, "speckle_noise", 5) == 0).all()
    assert corrupt(light, "speckle_noise", 5).std() == pytest.approx(0.2 * 120, rel=0.05)
    assert (corrupt(light, "gaussian_blur", 5) == light).all()
    assert (
        corrupt(images, "gaussian_blur", 5).std()
        < corrupt(images, "gaussian_blur", 1).std()
        < images.std()
    )
