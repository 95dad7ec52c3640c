"""Reader of Google Speech Commands v0.01 in its published layout."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import gcd
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unseen.data.location import MissingData, data_folder, data_root, remedy
from unseen.data.mel import RATE
from unseen.errors import UnseenError

NAME = "google_commands"
VERSION_FOLDER = "speech_commands_v0.01"
LISTS = {"val": "validation_list.txt", "test": "testing_list.txt"}  # all other clips are train
SPLITS = ("train", *LISTS)
NOISES = "_background_noise_"
PUBLISHED_WORDS = 30
RATES = range(1_000, 400_001)  # plausible sampling rates
_LAYOUT = (
    "one folder of WAV clips per word, and validation_list.txt and testing_list.txt with lines "
    "`yes/1.wav`"
)

Samples = NDArray[np.float32]


class Clip(NamedTuple):
    """A clip of a spoken word, and its class number among the available words."""

    path: Path
    label: int

    @property
    def name(self) -> str:
        """Return the name as in the published lists: word/file."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def speaker(self) -> str:
        """Return the hash of the speaker, e.g. 0135f3f2 in 0135f3f2_nohash_1.wav."""
        return self.path.name.partition("_nohash_")[0]


# ---- lists of clips


def speech_folder() -> Path:
    """Return the folder of the words; the archive may be unpacked directly in google_commands/."""
    return _archive_folder(data_folder(NAME))


def available_words() -> tuple[str, ...]:
    """Return the words that have a folder, in the order of their class numbers."""
    folder = _archive_folder(data_root() / NAME)
    return _list_words(folder) if folder.is_dir() else ()


def list_clips(split: str, folder: Path | None = None) -> list[Clip]:
    """Return the clips of a split by the published lists, ordered by word and name."""
    if split not in SPLITS:
        raise UnseenError(f'google_commands has no split "{split}"; it has: {", ".join(SPLITS)}')
    folder = speech_folder() if folder is None else folder
    words = _list_words(folder)
    if len(words) < 2:
        raise UnseenError(
            f"{folder} has folders of {len(words)} words, at least 2 are needed: "
            f"expected {_LAYOUT}; {remedy(NAME)}"
        )
    clips: dict[str, Clip] = {}
    for label, word in enumerate(words):
        paths = sorted((folder / word).glob("*.wav"))
        if not paths:
            raise UnseenError(
                f"{folder / word} contains no .wav: expected {_LAYOUT}; {remedy(NAME)}"
            )
        clips |= {clip.name: clip for clip in (Clip(path, label) for path in paths)}
    listed = {name: _read_list(folder / file, set(words), clips) for name, file in LISTS.items()}
    if both := listed["val"] & listed["test"]:
        raise UnseenError(
            f"{folder}: {min(both)} is in both {' and '.join(LISTS.values())}: "
            f"download the lists again; {remedy(NAME)}"
        )
    names = listed[split] if split in LISTS else clips.keys() - listed["val"] - listed["test"]
    if not names:
        raise UnseenError(f"{folder} has no clip for {split}: expected {_LAYOUT}; {remedy(NAME)}")
    return [clip for name, clip in clips.items() if name in names]


def noise_files(folder: Path | None = None) -> list[Path]:
    """Return the recordings of background noise, ordered by name."""
    folder = speech_folder() if folder is None else folder
    paths = sorted((folder / NOISES).glob("*.wav"))
    if not paths:
        raise MissingData(
            f"{folder / NOISES} contains no .wav, which the corruption noise needs; {remedy(NAME)}"
        )
    return paths


def _archive_folder(folder: Path) -> Path:
    return folder / VERSION_FOLDER if (folder / VERSION_FOLDER).is_dir() else folder


def _list_words(folder: Path) -> tuple[str, ...]:
    return tuple(
        sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(("_", ".")))
    )


def _read_list(path: Path, words: set[str], clips: Iterable[str]) -> set[str]:
    """Read the names in a list that belong to available words; some words may not be unpacked."""
    if not path.is_file():
        raise MissingData(
            f"{path} is missing, which lists held-out clips: expected {_LAYOUT}; {remedy(NAME)}"
        )
    names = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    for name in names:
        if name.count("/") != 1 or not name.endswith(".wav"):
            raise UnseenError(
                f'{path} has the line "{name[:80]}": '
                "expected lines such as yes/0132a06d_nohash_2.wav"
            )
    wanted = {name for name in names if name.partition("/")[0] in words}
    if missing := sorted(wanted - set(clips)):
        raise UnseenError(
            f"{path} lists {len(missing)} missing clips, e.g. {missing[0]}: "
            f"unpack the archive again; {remedy(NAME)}"
        )
    return wanted


# ---- samples of a clip


def read_clip(path: Path) -> Samples:
    """Read a recording of any length as mono at 16 kHz."""
    try:
        import soundfile
    except ImportError as error:
        raise UnseenError("reading speech needs soundfile: pip install 'unseen[speech]'") from error

    if not path.is_file():
        raise MissingData(f"{path} is missing; {remedy(NAME)}")
    _check_length(path)
    try:
        channels, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise UnseenError(
            f"{path} cannot be read as sound ({error.error_string}); {remedy(NAME)}"
        ) from error
    if rate not in RATES:
        raise UnseenError(
            f"{path} has a sampling rate of {rate} Hz: expected {RATES[0]} to {RATES[-1]}; "
            f"{remedy(NAME)}"
        )
    if not len(channels):
        raise UnseenError(f"{path} is empty: its length is 0; {remedy(NAME)}")
    samples = channels.mean(axis=1)
    if not np.isfinite(samples).all():
        raise UnseenError(f"{path} has samples that are not finite; {remedy(NAME)}")
    return samples if rate == RATE else resample(samples, rate)


def resample(samples: Samples, rate: int) -> Samples:
    """Resample to 16 kHz."""
    from scipy.signal import resample_poly  # slow to import

    divisor = gcd(rate, RATE)
    return resample_poly(samples, RATE // divisor, rate // divisor).astype(np.float32)


def one_second(samples: NDArray[np.floating]) -> NDArray[np.floating]:
    """Cut or zero-pad to one second."""
    return np.pad(samples[:RATE], (0, max(0, RATE - len(samples))))


def _check_length(path: Path) -> None:
    """Raise an error if a WAV is truncated; libsndfile would read the rest silently."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(8)
    if header[:4] != b"RIFF" or len(header) < 8:
        return
    stated = 8 + struct.unpack("<I", header[4:])[0]
    # Some writers omit a padding byte; streaming writers state 2**32 - 1.
    if size + 1 < stated < 2**32:
        raise UnseenError(
            f"{path} is truncated: its header states {stated} bytes, it has {size}; {remedy(NAME)}"
        )
