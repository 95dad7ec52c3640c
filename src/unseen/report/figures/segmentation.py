"""Label maps in colour, side by side: the image, the truth, and what each model made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.integer]
# One colour for one meaning, whatever number a data set gives it.
COLORS = {
    "sky": "#8fc1e3", "building": "#7d6b5d", "road": "#6f6178", "sidewalk": "#d9a6c2", "vegetation": "#5a9a4a",
    "fence": "#c08a4a", "pole": "#e8dfb8", "sign": "#f2c318", "vehicle": "#1f3f8f", "car": "#1f3f8f", "person": "#d62839",
    "pedestrian": "#d62839", "bicycle": "#f07f5a", "lane_marking": "#eeeeee", "traffic_light": "#2ca89a", "void": "#3a3a3a",
}  # fmt: skip
NO_LABEL = "#000000"


def class_colors(class_names: Sequence[str]) -> NDArray[np.uint8]:
    """A colour for each class, (C, 3): that of its name, or else one that none of the others has."""
    spare = (
        c
        for c in matplotlib.colormaps["tab20"].colors  # type: ignore[attr-defined]
        if matplotlib.colors.to_hex(c) not in COLORS.values()
    )
    chosen = [COLORS[name] if name in COLORS else next(spare, NO_LABEL) for name in class_names]
    return np.array(
        [[round(255 * part) for part in matplotlib.colors.to_rgb(c)] for c in chosen], np.uint8
    )


def colorize(labels: Labels, class_names: Sequence[str]) -> NDArray[np.uint8]:
    """Class numbers (H, W) as a picture (H, W, 3); what is no class, such as the label to ignore, is black."""
    colours = np.vstack([class_colors(class_names), np.zeros((1, 3), np.uint8)])
    counted = (labels >= 0) & (labels < len(class_names))
    return colours[np.where(counted, labels, len(class_names))]


def draw_side_by_side(
    path: Path,
    images: NDArray[np.uint8],
    truth: Labels,
    predictions: Mapping[str, Labels],
    class_names: Sequence[str],
    title: str = "",
) -> None:
    """Draw a row for each image (N, H, W, 3): itself, its true classes (N, H, W) and each named prediction, above a legend."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    columns = {"image": None, "truth": truth, **predictions}
    rows, (height, width) = len(images), images.shape[1:3]
    figure, axes = plt.subplots(
        rows, len(columns), figsize=(2.4 * len(columns), 2.4 * rows * height / width + 1.1), squeeze=False, layout="constrained"
    )  # fmt: skip
    for row in range(rows):
        for place, (name, maps) in zip(axes[row], columns.items(), strict=True):
            picture = images[row] if maps is None else colorize(maps[row], class_names)
            place.imshow(picture, interpolation="nearest")
            place.set_axis_off()
            if row == 0:
                place.set_title(name, fontsize=10)
    handles = [
        Patch(color=colour / 255, label=name)
        for name, colour in zip(class_names, class_colors(class_names), strict=True)
    ]
    handles.append(Patch(color=NO_LABEL, label="no label"))
    lines = math.ceil(len(handles) / (2 * len(columns) + 1))  # as many as fit the width
    across = math.ceil(len(handles) / lines)
    figure.legend(
        handles=handles, loc="outside lower center", ncols=across, frameon=False, fontsize=8
    )
    if title:
        figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
