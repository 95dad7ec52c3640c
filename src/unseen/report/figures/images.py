"""Examples of every domain with predictions: images, and scenes with their label maps."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.report.figures.segmentation import NO_LABEL, class_colors, colorize
from unseen.report.figures.svg import Figure, Picture, PictureRow, join_names
from unseen.report.groups import OURS, TaskRuns
from unseen.report.runs import FinishedRun, to_rgb

MAX_SIDE = 224  # pixels
MAX_DOMAINS = 12
Pixels = NDArray[np.uint8]


def png(image: Pixels) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image).save(content, format="PNG", optimize=True)
    return content.getvalue()


def shrink(image: Pixels, side: int = MAX_SIDE) -> Pixels:
    """Return the image with no side longer than `side`."""
    height, width = image.shape[:2]
    if max(height, width) <= side:
        return image
    scale = side / max(height, width)
    size = (round(width * scale), round(height * scale))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))


def spread_evenly(items: Sequence[int], count: int) -> list[int]:
    """Return `count` of the items, the first and the last included."""
    if len(items) <= count:
        return list(items)
    indices = {round(k * (len(items) - 1) / (count - 1)) for k in range(count)}
    return [items[i] for i in sorted(indices)]


def class_names(run: FinishedRun) -> list[str]:
    """Return the names of the classes, or their numbers."""
    arrays = run.evaluation_arrays
    count = len(next(arrays[key] for key in arrays if key.startswith("confusion/")))
    names = run.config.get("class_names") or []
    return list(names) if len(names) == count else [str(i) for i in range(count)]


def find_run(task: TaskRuns, array: str) -> FinishedRun | None:
    """Return a run that saved such arrays, of our method if there is one."""
    groups = [*task.of(OURS), *task.groups]
    runs = (run for group in groups for run in group.runs)
    return next(
        (run for run in runs if any(k.startswith(f"{array}/") for k in run.evaluation_arrays)), None
    )


def domain_label(run: FinishedRun, domain: str, metric: str) -> str:
    """Return the domain with its metric, so that a few examples do not mislead."""
    role = " (source)" if domain == run.source and domain != "source" else ""
    value = f", {metric} {100 * run.values[domain]:.1f} %" if domain in run.values else ""
    return f"{domain}{role}{value}"


def example_figure(task: TaskRuns) -> Figure | None:
    """Draw a few samples of every domain with the predicted class."""
    run = find_run(task, "guess")
    if run is None or run.metric == "miou":
        return None
    arrays = run.evaluation_arrays
    domains = [d for d in (run.source, *run.domains) if f"x/{d}" in arrays]
    names = class_names(run)
    rows = []
    for domain in domains[:MAX_DOMAINS]:
        pictures = []
        samples = zip(*(arrays[f"{part}/{domain}"] for part in ("x", "y", "guess")), strict=True)
        for x, y, guess in samples:
            truth, prediction = names[int(y)], names[int(guess)]
            verdict = f"✓ {prediction}" if y == guess else f"✗ {prediction}, is {truth}"
            alt = f"{domain}: a {truth}, predicted {prediction}"
            pictures.append(Picture(png(shrink(to_rgb(x[None])[0], 96)), alt, verdict))
        rows.append(PictureRow(domain_label(run, domain, task.metric), pictures))
    more = len(domains) - MAX_DOMAINS
    caption = (
        f"Test samples, evenly spaced in the data of each domain, with the predictions of "
        f"{run.config['method']} (seed {run.seed}). These few samples do not represent the "
        f"{task.metric}, which is given with each name."
        + (f" {more} further domains are not shown." if more > 0 else "")
    )
    return Figure("Examples of every domain", caption, rows=rows)


def scene_figure(task: TaskRuns) -> Figure | None:
    """Draw one scene of every domain: image, true classes and the predictions of two methods."""
    base = [
        group
        for group in task.groups
        if not group.changes
        and any(key.startswith("guess/") for key in group.runs[0].evaluation_arrays)
    ]
    if not base or task.first.metric != "miou":
        return None
    shown = base if len(base) < 2 else [base[0], base[-1]]
    runs = {group.label: group.runs[0] for group in shown}
    run = shown[0].runs[0]
    names = class_names(run)
    arrays = run.evaluation_arrays
    rows = []
    for domain in [d for d in (run.source, *run.domains) if f"guess/{d}" in arrays][:MAX_DOMAINS]:
        image = to_rgb(arrays[f"x/{domain}"])[0]
        truth = arrays[f"y/{domain}"][0]
        pictures = [
            Picture(png(shrink(image)), f"{domain}: image"),
            Picture(png(overlay(image, truth, names)), f"{domain}: true classes"),
        ]
        for label, other in runs.items():
            if f"guess/{domain}" in other.evaluation_arrays:
                guess = other.evaluation_arrays[f"guess/{domain}"][0]
                alt = f"{domain}: classes predicted by {label}"
                pictures.append(Picture(png(overlay(image, guess, names)), alt))
        rows.append(PictureRow(domain_label(run, domain, task.metric), pictures))
    colors = ["#{:02x}{:02x}{:02x}".format(*color) for color in class_colors(names).tolist()]
    caption = (
        "One scene of each domain: image, true classes and the predictions of "
        f"{join_names(list(runs))}. The first row is the source domain; {task.metric} of "
        f"{next(iter(runs))}."
    )
    return Figure(
        "Scenes", caption, rows=rows, columns=["image", "truth", *runs],
        swatches=[*zip(colors, names, strict=True), (NO_LABEL, "no label")],
    )  # fmt: skip


def overlay(image: Pixels, labels: NDArray[np.integer], names: Sequence[str]) -> Pixels:
    """Return the image under the colors of its classes."""
    color = colorize(labels.astype(int), names).astype(float)
    return shrink(np.round(0.3 * image + 0.7 * color).astype(np.uint8))
