"""The mel spectrogram: librosa's values and a slow version."""

from __future__ import annotations

import numpy as np
import pytest
from slow_speech import slow_log_mel
from sweep import SWEEP

from unseen.data import mel

T = np.arange(16_000) / 16_000
# librosa 0.11.0: power_to_db(mel @ abs(stft(SWEEP)) ** 2, ref=1.0)[::8, ::8] with
# mel = filters.mel(sr=16000, n_fft=2048, n_mels=32)
LIBROSA = [
    [22.7203, -23.0962, -17.2201, -7.9863],
    [-14.8326, 1.2599, -18.5119, -8.0195],
    [-12.8502, -24.5468, 8.3037, -8.9567],
    [-9.3872, -23.8927, -18.8465, -8.6765],
]


def test_one_second_is_32_by_32_and_librosas_numbers():
    decibels = mel.log_mel(mel.stft(SWEEP))
    assert decibels.shape == (32, 32)
    np.testing.assert_allclose(decibels[::8, ::8], LIBROSA, atol=1e-4)


def test_slaneys_scale_is_librosas_published_example():
    # The example of librosa.mel_frequencies(n_mels=40), 0 to 11,025 Hz: every third.
    published = [
        0,
        255.952,
        511.904,
        767.855,
        1024.856,
        1334.436,
        1737.532,
        2262.393,
        2945.799,
        3835.643,
        4994.285,
        6502.92,
        8467.272,
    ]
    mels = np.linspace(0, mel.hz_to_mel(np.array(11_025.0)), 40)
    np.testing.assert_allclose(mel.mel_to_hz(mels)[:-1:3], published, atol=5e-4)
    hz = np.linspace(0, 8000, 97)
    np.testing.assert_allclose(mel.mel_to_hz(mel.hz_to_mel(hz)), hz, atol=1e-9)


def test_filters_are_librosas_published_ones():
    # The first two rows of librosa.filters.mel(sr=22050, n_fft=2048), as a port of it states them.
    first = [
        0,
        0.016182853208219942,
        0.032365706416439884,
        0.028990088037379964,
        0.012807234829160026,
        0,
    ]
    second = [
        0,
        0,
        0,
        0.009779235793639925,
        0.025962089001859864,
        0.035393705451959974,
        0.01921085224374004,
    ]
    filters = mel.mel_filters(22_050, 2048, 128)
    assert filters.shape == (128, 1025)
    np.testing.assert_allclose(filters[0, :6], first, atol=1e-12)
    np.testing.assert_allclose(filters[1, :7], second, atol=1e-12)


def test_each_band_has_the_area_one_and_all_of_the_spectrum_is_in_some_band():
    filters = mel.mel_filters()
    area = filters.sum(1) * mel.RATE / mel.WINDOW
    np.testing.assert_allclose(area, 1, atol=0.02)  # triangles on a grid of 7.8 Hz
    assert (filters[:, 1:-1].sum(0) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        filters[0, 0] = 1


@pytest.mark.parametrize(("band", "frame"), [(0, 0), (7, 13), (12, 31), (16, 16)])
def test_log_mel_equals_slow_version(band, frame):
    assert mel.log_mel(mel.stft(SWEEP))[band, frame] == pytest.approx(
        slow_log_mel(SWEEP, band, frame), abs=1e-6
    )


def test_a_tone_is_bright_in_its_own_band_and_when_it_sounds():
    tone = np.where(T < 0.5, np.sin(2 * np.pi * 1500 * T), 0)
    decibels = mel.log_mel(mel.stft(tone))
    corners = mel.mel_to_hz(np.linspace(0, mel.hz_to_mel(np.array(8000.0)), 34))
    band = int(np.abs(corners[1:-1] - 1500).argmin())
    assert decibels[:, 8].argmax() == band
    assert (decibels[band, 2:14] > 25).all() and (decibels[band, 19:] == -100).all()


def test_a_full_scale_tone_stays_below_white_and_silence_is_black():
    for hz in (100, 440, 3000, 7000):
        assert 20 < mel.log_mel(mel.stft(np.sin(2 * np.pi * hz * T))).max() < mel.LOUDEST - 4
    silence = mel.to_pixels(mel.stft(np.zeros(16_000)))
    assert silence.dtype == np.uint8 and (silence == 0).all()


def test_pictures_scale_decibels_by_fixed_constants():
    spectrum = mel.stft(SWEEP)
    decibels, grey = mel.log_mel(spectrum), mel.to_pixels(spectrum)
    np.testing.assert_allclose(grey / 255 * 120 - 80, decibels.clip(-80, 40), atol=0.25)
    quieter = mel.to_pixels(spectrum / 10).astype(int)
    assert set((grey - quieter)[decibels > -59].tolist()) <= {42, 43}, (
        "20 dB less is the same darkening everywhere: 42.5 levels"
    )
