"""driving: segmentation of street scenes. CamVid day -> dusk, CARLA -> CamVid, SYNTHIA."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.driving import CLASSES as COMMON
from unseen.data.driving import IGNORE, LARGE, SIZE
from unseen.errors import UnseenError
from unseen.models import FCN32s
from unseen.training.recipes import RECIPES

VARIANTS = ("camvid_day", "carla_clear", "camvid_day_large", "synthia_dawn", "synthia_fog")
UNSEEN = {
    "camvid_day": ("dusk",),
    "camvid_day_large": ("dusk",),
    "carla_clear": ("day", "dusk"),
}
WEATHERS = ("dawn", "fog", "night", "spring", "winter")  # in the paper's order
SYNTHIA = (
    "void",
    "sky",
    "building",
    "road",
    "sidewalk",
    "fence",
    "vegetation",
    "pole",
    "car",
    "sign",
    "pedestrian",
    "bicycle",
    "lane_marking",
    "traffic_light",
)
# Training frames, to convert epochs to steps.
FRAMES = {
    "camvid_day": 347,
    "camvid_day_large": 347,
    "carla_clear": 180,
    "synthia_dawn": 900,
    "synthia_fog": 900,
}
EPOCHS, BATCH = 50, 8  # as in the paper


def task(variant: str = VARIANTS[0]) -> Task:
    if variant not in VARIANTS:
        raise UnseenError(f'driving has no variant "{variant}"; it has: {", ".join(VARIANTS)}')
    source, targets, class_names = (
        _synthia(variant) if variant.startswith("synthia") else _common(variant)
    )
    return Task(
        name="driving",
        variant=variant,
        summary="segmentation of street scenes: CamVid day -> dusk, CARLA -> CamVid, or SYNTHIA",
        source=source,
        targets=targets,
        classes=len(class_names),
        class_names=class_names,
        ignore_label=IGNORE,
        metric="miou",
        model=partial(FCN32s, len(class_names)),
        sites=("body.conv1",),
        embedding="hidden",
        presets=presets(variant),
    )


def presets(variant: str) -> dict[str, dict[str, Any]]:
    """Return the presets; `fast` has a ResNet-18 of half the width and small fictitious domains."""
    large = variant.endswith("_large")
    # A SYNTHIA frame has 5.6 times as many pixels as the others.
    steps, capacity = (120, 24) if variant.startswith("synthia") else (600, 120)
    if large:
        steps = 2400
    # At the default rate, made for digits, adversarial samples would hardly differ from the source.
    fictitious = {"capacity": capacity, "ascent_lr": 0.2}
    fast: dict[str, Any] = {
        "depth": 18,
        "width": 0.5,
        "skips": large,
        "steps": steps,
        "batch_size": BATCH,
        "lr": 1e-3,
        "lr_schedule": "linear",
        "gud": fictitious,
        "m_ada": fictitious,
        # Chosen on synthetic shifts of held-out frames of both sources (docs/tuning.md):
        # multiplicative noise, and an adversary throughout training. After an early adversary,
        # perturbed frames were soon as easy as clean ones.
        "uncertainty_guided": {
            "draws": 1,
            "noise": {"act": "gain", "scale": 0.5, "minimize": False},
            "adversary": {"rounds": None, "every": 20, "steps": 5, "beta": 0.1},
            "mixup": None,
        },
    }
    return {
        "fast": fast,
        "best": {**fast, **RECIPES["segmentation"].preset},
        "paper": {
            "depth": 50,
            "width": 1.0,
            "skips": False,
            "steps": EPOCHS * (FRAMES[variant] // BATCH),
            "batch_size": BATCH,
            "lr": 1e-4,
        },
    }


def _common(variant: str) -> tuple[Domain, tuple[Domain, ...], tuple[str, ...]]:
    source = variant.split("_")[1]
    size = LARGE if variant.endswith("_large") else SIZE
    targets = tuple(Domain(name, partial(_load_target, name, size)) for name in UNSEEN[variant])
    return Domain(source, partial(_load, source, size)), targets, COMMON


def _synthia(variant: str) -> tuple[Domain, tuple[Domain, ...], tuple[str, ...]]:
    source = f"highway_{variant.split('_')[1]}"
    targets = [f"{place}_{weather}" for place in ("ny", "euro") for weather in WEATHERS]
    return (
        Domain(source, partial(_load, source, None)),
        tuple(Domain(name, partial(_load_target, name, None)) for name in targets),
        SYNTHIA,
    )


def _load(domain: str, size: tuple[int, int] | None, split: str | None) -> TensorDataset:
    from unseen.data import driving, synthia  # imports Pillow

    if size is None:
        place, _, weather = domain.partition("_")
        return driving.Scenes(*synthia.load_scenes(place, weather, split))
    return driving.Scenes(*driving.load_scenes(domain, split, size))


def _load_target(domain: str, size: tuple[int, int] | None, split: str) -> TensorDataset:
    """Load an unseen domain, which has a test split only."""
    if split != "test":
        raise UnseenError(
            f'the unseen domain {domain} of driving has no split "{split}"; it has: test'
        )
    return _load(domain, size, None)
