"""Synthetic shifts of held-out speakers, to choose the settings of `google_commands` by without a look at its corruptions."""

from __future__ import annotations

import zlib

import numpy as np
from torch import Tensor

from unseen.data.mel import BANDS, RATE, WINDOW, Floats, Spectrum, mel_of_hz, stft
from unseen.data.spectrograms import pictures_of
from unseen.data.speech import Clip, Samples, clips, one_second
from unseen.data.speech_corruptions import generator_for
from unseen.errors import UnseenError

SHIFTS = ("microphone", "telephone", "room", "distance", "throat")
FOLDS = 4
_HZ = np.fft.rfftfreq(WINDOW, 1 / RATE)


def fold_of(clip: Clip) -> int:
    """Which fold holds a training clip out: nobody speaks in two."""
    return zlib.crc32(clip.speaker.encode()) % FOLDS


def left_in(fold: int) -> tuple[Tensor, Tensor]:
    """Pictures and labels of the training clips that a fold leaves in."""
    left = [clip for clip in clips("train") if fold_of(clip) != fold]
    return pictures_of(left, f"left_in_by_{fold}", lambda _, samples: stft(one_second(samples)))


def held_out(fold: int, shift: str = "clean") -> tuple[Tensor, Tensor]:
    """Pictures and labels of the training clips that a fold holds out, as they are ("clean") or shifted."""
    if shift not in ("clean", *SHIFTS):
        raise UnseenError(f'no shift "{shift}"; there are: {", ".join(SHIFTS)}')

    def spectrum(clip: Clip, samples: Samples) -> Spectrum:
        if shift == "clean":
            return stft(one_second(samples))
        return shifted(shift, samples, generator_for(shift, clip.name))

    return pictures_of(
        [clip for clip in clips("train") if fold_of(clip) == fold],
        f"held_out_by_{fold}_{shift}",
        spectrum,
    )


def shifted(shift: str, samples: Floats, rng: np.random.Generator) -> Spectrum:
    """The STFT of one second of a clip, recorded in another way."""
    if shift == "room":
        return stft(one_second(_echoed(samples, rng)))
    spectrum = stft(one_second(samples))
    if shift == "microphone":
        # One gain for about every fifth mel band, linear in between: treble and bass as another microphone hears them.
        knots = np.linspace(0, mel_of_hz(np.array(RATE / 2)), BANDS // 5 + 1)
        return spectrum * _gain(np.interp(mel_of_hz(_HZ), knots, rng.normal(0, 10, len(knots))))
    if shift == "telephone":
        low, high = rng.uniform(200, 500), rng.uniform(2500, 4000)
        octaves = np.log2(np.maximum(low / np.maximum(_HZ, 1), np.maximum(_HZ / high, 1)).clip(1))
        return spectrum * _gain(-24 * octaves)
    if shift == "distance":
        return spectrum * _gain(np.full(len(_HZ), -rng.uniform(10, 25)))
    # throat: the resonances of a longer or shorter one, at the same speed.
    places = np.clip(np.arange(len(_HZ)) * rng.uniform(0.8, 1.25), 0, len(_HZ) - 1)
    return np.apply_along_axis(
        lambda column: np.interp(places, np.arange(len(_HZ)), column), 0, np.abs(spectrum)
    ).astype(spectrum.dtype)


def _gain(decibels: Floats) -> Floats:
    return 10 ** (decibels[:, None] / 20)


def _echoed(samples: Floats, rng: np.random.Generator) -> Floats:
    """In a room whose echo has lost 60 dB after 0.2 to 0.8 seconds, the speaker near the microphone or far from it."""
    from scipy.signal import fftconvolve

    seconds, direct = rng.uniform(0.2, 0.8), 10 ** (rng.uniform(-6, 6) / 20)
    time = np.arange(int(RATE * seconds)) / RATE
    echo = rng.normal(size=len(time)) * 10 ** (-3 * time / seconds)
    echo /= np.linalg.norm(echo)
    echo[0] = direct
    return fftconvolve(samples, echo)
