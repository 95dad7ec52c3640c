"""Clips of speech as pictures, decoded once: reading thousands of WAVs takes minutes, reading what was made of them none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.data.cache import made_once, stamps
from unseen.data.mel import BANDS, FRAMES, Spectrum, picture, stft
from unseen.data.speech import NAME, Clip, Samples, clips, noise_files, one_second, read_clip
from unseen.data.speech_corruptions import CORRUPTIONS, corrupted, generator_for
from unseen.errors import UnseenError

VERSION = 1  # of the code that makes pictures: raise it where they change, and older files are not read again


def spectrograms(split: str, kind: str = "clean") -> tuple[Tensor, Tensor]:
    """Pictures (N, 1, 32, 32) uint8 and labels (N,) int64 of a split, as it is ("clean") or under one of the corruptions."""
    if kind not in ("clean", *CORRUPTIONS):
        raise UnseenError(f'no corruption "{kind}"; there are: {", ".join(CORRUPTIONS)}')
    found = clips(split)
    noises = noise_files() if kind == "noise" else []

    def spectrum(clip: Clip, samples: Samples) -> Spectrum:
        if kind == "clean":
            return stft(one_second(samples))
        return corrupted(
            kind, samples, generator_for(kind, clip.name), [_noise(path) for path in noises]
        )

    return pictures_of(found, f"{split}_{kind}", spectrum, noises)


@cache
def _noise(path: Path) -> Samples:
    return read_clip(path)


def pictures_of(
    found: Sequence[Clip],
    title: str,
    spectrum: Callable[[Clip, Samples], Spectrum],
    also_read: Iterable[Path] = (),
) -> tuple[Tensor, Tensor]:
    """What `spectrum` makes of the clips, kept in a file that is named by the title and by all that was read for it."""
    depends_on = [
        VERSION,
        [clip.name for clip in found],
        stamps([*(clip.path for clip in found), *also_read]),
    ]
    pixels = made_once(NAME, title, depends_on, lambda: {"pixels": _made(found, spectrum)})[
        "pixels"
    ]
    return torch.from_numpy(pixels)[:, None], torch.tensor([clip.label for clip in found])


def _made(
    found: Sequence[Clip], spectrum: Callable[[Clip, Samples], Spectrum]
) -> NDArray[np.uint8]:
    pixels = np.empty((len(found), BANDS, FRAMES), np.uint8)
    problems = []
    for index, clip in enumerate(found):
        try:
            samples = read_clip(clip.path)
        except UnseenError as error:
            problems.append(
                str(error)
            )  # a user with 65,000 clips is told of all that are broken, not of one a time
            continue
        pixels[index] = picture(spectrum(clip, samples))
    if problems:
        raise UnseenError(
            f"{len(problems)} of {len(found)} clips cannot be used: {'; '.join(problems[:5])}"
        )
    return pixels
