"""Google Speech Commands: one-second clips of spoken words."""

from __future__ import annotations

from pathlib import Path

from unseen.data import speech
from unseen.data.location import MissingData
from unseen.data.publishers.parts import DataSet, Part

_PAGE = "https://research.google/blog/launching-the-speech-commands-dataset/"
_ARCHIVE = "http://download.tensorflow.org/data/speech_commands_v0.01.tar.gz"
_BY_HAND = f"download {_ARCHIVE} (1.5 GB) and unpack it in {{folder}}/speech_commands_v0.01"

GOOGLE_COMMANDS = DataSet(
    "google_commands",
    "spoken words for the task google_commands",
    (
        Part("google_commands", "train", 51_088, True, _PAGE, "CC BY 4.0", by_hand=_BY_HAND),
        Part("google_commands", "val", 6_798, True, _PAGE, "CC BY 4.0", by_hand=_BY_HAND),
        Part("google_commands", "test", 6_835, True, _PAGE, "CC BY 4.0", by_hand=_BY_HAND),
        Part("background noise", "all", 6, True, _PAGE, "CC BY 4.0", by_hand=_BY_HAND),
    ),
    main_file=lambda part: speech.VERSION_FOLDER,
    count=lambda part, folder: _count(part, folder),
    read_by=("speech_shifts",),
)


def _count(part: Part, folder: Path) -> int:
    if not folder.is_dir():
        raise MissingData(f"{folder} does not exist")
    archive = folder / speech.VERSION_FOLDER
    clips = archive if archive.is_dir() else folder
    paths = (
        speech.noise_files(clips)
        if part.split == "all"
        else [clip.path for clip in speech.list_clips(part.split, clips)]
    )
    for path in paths:
        speech.read_clip(path)
    return len(paths)
