"""Folders of tiny images of three classes, and a network for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor, nn

SIDE = 12
CLASSES = ("bar", "dot", "ring")
# A run of a fraction of a second.
QUICK = (
    "--set", "steps=3", "--set", "batch_size=8", "--set", "warmup=1", "--set", "draws=1",
    "--set", "adversary=none", "--set", "width=0.0625",
)  # fmt: skip


def draw(name: str, rng: np.random.Generator, light: float = 0.7) -> Image.Image:
    """Draw one image of a class."""
    pixels = rng.normal(0.2, 0.05, (SIDE, SIDE, 3))
    y, x = np.mgrid[:SIDE, :SIDE] - rng.integers(4, 8, 2)[:, None, None]
    r = np.hypot(x, y)
    shapes = {"bar": abs(y) < 1.5, "dot": r < 2.5, "ring": abs(r - 3) < 0.8}
    pixels[shapes[name]] = light
    return Image.fromarray((pixels.clip(0, 1) * 255).astype(np.uint8))


def write_images(root: Path, each: int, seed: int = 0, light: float = 0.7) -> Path:
    """Write root/class/N.png, so many of each class."""
    rng = np.random.default_rng(seed)
    for name in CLASSES:
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            draw(name, rng, light).save(root / name / f"{i}.png")
    return root


class OwnNet(nn.Module):
    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, stride=2)
        self.fc1 = nn.Linear(width * 25, 8)
        self.fc2 = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.fc1(self.conv(x).relu().flatten(1)).relu())


built: list[tuple[int, tuple[int, ...]]] = []


def build(classes: int, shape: tuple[int, ...], *, width: int = 4) -> nn.Module:
    """Return a network; `built` counts the calls."""
    built.append((classes, shape))
    return OwnNet(classes, width)


def untyped(num_classes, *, width=4):
    """Return a network; the settings have no types."""
    return OwnNet(num_classes, width)
