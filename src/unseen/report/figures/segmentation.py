"""Label maps in color, beside the image and the ground truth."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from unseen.files import write_atomically

Labels = NDArray[np.integer]
# A class has the same color in every data set, whatever its number there.
COLORS = {
    "sky": "#8fc1e3", "building": "#7d6b5d", "road": "#6f6178", "sidewalk": "#d9a6c2",
    "vegetation": "#5a9a4a", "fence": "#c08a4a", "pole": "#e8dfb8", "sign": "#f2c318",
    "vehicle": "#1f3f8f", "car": "#1f3f8f", "person": "#d62839", "pedestrian": "#d62839",
    "bicycle": "#f07f5a", "lane_marking": "#eeeeee", "traffic_light": "#2ca89a", "void": "#3a3a3a",
}  # fmt: skip
NO_LABEL = "#000000"


def class_colors(class_names: Sequence[str]) -> NDArray[np.uint8]:
    """Return a color for each class, (C, 3): that of its name, or else a distinct one."""
    palette = matplotlib.colormaps["tab20"].colors  # type: ignore[attr-defined]
    spare = (c for c in palette if matplotlib.colors.to_hex(c) not in COLORS.values())
    names = [COLORS[name] if name in COLORS else next(spare, NO_LABEL) for name in class_names]
    colors = [[round(255 * part) for part in matplotlib.colors.to_rgb(name)] for name in names]
    return np.array(colors, np.uint8)


def colorize(labels: Labels, class_names: Sequence[str]) -> NDArray[np.uint8]:
    """Return class numbers (H, W) as an image (H, W, 3); other numbers are black."""
    colors = np.vstack([class_colors(class_names), np.zeros((1, 3), np.uint8)])
    valid = (labels >= 0) & (labels < len(class_names))
    return colors[np.where(valid, labels, len(class_names))]


def draw_side_by_side(
    path: Path,
    images: NDArray[np.uint8],
    truth: Labels,
    predictions: Mapping[str, Labels],
    class_names: Sequence[str],
    title: str = "",
) -> None:
    """Draw images (N, H, W, 3), true classes (N, H, W) and predictions side by side."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    columns = {"image": None, "truth": truth, **predictions}
    rows, (height, width) = len(images), images.shape[1:3]
    size = (2.4 * len(columns), 2.4 * rows * height / width + 1.1)
    figure, axes = plt.subplots(
        rows, len(columns), figsize=size, squeeze=False, layout="constrained"
    )
    for row in range(rows):
        for place, (name, maps) in zip(axes[row], columns.items(), strict=True):
            image = images[row] if maps is None else colorize(maps[row], class_names)
            place.imshow(image, interpolation="nearest")
            place.set_axis_off()
            if row == 0:
                place.set_title(name, fontsize=10)
    colors = zip(class_names, class_colors(class_names), strict=True)
    handles = [Patch(color=color / 255, label=name) for name, color in colors]
    handles.append(Patch(color=NO_LABEL, label="no label"))
    lines = math.ceil(len(handles) / (2 * len(columns) + 1))  # as many as fit the width
    ncols = math.ceil(len(handles) / lines)
    style: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
    figure.legend(handles=handles, ncols=ncols, **style)
    if title:
        figure.suptitle(title, fontsize=11)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:] or "png", dpi=150)
    plt.close(figure)
    write_atomically(path, content.getvalue())
