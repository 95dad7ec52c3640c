"""The five corruptions of speech: operation, range, determinism."""

from __future__ import annotations

import numpy as np
import pytest
from slow_speech import phase_vocoder
from sweep import SWEEP

from unseen.data import speech_corruptions
from unseen.data.mel import log_mel, stft
from unseen.errors import UnseenError

T = np.arange(16_000) / 16_000
NOISES = [np.full(48_000, 0.25), np.arange(20_000) / 20_000]
SPECTRUM = stft(SWEEP)


def draws(kind: str, n: int = 200) -> list[np.random.Generator]:
    return [speech_corruptions.clip_generator(kind, f"yes/{i}.wav") for i in range(n)]


def peak_hz(samples: np.ndarray) -> float:
    return float(np.abs(np.fft.rfft(samples[:8000])).argmax() * 2)


# ---- what each does


def test_amplitude_scales_the_samples_between_0_7_and_1_1():
    scales = [
        np.abs(speech_corruptions.corrupt("amplitude", SWEEP, rng)).max() / np.abs(SPECTRUM).max()
        for rng in draws("amplitude")
    ]
    assert 0.7 <= min(scales) < 0.72 and 1.08 < max(scales) <= 1.1
    assert np.mean(scales) == pytest.approx(0.9, abs=0.02)


def test_slowed_is_longer_and_lower():
    tone = np.sin(2 * np.pi * 1000 * T)
    slow, fast = speech_corruptions.slow_down(tone, 0.2), speech_corruptions.slow_down(tone, -0.2)
    assert len(slow) == 19_200 and len(fast) == 12_800
    assert peak_hz(slow) == pytest.approx(1000 / 1.2, abs=2) and peak_hz(fast) == pytest.approx(
        1000 / 0.8, abs=2
    )
    np.testing.assert_array_equal(speech_corruptions.slow_down(tone, 0), tone)
    np.testing.assert_allclose(
        speech_corruptions.slow_down(np.array([0.0, 10, 20, 30]), 1.0),
        [0, 5, 10, 15, 20, 25, 30, 30],
    )


def test_pitch_is_drawn_within_a_fifth_both_ways():
    tone = np.sin(2 * np.pi * 1000 * T)
    bins = [
        int(np.abs(speech_corruptions.corrupt("pitch", tone, rng))[:, 12].argmax())
        for rng in draws("pitch", 100)
    ]
    hz = np.array(bins) * 16_000 / 2048
    assert 1000 / 1.2 - 8 <= hz.min() < 860 and 1200 < hz.max() <= 1000 / 0.8 + 8


def test_a_hastened_short_clip_is_followed_by_silence_and_a_slow_one_cut():
    tone = np.sin(2 * np.pi * 1000 * T)
    fast = next(
        s
        for rng in draws("pitch")
        if (s := speech_corruptions.corrupt("pitch", tone, rng)).shape == (1025, 32)
        and not s[:, -1].any()
    )
    assert np.abs(fast[:, 10]).max() > 100


# librosa 0.11.0: as in test_mel, of phase_vocoder(stft(SWEEP), rate=1 + scale), [2::8, 1:28:8]
LIBROSA = {
    0.17: [
        [25.8544, -8.2005, -7.2286, -8.6442],
        [-7.5909, -9.0191, -10.1309, -10.3799],
        [-6.7942, -7.7981, -2.8922, -14.341],
        [-7.1894, -8.6234, -9.2311, -11.161],
    ],
    -0.17: [
        [24.9257, -26.7599, -8.4312, -5.8453],
        [-8.4917, 25.512, -8.2276, -8.0767],
        [-7.3085, -26.4658, 3.5274, -6.5347],
        [-7.9182, -27.1652, -7.8887, -7.1718],
    ],
}


@pytest.mark.parametrize("scale", LIBROSA)
def test_stretch_is_a_phase_vocoder_as_far_as_a_picture_can_tell(scale):
    ours = speech_corruptions.time_stretch(SPECTRUM, scale)
    theirs = phase_vocoder(SPECTRUM, 1 + scale)[:, :32]
    assert ours.shape == (1025, 32)
    np.testing.assert_allclose(np.abs(ours[:, : theirs.shape[1]]), np.abs(theirs), atol=1e-9)
    assert not ours[:, theirs.shape[1] :].any(), "behind a hurried word there is silence"
    np.testing.assert_allclose(log_mel(ours)[2::8, 1:28:8], LIBROSA[scale], atol=1e-4)


