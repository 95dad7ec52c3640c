"""The paper's five corruptions of a spoken word: amplitude and pitch in time, noise, stretch and shift on the STFT.

The paper prints their names and ranges; they are the defaults of a public augmentation code for this data, so what is drawn
within a range, and how it is applied, follows that code: docs/tasks/google_commands.md.
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
SHIFT = 8  # frames, a quarter of the picture
_SEED = 30  # any constant would do


def generator_for(kind: str, clip: str) -> np.random.Generator:
    """Random numbers that depend on the corruption and the clip's name alone, not on which other clips there are."""
    return np.random.default_rng([_SEED, zlib.crc32(kind.encode()), zlib.crc32(clip.encode())])


def corrupted(
    kind: str, samples: Floats, rng: np.random.Generator, noises: Sequence[Floats] = ()
) -> Spectrum:
    """The STFT of one second of a clip, corrupted by an amount drawn within the paper's range."""
    if kind == "amplitude":
        return stft(one_second(samples * rng.uniform(*AMPLITUDE)))
    if kind == "pitch":
        return stft(one_second(slowed(samples, rng.uniform(-PITCH, PITCH))))
    spectrum = stft(one_second(samples))
    if kind == "noise":
        return with_noise(spectrum, stft(a_second_of(noises, rng)), rng.uniform(0, NOISE))
    if kind == "stretch":
        return hurried(spectrum, rng.uniform(-STRETCH, STRETCH))
    if kind == "shift":
        return delayed(spectrum, int(rng.integers(-SHIFT, SHIFT, endpoint=True)))
    raise UnseenError(f'no corruption "{kind}"; there are: {", ".join(CORRUPTIONS)}')


def slowed(samples: Floats, scale: float) -> Floats:
    """Played at 1 / (1 + scale) of its speed: so much longer, and so much lower in pitch."""
    places = np.arange(0, len(samples), 1 / (1 + scale))
    return np.interp(places, np.arange(len(samples)), samples)


def hurried(spectrum: Spectrum, scale: float) -> Spectrum:
    """Spoken 1 + scale times as fast at the same pitch, in as many frames: cut off, or followed by silence.

    A phase vocoder, less the phases that it repairs: what follows looks at magnitudes only, and those it interpolates.
    """
    frames = spectrum.shape[1]
    magnitude = np.pad(np.abs(spectrum), ((0, 0), (0, 1)))
    place = np.arange(0, frames, 1 + scale)[:frames]
    before = place.astype(np.int64)
    after = place - before
    fast = (1 - after) * magnitude[:, before] + after * magnitude[:, before + 1]
    return np.pad(fast, ((0, 0), (0, frames - len(place)))).astype(spectrum.dtype)


def delayed(spectrum: Spectrum, frames: int) -> Spectrum:
    """So many frames later, or earlier where negative; what moves out is lost, silence moves in."""
    moved = np.zeros_like(spectrum)
    kept = spectrum.shape[1] - abs(frames)
    if kept > 0:
        moved[:, max(0, frames) :][:, :kept] = spectrum[:, max(0, -frames) :][:, :kept]
    return moved


def with_noise(spectrum: Spectrum, noise: Spectrum, share: float) -> Spectrum:
    """So much noise, and so much less of the word."""
    return (1 - share) * spectrum + share * noise


def a_second_of(noises: Sequence[Floats], rng: np.random.Generator) -> NDArray[np.floating]:
    """A random second of a random recording."""
    noise = noises[int(rng.integers(len(noises)))]
    first = int(rng.integers(max(1, len(noise) - RATE + 1)))
    return one_second(noise[first:])
