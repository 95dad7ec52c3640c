"""Strength of the noise over the input, at several training steps."""

from __future__ import annotations

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.report.figures.images import Pixels, png, shrink, spread_evenly
from unseen.report.figures.svg import Figure, Picture, PictureRow
from unseen.report.groups import OURS, Group, TaskRuns
from unseen.report.runs import FinishedRun

MAX_INPUTS = 3
MAX_STEPS = 4


def heat_map(shift: NDArray[np.floating], top: float, image: Pixels | None) -> Pixels:
    """Return distances in color, from dark (0) to bright (`top`), over the image in gray."""
    fraction = np.clip(shift / top if top > 0 else np.zeros_like(shift), 0, 1)
    if image is not None:
        height, width = image.shape[:2]
        gray = Image.fromarray((255 * fraction).astype(np.uint8))
        fraction = np.asarray(gray.resize((width, height), Image.Resampling.BILINEAR)) / 255
    color = matplotlib.colormaps["inferno"](fraction)[..., :3] * 255
    if image is None:
        return color.astype(np.uint8)
    return np.round(0.2 * image.mean(axis=-1, keepdims=True) + 0.8 * color).astype(np.uint8)


def noise_map_figure(task: TaskRuns) -> Figure | None:
    """Draw |h+ - h| over the input at several steps, for learned and for random noise."""
    runs: dict[str, FinishedRun] = {}
    for group in task.of(OURS):
        name = "learned noise" if _is_learned(group) else "random noise"
        if name not in runs and _has_maps(group.runs[0]):
            runs[name] = group.runs[0]
    if not runs:
        return None
    rows, columns = [], []
    for name, run in sorted(runs.items()):
        steps = spread_evenly(list(run.snapshots), MAX_STEPS)
        columns = [*(["input"] if run.inputs is not None else []), *(f"step {s}" for s in steps)]
        label = f"{name}, " if len(runs) > 1 else ""
        for i, pictures in enumerate(_pictures(run, steps, name), start=1):
            rows.append(PictureRow(f"{label}sample {i}", pictures))
    caption = (
        "Strength of the perturbation at each position, |h⁺ − h| averaged over channels, at the "
        "first layer with noise. Dark: weak; bright: strong, on one scale for all steps of a run. "
        "Structure that follows the sample shows noise that depends on the input."
        + (" Random noise: standard Gaussian, not learned." if len(runs) > 1 else "")
    )
    return Figure("Noise maps", caption, rows=rows, columns=columns)


def _pictures(run: FinishedRun, steps: list[int], name: str) -> list[list[Picture]]:
    shifts = {step: run.snapshot(step)["shift"] for step in steps}
    top = float(max(np.quantile(shift[:MAX_INPUTS], 0.995) for shift in shifts.values()))
    rows = []
    for i in range(min(MAX_INPUTS, *(len(shift) for shift in shifts.values()))):
        image = None if run.inputs is None or i >= len(run.inputs) else shrink(run.inputs[i])
        row = [] if image is None else [Picture(png(image), f"input {i + 1}")]
        for step in steps:
            alt = f"{name} on input {i + 1} at step {step}"
            row.append(Picture(png(heat_map(shifts[step][i], top, image)), alt))
        rows.append(row)
    return rows


def _is_learned(group: Group) -> bool:
    return group.runs[0].config["settings"].get("noise.kind", "learned") != "random_gaussian"


def _has_maps(run: FinishedRun) -> bool:
    return bool(run.snapshots) and all(
        run.snapshot(step).get("shift", np.zeros(1)).ndim == 3 for step in run.snapshots
    )
