"""Street scenes: CamVid, CARLA and SYNTHIA. None can be fetched automatically."""

from __future__ import annotations

from pathlib import Path

from unseen.data import driving, synthia
from unseen.data.publishers.parts import DataSet, Part

_CAMVID, _CARLA, _SYNTHIA = (
    "http://mi.eng.cam.ac.uk/research/projects/VideoRec/CamVid/",
    "https://carla.org",
    "https://synthia-dataset.net",
)
_LAYOUT = "see docs/tasks/driving.md for the layout of {folder}/camvid and {folder}/carla"
_SEQUENCE = (
    f"register at {_SYNTHIA}, download the video sequence and unpack it, so that "
    "{folder}/synthia contains a folder such as SYNTHIA-SEQS-01-DAWN"
)
_PLACES = {
    "highway": ("dawn", "fog"),
    **dict.fromkeys(("ny", "euro"), ("dawn", "fog", "night", "spring", "winter")),
}

_MAIN_FOLDER = {"day": "camvid", "dusk": "camvid", "clear": "carla"}

DRIVING = DataSet(
    "driving",
    "street scenes for the task driving",
    (
        Part("day", "all", 577, True, _CAMVID, "none stated", by_hand=_LAYOUT),
        Part("dusk", "all", 124, True, _CAMVID, "none stated", by_hand=_LAYOUT),
        Part("clear", "all", 300, False, _CARLA, "none stated for the frames", by_hand=_LAYOUT),
        *(
            Part(
                f"{place}_{weather}",
                "all",
                900,
                False,
                _SYNTHIA,
                "non-commercial use only",
                by_hand=_SEQUENCE,
            )
            for place, weathers in _PLACES.items()
            for weather in weathers
        ),
    ),
    main_file=lambda part: _MAIN_FOLDER.get(part.domain, "synthia"),
    count=lambda part, folder: _count(part, folder),
    variants={
        "camvid_day": ("day all", "dusk all"),
        "camvid_day_large": ("day all", "dusk all"),
        "carla_clear": ("clear all", "day all", "dusk all"),
        **{
            f"synthia_{weather}": (f"highway_{weather} all", "ny_* all", "euro_* all")
            for weather in _PLACES["highway"]
        },
    },
)


def _count(part: Part, folder: Path) -> int:
    if part.domain in _MAIN_FOLDER:
        return driving.count_frames(part.domain, folder)
    place, _, weather = part.domain.partition("_")
    return synthia.count_frames(place, weather, folder)