def test_stretch_keeps_the_pitch_and_moves_what_comes_late():
    knock = np.zeros((1025, 32), complex)
    knock[100, 20] = 1
    early, late = (
        speech_corruptions.time_stretch(knock, 0.2),
        speech_corruptions.time_stretch(knock, -0.2),
    )
    assert np.unravel_index(np.abs(early).argmax(), early.shape) == (100, 17)  # 20 / 1.2 = 16.7
    assert np.unravel_index(np.abs(late).argmax(), late.shape) == (100, 25)  # 20 / 0.8
    assert not np.delete(early, 100, axis=0).any()


@pytest.mark.parametrize("frames", [-8, -1, 0, 3, 8, 40])
def test_shift_moves_frames_and_fills_with_silence(frames):
    numbered = np.broadcast_to(np.arange(1, 33), (4, 32)).astype(complex)
    expected = [t - frames if 1 <= t - frames <= 32 else 0 for t in range(1, 33)]
    assert speech_corruptions.time_shift(numbered, frames)[2].real.tolist() == expected


def test_shift_is_drawn_up_to_8_frames_both_ways():
    knock = np.zeros(16_000)
    knock[512 * 16] = 1
    moved = [
        int(np.abs(speech_corruptions.corrupt("shift", knock, rng)).sum(0).argmax()) - 16
        for rng in draws("shift", 300)
    ]
    whole = np.abs(stft(knock)).sum(0).argmax() - 16
    assert set(moved) == {int(whole) + s for s in range(-8, 9)}


def test_noise_takes_up_to_45_percent_and_the_word_keeps_the_rest():
    noise = stft(np.sin(2 * np.pi * 5000 * T))
    mixed = speech_corruptions.mix_noise(SPECTRUM, noise, 0.45)
    np.testing.assert_allclose(mixed, 0.55 * SPECTRUM + 0.45 * noise)
    silent = np.zeros(16_000)
    noises = [np.sin(2 * np.pi * 5000 * np.arange(40_000) / 16_000)]
    shares = [
        np.abs(speech_corruptions.corrupt("noise", silent, rng, noises)[:, 16]).max()
        / np.abs(noise[:, 16]).max()
        for rng in draws("noise")
    ]
    assert min(shares) < 0.02 and 0.43 < max(shares) <= 0.4501


def test_noise_is_any_second_of_any_recording():
    seconds = [speech_corruptions.draw_second(NOISES, rng) for rng in draws("noise")]
    assert all(len(s) == 16_000 for s in seconds)
    flat = [bool(np.ptp(s) == 0) for s in seconds]
    assert 50 < sum(flat) < 150, "both recordings are heard"
    starts = [s[0] for s, is_flat in zip(seconds, flat, strict=True) if not is_flat]
    assert min(starts) < 0.03 and 0.17 < max(starts) <= 0.2
    assert len(speech_corruptions.draw_second([np.ones(100)], draws("noise")[0])) == 16_000, (
        "a short recording is followed by silence"
    )


# ---- the same numbers for the same clip


@pytest.mark.parametrize("kind", speech_corruptions.CORRUPTIONS)
def test_a_clip_is_corrupted_alike_every_time_and_another_clip_differently(kind):
    def made(clip: str) -> np.ndarray:
        return speech_corruptions.corrupt(
            kind, SWEEP, speech_corruptions.clip_generator(kind, clip), NOISES
        )

    assert made("yes/a.wav").shape == (1025, 32)
    np.testing.assert_array_equal(made("yes/a.wav"), made("yes/a.wav"))
    others = [made(f"no/{letter}.wav") for letter in "abcd"]
    assert any(not np.array_equal(made("yes/a.wav"), other) for other in others)
    assert any(not np.array_equal(SPECTRUM, other) for other in others)


def test_unknown_corruption_is_named():
    with pytest.raises(
        UnseenError,
        match='no corruption "echo"; there are: amplitude, pitch, noise, stretch, shift',
    ):
        speech_corruptions.corrupt("echo", SWEEP, draws("echo")[0])
