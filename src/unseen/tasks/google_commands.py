"""google_commands: spoken words, clean clips -> five corruptions."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.images import ByteImages
from unseen.errors import UnseenError
from unseen.models import LeNet
from unseen.training.recipes import RECIPES

UNSEEN = ("amplitude", "pitch", "noise", "stretch", "shift")  # in the paper's order
PRESETS: dict[str, dict[str, Any]] = {
    "fast": {
        "steps": 3000,
        "batch_size": 32,
        "lr": 1e-3,
        "uncertainty_guided": {"mixup": None},  # chosen on speech_shifts: docs/tuning.md
    },
    "best": {
        **RECIPES["speech"].preset,
        "steps": 6000,
        "batch_size": 32,
        "uncertainty_guided": {"mixup": None},
    },
    "paper": {"steps": 13_170, "batch_size": 128, "lr": 1e-4},  # 30 epochs of 56,196 clips
}


def task() -> Task:
    from unseen.data.speech import PUBLISHED_WORDS, available_words

    words = available_words()
    classes = len(words) if len(words) > 1 else PUBLISHED_WORDS
    return Task(
        name="google_commands",
        summary="spoken words -> changed in amplitude, pitch, noise, speed or time",
        source=Domain("google_commands", _load_source),
        targets=tuple(Domain(name, partial(_load_target, name)) for name in UNSEEN),
        classes=classes,
        class_names=words if len(words) == classes else (),
        model=partial(LeNet, classes),
        sites=("conv1",),
        embedding="fc2",
        presets=PRESETS,
    )


def _load_source(split: str) -> TensorDataset:
    from unseen.data.spectrograms import load_spectrograms

    return ByteImages(*load_spectrograms(split))


def _load_target(kind: str, split: str) -> TensorDataset:
    from unseen.data.spectrograms import load_spectrograms

    if split not in ("train", "test"):
        raise UnseenError(f'{kind} has no split "{split}"; it has: train, test')
    return ByteImages(*load_spectrograms(split, kind))
