"""Read sounds as log-mel spectrograms, uint8 (1, 32, frames)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from unseen.data.mel import BANDS, HOP, RATE, stft, to_pixels
from unseen.data.own_files.readers import Array, Fact, Reader
from unseen.errors import UnseenError

LONGEST = 10.0  # seconds, unless --seconds says more
RESOLUTION = 100  # frames of duration in a second that `look` reports


class SoundReader(Reader):
    """Sounds in mono at 16 kHz, cut or padded with silence to `seconds`."""

    modality: ClassVar = "sound"
    worth_caching: ClassVar = True

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.samples = max(1, round(seconds * RATE))
        self.shape = (1, BANDS, 1 + self.samples // HOP)
        self.dtype = np.dtype(np.uint8)

    @classmethod
    def of_durations(cls, durations: Iterable[float], seconds: float | None) -> SoundReader:
        """Return a reader for sounds of these durations: the longest decides, up to 10 s."""
        longest = min(LONGEST, max(durations, default=1.0))
        return cls(seconds=max(0.1, longest) if seconds is None else seconds)

    def state(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def read(self, content: Path | BinaryIO) -> Array:
        soundfile = import_soundfile()
        name = content if isinstance(content, Path) else "the file"
        try:
            channels, rate = soundfile.read(content, dtype="float32", always_2d=True)
        except (soundfile.LibsndfileError, OSError) as error:
            raise UnseenError(f"{name} cannot be read as sound: {error}") from None
        mono = channels.mean(axis=1)
        if not len(mono) or not np.isfinite(mono).all():
            raise UnseenError(f"{name} cannot be read as sound: it is empty or not finite")
        if rate != RATE:
            from scipy.signal import resample_poly  # slow to import

            divisor = math.gcd(rate, RATE)
            mono = resample_poly(mono, RATE // divisor, rate // divisor)
        mono = np.pad(mono[: self.samples], (0, max(0, self.samples - len(mono))))
        return to_pixels(stft(mono))[None]

    @staticmethod
    def look(path: Path, whole: bool) -> Fact:
        soundfile = import_soundfile()
        try:
            if whole:
                data, rate = soundfile.read(path, always_2d=True)
                frames = len(data)
                if not np.isfinite(data).all():
                    return Fact((), "the sound holds NaN or infinity")
            else:
                info = soundfile.info(str(path))
                frames, rate = info.frames, info.samplerate
        except (soundfile.LibsndfileError, OSError, ValueError) as error:
            return Fact((), f"cannot be read as sound: {error}")
        if not frames:
            return Fact((), "the sound is empty")
        return Fact((math.ceil(frames * RESOLUTION / rate),))


def import_soundfile() -> Any:
    """Import soundfile, which is an extra."""
    try:
        import soundfile
    except ImportError:
        raise UnseenError("reading sound needs soundfile: pip install 'unseen[speech]'") from None
    return soundfile
