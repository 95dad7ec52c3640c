"""Synthetic shifts of held-out speakers, for tuning `google_commands`."""

from __future__ import annotations

import zlib

import numpy as np
from torch import Tensor

from unseen.data.mel import BANDS, RATE, WINDOW, Floats, Spectrum, hz_to_mel, stft
from unseen.data.spectrograms import cached_spectrograms
from unseen.data.speech import Clip, Samples, list_clips, one_second
from unseen.data.speech_corruptions import clip_generator
from unseen.errors import UnseenError

SHIFTS = ("microphone", "telephone", "room", "distance", "throat")
FOLDS = 4
_HZ = np.fft.rfftfreq(WINDOW, 1 / RATE)


def fold_of(clip: Clip) -> int:
    """Return the fold that holds a training clip out; folds do not share speakers."""
    return zlib.crc32(clip.speaker.encode()) % FOLDS


def load_train(fold: int) -> tuple[Tensor, Tensor]:
    """Load images and labels of the training clips that a fold does not hold out."""
    clips = [clip for clip in list_clips("train") if fold_of(clip) != fold]
    return cached_spectrograms(
        clips, f"left_in_by_{fold}", lambda _, samples: stft(one_second(samples))
    )


def load_held_out(fold: int, shift: str = "clean") -> tuple[Tensor, Tensor]:
    """Load images and labels of the clips that a fold holds out, "clean" or shifted."""
    if shift not in ("clean", *SHIFTS):
        raise UnseenError(f'no shift "{shift}"; there are: {", ".join(SHIFTS)}')

    def spectrum(clip: Clip, samples: Samples) -> Spectrum:
        if shift == "clean":
            return stft(one_second(samples))
        return apply_shift(shift, samples, clip_generator(shift, clip.name))

    clips = [clip for clip in list_clips("train") if fold_of(clip) == fold]
    return cached_spectrograms(clips, f"held_out_by_{fold}_{shift}", spectrum)


def apply_shift(shift: str, samples: Floats, rng: np.random.Generator) -> Spectrum:
    """Return the STFT of one second of a clip under a shift of random strength."""
    if shift == "room":
        return stft(one_second(_add_echo(samples, rng)))
    spectrum = stft(one_second(samples))
    if shift == "microphone":
        # Random gains at every fifth mel band, interpolated: the response of another microphone.
        knots = np.linspace(0, hz_to_mel(np.array(RATE / 2)), BANDS // 5 + 1)
        return spectrum * _gain(np.interp(hz_to_mel(_HZ), knots, rng.normal(0, 10, len(knots))))
    if shift == "telephone":
        low, high = rng.uniform(200, 500), rng.uniform(2500, 4000)
        octaves = np.log2(np.maximum(low / np.maximum(_HZ, 1), np.maximum(_HZ / high, 1)).clip(1))
        return spectrum * _gain(-24 * octaves)
    if shift == "distance":
        return spectrum * _gain(np.full(len(_HZ), -rng.uniform(10, 25)))
    # throat: resonances of a longer or shorter vocal tract.
    places = np.clip(np.arange(len(_HZ)) * rng.uniform(0.8, 1.25), 0, len(_HZ) - 1)
    return np.apply_along_axis(
        lambda column: np.interp(places, np.arange(len(_HZ)), column), 0, np.abs(spectrum)
    ).astype(spectrum.dtype)


def _gain(decibels: Floats) -> Floats:
    return 10 ** (decibels[:, None] / 20)


def _add_echo(samples: Floats, rng: np.random.Generator) -> Floats:
    """Convolve with a room response that decays by 60 dB in 0.2 to 0.8 seconds."""
    from scipy.signal import fftconvolve

    seconds, direct = rng.uniform(0.2, 0.8), 10 ** (rng.uniform(-6, 6) / 20)
    time = np.arange(int(RATE * seconds)) / RATE
    echo = rng.normal(size=len(time)) * 10 ** (-3 * time / seconds)
    echo /= np.linalg.norm(echo)
    echo[0] = direct
    return fftconvolve(samples, echo)
