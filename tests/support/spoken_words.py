"""Three tones in the folders and lists of Speech Commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

from unseen.data import speech

PITCH = {"go": 300.0, "no": 800.0, "yes": 2000.0}
TRAIN, HELD = 6, 2


def tone(hz: float, seconds: float = 1.0, rate: int = 16_000) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)


def write(path: Path, samples: np.ndarray, rate: int = 16_000, **how: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **how)
    return path


def write_words(root: Path) -> Path:
    """Write three words, each a tone: 6 clips to train on, 2 for val and 2 for test."""
    home = root / "google_commands/speech_commands_v0.01"
    lists: dict[str, list[str]] = {"val": [], "test": []}
    for word, hz in PITCH.items():
        for i in range(TRAIN + 2 * HELD):
            name = f"{word}/{i:08x}_nohash_0.wav"
            write(home / name, tone(hz + 2 * i, 1.0 if i % 2 else 0.7))
            if i >= TRAIN:
                lists["val" if i < TRAIN + HELD else "test"].append(name)
    for split, names in lists.items():
        (home / speech.LISTS[split]).write_text("\n".join(names) + "\n")
    write(home / "_background_noise_/hiss.wav", 0.3 * np.random.default_rng(0).normal(size=40_000))
    (home / "_background_noise_/README.md").write_text("not a sound")
    return home
