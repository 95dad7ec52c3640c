"""Google Speech Commands v0.01 as it is published: a folder of WAV clips for each word, two lists of held-out clips, noises."""

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
LISTS = {
    "val": "validation_list.txt",
    "test": "testing_list.txt",
}  # what is in neither is for training
SPLITS = ("train", *LISTS)
NOISES = "_background_noise_"
PUBLISHED_WORDS = 30
RATES = range(1_000, 400_001)  # what a recorder may say; a broken header says anything
_LAYOUT = "folders named by the words, each with WAV clips, beside validation_list.txt and testing_list.txt with lines `yes/1.wav`"

Samples = NDArray[np.float32]


class Clip(NamedTuple):
    """One spoken word: where it is, and its class number among the words that are there."""

    path: Path
    label: int

    @property
    def name(self) -> str:
        """As the published lists write it: word/file."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def speaker(self) -> str:
        """Published names begin with a hash of who speaks: 0135f3f2_nohash_1.wav."""
        return self.path.name.partition("_nohash_")[0]


# ---- what is there


def speech_folder() -> Path:
    """The published folder; the archive has no folder of its own, so it may be unpacked right into google_commands/."""
    return _published(data_folder(NAME))


def words_there() -> tuple[str, ...]:
    """The words that have a folder, in the order of their class numbers; none where there is no data."""
    folder = _published(data_root() / NAME)
    return _words(folder) if folder.is_dir() else ()


def clips(split: str, folder: Path | None = None) -> list[Clip]:
    """The clips of a split by the published lists, ordered by word and name."""
    if split not in SPLITS:
        raise UnseenError(f'google_commands has no split "{split}"; it has: {", ".join(SPLITS)}')
    folder = speech_folder() if folder is None else folder
    words = _words(folder)
    if len(words) < 2:
        raise UnseenError(
            f"{folder} holds folders of {len(words)} words, not of 2 or more: expected {_LAYOUT}; {remedy(NAME)}"
        )
    there: dict[str, Clip] = {}
    for label, word in enumerate(words):
        found = [Clip(path, label) for path in sorted((folder / word).glob("*.wav"))]
        if not found:
            raise UnseenError(f"{folder / word} holds no .wav: expected {_LAYOUT}; {remedy(NAME)}")
        there |= {clip.name: clip for clip in found}
    listed = {name: _listed(folder / file, set(words), there) for name, file in LISTS.items()}
    if both := listed["val"] & listed["test"]:
        raise UnseenError(
            f"{folder}: {min(both)} is in both {' and '.join(LISTS.values())}: get the lists again; {remedy(NAME)}"
        )
    chosen = listed[split] if split in LISTS else there.keys() - listed["val"] - listed["test"]
    if not chosen:
        raise UnseenError(f"{folder} has no clip for {split}: expected {_LAYOUT}; {remedy(NAME)}")
    return [clip for name, clip in there.items() if name in chosen]


def noise_files(folder: Path | None = None) -> list[Path]:
    """The recordings of background noise, by name."""
    folder = speech_folder() if folder is None else folder
    found = sorted((folder / NOISES).glob("*.wav"))
    if not found:
        raise MissingData(
            f"{folder / NOISES} holds no .wav, and clips with background noise need one; {remedy(NAME)}"
        )
    return found


def _published(folder: Path) -> Path:
    return folder / VERSION_FOLDER if (folder / VERSION_FOLDER).is_dir() else folder


def _words(folder: Path) -> tuple[str, ...]:
    return tuple(
        sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(("_", ".")))
    )


def _listed(path: Path, words: set[str], there: Iterable[str]) -> set[str]:
    """Names that a list gives for the words that are there; a user may have unpacked some words only."""
    if not path.is_file():
        raise MissingData(
            f"{path} is missing, so nobody knows which clips are held out: expected {_LAYOUT}; {remedy(NAME)}"
        )
    names = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    for name in names:
        if name.count("/") != 1 or not name.endswith(".wav"):
            raise UnseenError(
                f'{path} has the line "{name[:80]}": expected lines such as yes/0132a06d_nohash_2.wav'
            )
    wanted = {name for name in names if name.partition("/")[0] in words}
    if absent := sorted(wanted - set(there)):
        raise UnseenError(
            f"{path} lists {len(absent)} clips that are not there, {absent[0]} first: unpack again; {remedy(NAME)}"
        )
    return wanted


# ---- reading one clip


def read_clip(path: Path) -> Samples:
    """A recording as it is, mixed to one channel and brought to 16 kHz; of any length."""
    try:
        import soundfile
    except ImportError as error:
        raise UnseenError("reading speech needs soundfile: pip install 'unseen[speech]'") from error

    if not path.is_file():
        raise MissingData(f"{path} is missing; {remedy(NAME)}")
    _must_be_whole(path)
    try:
        channels, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise UnseenError(
            f"{path} is no sound that can be read ({error.error_string}); {remedy(NAME)}"
        ) from error
    if rate not in RATES:
        raise UnseenError(
            f"{path} says it was taken at {rate} Hz: expected {RATES[0]} to {RATES[-1]}; {remedy(NAME)}"
        )
    if not len(channels):
        raise UnseenError(f"{path} holds no sound: its length is 0; {remedy(NAME)}")
    samples = channels.mean(axis=1)
    if not np.isfinite(samples).all():
        raise UnseenError(f"{path} holds samples that are not finite numbers; {remedy(NAME)}")
    return samples if rate == RATE else resampled(samples, rate)


def resampled(samples: Samples, rate: int) -> Samples:
    """Samples of another rate at 16 kHz."""
    from scipy.signal import resample_poly  # a third of a second to import, for other rates only

    shared = gcd(rate, RATE)
    return resample_poly(samples, RATE // shared, rate // shared).astype(np.float32)


def one_second(samples: NDArray[np.floating]) -> NDArray[np.floating]:
    """The first second; a shorter clip is followed by silence."""
    return np.pad(samples[:RATE], (0, max(0, RATE - len(samples))))


def _must_be_whole(path: Path) -> None:
    """libsndfile reads what is left of a WAV that was cut short without a word, so its header is asked first."""
    there = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(8)
    if header[:4] != b"RIFF" or len(header) < 8:
        return
    announced = 8 + struct.unpack("<I", header[4:])[0]
    if (
        there + 1 < announced < 2**32
    ):  # some writers forget a last odd byte; those that stream announce 2**32 - 1
        raise UnseenError(
            f"{path} is cut short: its header announces {announced} bytes, {there} are there; {remedy(NAME)}"
        )
