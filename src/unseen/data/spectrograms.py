"""Spectrograms of speech clips, cached because decoding thousands of WAVs takes minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.data.cache import cached_arrays, file_stamps
from unseen.data.mel import BANDS, FRAMES, Spectrum, stft, to_pixels
from unseen.data.speech import NAME, Clip, Samples, list_clips, noise_files, one_second, read_clip
from unseen.data.speech_corruptions import CORRUPTIONS, clip_generator, corrupt
from unseen.errors import UnseenError

VERSION = 1  # part of the cache key: increase it with every change of the pixels


def load_spectrograms(split: str, kind: str = "clean") -> tuple[Tensor, Tensor]:
    """Load images (N, 1, 32, 32) uint8 and labels (N,) of a split, "clean" or corrupted."""
    if kind not in ("clean", *CORRUPTIONS):
        raise UnseenError(f'no corruption "{kind}"; there are: {", ".join(CORRUPTIONS)}')
    clips = list_clips(split)
    noises = noise_files() if kind == "noise" else []

    def spectrum(clip: Clip, samples: Samples) -> Spectrum:
        if kind == "clean":
            return stft(one_second(samples))
        rng = clip_generator(kind, clip.name)
        return corrupt(kind, samples, rng, [_read_noise(path) for path in noises])

    return cached_spectrograms(clips, f"{split}_{kind}", spectrum, noises)


@cache
def _read_noise(path: Path) -> Samples:
    return read_clip(path)


def cached_spectrograms(
    clips: Sequence[Clip],
    title: str,
    spectrum: Callable[[Clip, Samples], Spectrum],
    also_read: Iterable[Path] = (),
) -> tuple[Tensor, Tensor]:
    """Return images and labels of clips, cached by title and by the files that were read.

    Args:
        clips: The clips.
        title: Start of the cache file's name.
        spectrum: Function from a clip and its samples to an STFT.
        also_read: Other files that `spectrum` depends on.
    """
    depends_on = [
        VERSION,
        [clip.name for clip in clips],
        file_stamps([*(clip.path for clip in clips), *also_read]),
    ]
    arrays = cached_arrays(NAME, title, depends_on, lambda: {"pixels": _compute(clips, spectrum)})
    labels = torch.tensor([clip.label for clip in clips])
    return torch.from_numpy(arrays["pixels"])[:, None], labels


def _compute(
    clips: Sequence[Clip], spectrum: Callable[[Clip, Samples], Spectrum]
) -> NDArray[np.uint8]:
    pixels = np.empty((len(clips), BANDS, FRAMES), np.uint8)
    problems = []
    for index, clip in enumerate(clips):
        try:
            samples = read_clip(clip.path)
        except UnseenError as error:
            problems.append(str(error))  # report all broken clips at once
            continue
        pixels[index] = to_pixels(spectrum(clip, samples))
    if problems:
        raise UnseenError(
            f"{len(problems)} of {len(clips)} clips cannot be used: {'; '.join(problems[:5])}"
        )
    return pixels
