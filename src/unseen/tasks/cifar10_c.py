"""cifar10_c: clean CIFAR-10 -> 15 corruptions at five severities, 75 unseen domains."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn
from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data import cifar10
from unseen.data.images import ByteImages
from unseen.errors import UnseenError
from unseen.models import AllConv, WideResNet

VARIANTS: tuple[str, ...] = ("allconv", "wrn_40_2")
CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
SEVERITIES = (1, 2, 3, 4, 5)
# Weight decay, flips and crops are not in the paper but in the wide residual networks' procedure,
# which it follows.
_TRAINING: dict[str, Any] = {
    "lr": 0.1,
    "lr_schedule": "linear",
    "batch_size": 128,
    "optimizer": "sgd",
    "weight_decay": 5e-4,
    "augment": "flip_crop",
}
PRESETS: dict[str, dict[str, Any]] = {
    "fast": {
        **_TRAINING,
        "width": 0.25,
        "steps": 1200,
        "batch_size": 64,
        # Chosen on cifar_shifts (docs/tuning.md). With minimised heads the noise would vanish
        # before training ends.
        "uncertainty_guided": {
            "draws": 1,
            "noise": {"per": "feature", "sign": "positive", "scale": 0.5, "minimize": False},
            "mixup": None,
        },
    },
    "paper": {**_TRAINING, "steps": 75_000},  # 200 epochs of 48,000 images
}


def allconv(*, width: float = 1.0) -> nn.Module:
    return AllConv(len(cifar10.CLASS_NAMES), width)


def wrn_40_2(*, width: float = 1.0) -> nn.Module:
    return WideResNet(len(cifar10.CLASS_NAMES), width)


def task(variant: str = "allconv") -> Task:
    if variant not in VARIANTS:
        raise UnseenError(f'cifar10_c has no variant "{variant}"; it has: {", ".join(VARIANTS)}')
    return Task(
        name="cifar10_c",
        variant=variant,
        summary="CIFAR-10 -> CIFAR-10-C, 15 corruptions x 5 severities; variants: the backbones",
        source=Domain("cifar10", load_source),
        targets=tuple(
            Domain(f"{name}/{s}", partial(_load_target, name, s))
            for name in CORRUPTIONS
            for s in SEVERITIES
        ),
        classes=len(cifar10.CLASS_NAMES),
        class_names=cifar10.CLASS_NAMES,
        model={"allconv": allconv, "wrn_40_2": wrn_40_2}[variant],
        sites=("conv1",),
        embedding="pool",
        presets=PRESETS,
        score_at="embedding",
    )


def load_source(split: str) -> TensorDataset:
    """Load a split of clean CIFAR-10."""
    splits = cifar10.split_slices()
    if split not in splits:
        raise UnseenError(f'the source cifar10 has no split "{split}"; it has: {", ".join(splits)}')
    return ByteImages(*cifar10.load_images(splits[split]))


def _load_target(corruption: str, severity: int, split: str) -> TensorDataset:
    from unseen.data.cifar10_c import load_images  # imports scipy and Pillow

    if split != "test":
        raise UnseenError(
            f'{corruption}/{severity} has no split "{split}", only test: '
            "CIFAR-10-C has corrupted test images only"
        )
    return ByteImages(*load_images(corruption, severity))
