"""Log-mel spectrograms of one second of sound, 32 bands by 32 frames.

Equal to librosa with its defaults (Hann window, centred frames, zero padding, power, Slaney's scale
and norm), as used by the public code whose corruption ranges the paper gives. librosa itself would
add numba and other dependencies.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Spectrum = NDArray[np.complexfloating]  # (1025, frames)

RATE = 16_000
WINDOW, HOP = 2048, 512
BANDS, FRAMES = 32, 32
# Decibels of pixel values 0 and 255. A full-scale sine reaches 35; 2 % of values are below -80.
QUIETEST, LOUDEST = -80.0, 40.0

# Slaney's scale: linear up to 1 kHz at 200/3 Hz per mel, then 27 mels for a factor of 6.4.
_LINEAR_HZ, _KNEE_HZ = 200 / 3, 1000.0
_KNEE_MEL, _LOG_STEP = _KNEE_HZ / _LINEAR_HZ, np.log(6.4) / 27


def hz_to_mel(hz: Floats) -> Floats:
    """Convert frequencies to Slaney's mel scale."""
    above = _KNEE_MEL + np.log(np.maximum(hz, _KNEE_HZ) / _KNEE_HZ) / _LOG_STEP
    return np.where(hz < _KNEE_HZ, hz / _LINEAR_HZ, above)


def mel_to_hz(mel: Floats) -> Floats:
    """Convert Slaney's mel scale to frequencies."""
    above = _KNEE_HZ * np.exp(_LOG_STEP * (np.maximum(mel, _KNEE_MEL) - _KNEE_MEL))
    return np.where(mel < _KNEE_MEL, mel * _LINEAR_HZ, above)


@cache
def mel_filters(rate: int = RATE, window: int = WINDOW, bands: int = BANDS) -> NDArray[np.float64]:
    """Return triangular filters of unit area, (bands, window // 2 + 1)."""
    highest = hz_to_mel(np.array(rate / 2))
    corners = mel_to_hz(np.linspace(0, highest, bands + 2))
    low, peak, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    hz = np.fft.rfftfreq(window, 1 / rate)
    rising, falling = (hz - low) / (peak - low), (high - hz) / (high - peak)
    filters = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    filters.flags.writeable = False  # the cached array is shared
    return filters


def stft(samples: Floats) -> NDArray[np.complex128]:
    """Compute the STFT, (1025, 1 + samples // 512); frame t is centred on sample 512 t."""
    padded = np.pad(samples.astype(np.float64), WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    return np.fft.rfft(frames * hann).T


def log_mel(spectrum: Spectrum) -> NDArray[np.float64]:
    """Compute the mel bands of an STFT in dB, (32, frames), lowest band first, at least -100."""
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    return 10 * np.log10(np.maximum(mel_filters() @ power, 1e-10))


def to_pixels(spectrum: Spectrum) -> NDArray[np.uint8]:
    """Convert an STFT to a grey image (32, frames): -80 dB is black, 40 dB is white."""
    level = (log_mel(spectrum) - QUIETEST) / (LOUDEST - QUIETEST)
    return np.rint(255 * level.clip(0, 1)).astype(np.uint8)
