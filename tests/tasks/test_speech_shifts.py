"""speech_shifts: folds of speakers, and shifts that are not in the benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("soundfile")

from spoken_words import tone, write_words

from unseen.data import speech, speech_shifts
from unseen.data.location import CACHE_VARIABLE, VARIABLE
from unseen.data.mel import stft, to_pixels
from unseen.errors import UnseenError
from unseen.tasks.google_commands import UNSEEN
from unseen.tasks.tuning import speech_shifts as tuning
from unseen.tasks.tuning.speech_shifts import VARIANTS


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return write_words(tmp_path)


def test_a_fold_holds_speakers_out_and_looks_at_no_test_clip(folder):
    everyone = {clip.name for clip in speech.list_clips("train")}
    seen: list[str] = []
    for fold in range(speech_shifts.FOLDS):
        held = {c.name for c in speech.list_clips("train") if speech_shifts.fold_of(c) == fold}
        speakers = {c.speaker for c in speech.list_clips("train") if c.name in held}
        assert not speakers & {c.speaker for c in speech.list_clips("train") if c.name not in held}
        if held:
            task = tuning.task(VARIANTS[fold])
            assert len(task.source.load("test")) == len(held) == len(task.targets[0].load("test"))
            assert len(task.source.load("train")) == len(everyone) - len(held)
        seen += held
    assert sorted(seen) == sorted(everyone)


@pytest.mark.parametrize("shift", tuning.UNSEEN)
def test_shifts_change_the_sound_and_are_none_of_the_five(folder, shift):
    rng = np.random.default_rng
    samples = np.random.default_rng(1).normal(size=16_000) * 0.1
    clean, made = stft(samples), speech_shifts.apply_shift(shift, samples, rng(0))
    np.testing.assert_array_equal(made, speech_shifts.apply_shift(shift, samples, rng(0)))
    assert (
        made.shape == clean.shape
        and np.abs(to_pixels(made).astype(int) - to_pixels(clean)).mean() > 1
    )
    assert shift not in UNSEEN and speech_shifts.SHIFTS == tuning.UNSEEN


def test_telephones_cut_both_ends_and_throats_move_resonances():
    flat = np.zeros(16_000)
    flat[8000] = 1.0
    ratio = np.abs(
        speech_shifts.apply_shift("telephone", flat, np.random.default_rng(0))[:, 16]
    ) / np.abs(stft(flat)[:, 16])
    hz = np.fft.rfftfreq(2048, 1 / 16_000)
    assert (
        ratio[(hz > 600) & (hz < 2400)] == pytest.approx(1)
        and ratio[hz > 7000].max() < 0.15
        and ratio[(hz > 10) & (hz < 60)].max() < 0.05
    )
    rng = np.random.default_rng(0)
    scale = np.random.default_rng(0).uniform(0.8, 1.25)
    moved = np.abs(speech_shifts.apply_shift("throat", tone(2000), rng))[:, 16].argmax()
    assert moved * 16_000 / 2048 == pytest.approx(2000 / scale, abs=8)


def test_shifts_are_for_choosing_settings_only(folder):
    with pytest.raises(UnseenError, match="only test"):
        tuning.task().targets[0].load("train")
    with pytest.raises(UnseenError, match='no variant "fold_9"; it has: fold_0'):
        tuning.task("fold_9")
