"""Slow, literal versions of the mel spectrogram and the phase vocoder."""

from __future__ import annotations

import cmath
import math

import numpy as np

from unseen.data import mel


def slow_log_mel(samples: np.ndarray, band: int, frame: int) -> float:
    """Compute one value of the log-mel spectrogram from its definition."""
    window, corners = (
        [],
        [
            float(mel.mel_to_hz(np.array(m)))
            for m in np.linspace(0, float(mel.hz_to_mel(np.array(8000.0))), 34)
        ],
    )
    for n in range(2048):
        at = 512 * frame - 1024 + n
        sample = samples[at] if 0 <= at < len(samples) else 0.0
        window.append(sample * math.sin(math.pi * n / 2048) ** 2)
    low, peak, high = corners[band : band + 3]
    power = 0.0
    for k in range(1025):
        hz = k * 16_000 / 2048
        if low < hz < high:
            weight = (
                ((hz - low) / (peak - low) if hz <= peak else (high - hz) / (high - peak))
                * 2
                / (high - low)
            )
            power += (
                weight
                * abs(
                    sum(x * cmath.exp(-2j * math.pi * k * n / 2048) for n, x in enumerate(window))
                )
                ** 2
            )
    return 10 * math.log10(max(power, 1e-10))


def phase_vocoder(spectrum: np.ndarray, rate: float) -> np.ndarray:
    """Stretch a spectrum frame by frame, as in textbooks."""
    advance = 2 * np.pi * 512 * np.arange(1025) / 2048
    padded = np.concatenate([spectrum, np.zeros((1025, 2))], axis=1)
    phase, out = np.angle(spectrum[:, 0]), []
    for step in np.arange(0, spectrum.shape[1], rate):
        left, right = padded[:, int(step)], padded[:, int(step) + 1]
        share = step - int(step)
        out.append(((1 - share) * np.abs(left) + share * np.abs(right)) * np.exp(1j * phase))
        turn = np.angle(right) - np.angle(left) - advance
        phase = phase + advance + turn - 2 * np.pi * np.round(turn / (2 * np.pi))
    return np.stack(out, axis=1)
