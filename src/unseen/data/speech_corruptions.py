"""The five corruptions of google_commands: amplitude, pitch, noise, stretch, shift.

Names and ranges are the paper's. They are the defaults of a public augmentation code for this data,
whose operations are followed; see docs/tasks/google_commands.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unseen.data.mel import RATE, Floats, Spectrum, stft
from unseen.data.speech import one_second
from unseen.errors import UnseenError

CORRUPTIONS = ("amplitude", "pitch", "noise", "stretch", "shift")  # in the paper's order
AMPLITUDE = (0.7, 1.1)
PITCH = 0.2
NOISE = 0.45
STRETCH = 0.2
SHIFT = 8  # frames, a quarter of the image
_SEED = 30


def clip_generator(kind: str, clip: str) -> np.random.Generator:
    """Return a generator that depends only on the corruption and the clip's name."""
    return np.random.default_rng([_SEED, zlib.crc32(kind.encode()), zlib.crc32(clip.encode())])


def corrupt(
    kind: str, samples: Floats, rng: np.random.Generator, noises: Sequence[Floats] = ()
) -> Spectrum:
    """Return the STFT of one second of a clip under a corruption of random strength."""
    if kind == "amplitude":
        return stft(one_second(samples * rng.uniform(*AMPLITUDE)))
    if kind == "pitch":
        return stft(one_second(slow_down(samples, rng.uniform(-PITCH, PITCH))))
    spectrum = stft(one_second(samples))
    if kind == "noise":
        return mix_noise(spectrum, stft(draw_second(noises, rng)), rng.uniform(0, NOISE))
    if kind == "stretch":
        return time_stretch(spectrum, rng.uniform(-STRETCH, STRETCH))
    if kind == "shift":
        return time_shift(spectrum, int(rng.integers(-SHIFT, SHIFT, endpoint=True)))
    raise UnseenError(f'no corruption "{kind}"; there are: {", ".join(CORRUPTIONS)}')


def slow_down(samples: Floats, scale: float) -> Floats:
    """Play at 1 / (1 + scale) of the speed: longer and lower in pitch."""
    places = np.arange(0, len(samples), 1 / (1 + scale))
    return np.interp(places, np.arange(len(samples)), samples)


def time_stretch(spectrum: Spectrum, scale: float) -> Spectrum:
    """Speed up by 1 + scale at the same pitch and number of frames, cut or padded with silence.

    A phase vocoder without phases: only magnitudes are used later, and those it interpolates.
    """
    frames = spectrum.shape[1]
    magnitude = np.pad(np.abs(spectrum), ((0, 0), (0, 1)))
    place = np.arange(0, frames, 1 + scale)[:frames]
    left = place.astype(np.int64)
    weight = place - left
    fast = (1 - weight) * magnitude[:, left] + weight * magnitude[:, left + 1]
    return np.pad(fast, ((0, 0), (0, frames - len(place)))).astype(spectrum.dtype)


def time_shift(spectrum: Spectrum, frames: int) -> Spectrum:
    """Shift by a number of frames, filled with silence; negative values shift to earlier."""
    out = np.zeros_like(spectrum)
    length = spectrum.shape[1] - abs(frames)
    if length > 0:
        out[:, max(0, frames) :][:, :length] = spectrum[:, max(0, -frames) :][:, :length]
    return out


def mix_noise(spectrum: Spectrum, noise: Spectrum, weight: float) -> Spectrum:
    """Interpolate between the word and noise."""
    return (1 - weight) * spectrum + weight * noise


def draw_second(noises: Sequence[Floats], rng: np.random.Generator) -> NDArray[np.floating]:
    """Draw one second of a random recording."""
    noise = noises[int(rng.integers(len(noises)))]
    first = int(rng.integers(max(1, len(noise) - RATE + 1)))
    return one_second(noise[first:])
