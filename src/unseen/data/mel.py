"""One second of sound as a picture: its log-mel spectrogram, 32 bands by 32 frames.

The transform is librosa's with its defaults (Hann window, centred frames, zeros around the clip, power, Slaney's mel scale and
norm), because the public code whose corruption ranges the paper prints uses librosa that way, and a 2048-sample window every
512 samples is what makes one second at 16 kHz 32 frames wide. Written out here, since librosa brings numba and more along.
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
QUIETEST, LOUDEST = (
    -80.0,
    40.0,
)  # dB: what becomes 0 and 1. A sine of full scale reaches 35; 2 of 100 values, digital silence, lie below

# Slaney's scale: linear up to 1 kHz at 200/3 Hz a mel, then 27 mels for a factor of 6.4.
_LINEAR_HZ, _KNEE_HZ = 200 / 3, 1000.0
_KNEE_MEL, _LOG_STEP = _KNEE_HZ / _LINEAR_HZ, np.log(6.4) / 27


def mel_of_hz(hz: Floats) -> Floats:
    """Frequency on Slaney's mel scale."""
    above = _KNEE_MEL + np.log(np.maximum(hz, _KNEE_HZ) / _KNEE_HZ) / _LOG_STEP
    return np.where(hz < _KNEE_HZ, hz / _LINEAR_HZ, above)


def hz_of_mel(mel: Floats) -> Floats:
    """The other way round."""
    above = _KNEE_HZ * np.exp(_LOG_STEP * (np.maximum(mel, _KNEE_MEL) - _KNEE_MEL))
    return np.where(mel < _KNEE_MEL, mel * _LINEAR_HZ, above)


@cache
def mel_filters(rate: int = RATE, window: int = WINDOW, bands: int = BANDS) -> NDArray[np.float64]:
    """Triangles that sum a power spectrum into mel bands, (bands, window // 2 + 1); each has the area 1 over frequency."""
    highest = mel_of_hz(np.array(rate / 2))
    corners = hz_of_mel(np.linspace(0, highest, bands + 2))
    low, peak, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    hz = np.fft.rfftfreq(window, 1 / rate)
    rising, falling = (hz - low) / (peak - low), (high - hz) / (high - peak)
    filters = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    filters.flags.writeable = False  # shared by every call
    return filters


def stft(samples: Floats) -> NDArray[np.complex128]:
    """Short-time Fourier transform, (1025, 1 + samples // 512); frame t is centred on sample 512 t."""
    padded = np.pad(samples.astype(np.float64), WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    return np.fft.rfft(frames * hann).T


def log_mel(spectrum: Spectrum) -> NDArray[np.float64]:
    """Mel bands of an STFT in dB, (32, frames), the lowest band first; never below -100."""
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    return 10 * np.log10(np.maximum(mel_filters() @ power, 1e-10))


def picture(spectrum: Spectrum) -> NDArray[np.uint8]:
    """An STFT as a grey image (32, frames): -80 dB and below are black, 40 dB and above white."""
    share = (log_mel(spectrum) - QUIETEST) / (LOUDEST - QUIETEST)
    return np.rint(255 * share.clip(0, 1)).astype(np.uint8)
