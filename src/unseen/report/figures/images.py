"""Pictures: noise maps over the input, examples of every domain, street scenes in colour, confusion of classes."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.report.figures.segmentation import NO_LABEL, class_colors, colorize
from unseen.report.figures.svg import Panel, Picture, Plate, Strip, listed
from unseen.report.groups import OURS, Group, TaskRuns
from unseen.report.runs import FinishedRun, pictures

INPUTS = 3  # samples whose noise maps are shown
MOMENTS = 4  # of training
SIDE = 224  # pixels at most
DOMAINS = 12  # that examples or matrices are shown of
MATRICES = 6
Pixels = NDArray[np.uint8]


def png(image: Pixels) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image).save(content, format="PNG", optimize=True)
    return content.getvalue()


def small(image: Pixels, side: int = SIDE) -> Pixels:
    """No larger than it is shown."""
    height, width = image.shape[:2]
    if max(height, width) <= side:
        return image
    scale = side / max(height, width)
    return np.asarray(
        Image.fromarray(image).resize(
            (round(width * scale), round(height * scale)), Image.Resampling.BILINEAR
        )
    )


def heat(shift: NDArray[np.floating], top: float, picture: Pixels | None) -> Pixels:
    """A map of distances in colour, from dark (none) to bright (`top` and more), over the greyed picture it belongs to."""
    share = np.clip(shift / top if top > 0 else np.zeros_like(shift), 0, 1)
    if picture is not None:
        height, width = picture.shape[:2]
        wide = Image.fromarray((255 * share).astype(np.uint8)).resize(
            (width, height), Image.Resampling.BILINEAR
        )
        share = np.asarray(wide) / 255
    colour = matplotlib.colormaps["inferno"](share)[..., :3] * 255
    if picture is None:
        return colour.astype(np.uint8)
    grey = picture.mean(axis=-1, keepdims=True)
    return np.round(0.2 * grey + 0.8 * colour).astype(np.uint8)


def evenly(items: Sequence[int], count: int) -> list[int]:
    """So many of them, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [
        items[i] for i in sorted({round(k * (len(items) - 1) / (count - 1)) for k in range(count)})
    ]


def maps(task: TaskRuns) -> Plate | None:
    """|h+ - h| over the input at several moments, with learned uncertainty and without."""
    shown: list[tuple[str, FinishedRun]] = []
    for wanted, name in ((True, "learned noise"), (False, "random noise")):
        run = next(
            (g.runs[0] for g in task.of(OURS) if _has_maps(g.runs[0]) and _learned(g) == wanted),
            None,
        )
        if run is not None:
            shown.append((name, run))
    if not shown:
        return None
    strips, columns = [], []
    for name, run in shown:
        steps = evenly(list(run.snapshots), MOMENTS)
        columns = ["input", *(f"step {step}" for step in steps)]
        shifts = {step: run.snapshot(step)["shift"] for step in steps}
        top = float(max(np.quantile(shift[:INPUTS], 0.995) for shift in shifts.values()))
        for i in range(min(INPUTS, *(len(s) for s in shifts.values()))):
            picture = None if run.inputs is None or i >= len(run.inputs) else small(run.inputs[i])
            first = [] if picture is None else [Picture(png(picture), f"input {i + 1}")]
            cells = [Picture(png(heat(shifts[step][i], top, picture)), f"{name}: noise on input {i + 1} at step {step}")
                     for step in steps]  # fmt: skip
            strips.append(
                Strip(
                    f"{name}, sample {i + 1}" if len(shown) > 1 else f"sample {i + 1}",
                    [*first, *cells],
                )
            )
        if run.inputs is None:
            columns = columns[1:]
    both = len(shown) > 1
    caption = (
        "How strongly each place of a sample's features is perturbed, |h⁺ − h| averaged over channels at the first layer where "
        "noise enters, with the sample shining through faintly; dark is little, bright is much, on one scale for a row's "
        "moments. "
        "Where the shape of the sample shows, brighter or darker than the rest, the noise depends on what is seen there; an "
        "even glow "
        "treats every place alike."
        + (" Random noise is the comparison without learned uncertainty, a fixed Gaussian." if both else "")
    )  # fmt: skip
    return Plate("Where the noise goes", caption, strips=strips, columns=columns)


def _learned(group: Group) -> bool:
    return bool(group.runs[0].config["settings"].get("perturbation", "full") != "random_gaussian")


def _has_maps(run: FinishedRun) -> bool:
    return bool(run.snapshots) and all(
        run.snapshot(step).get("shift", np.zeros(1)).ndim == 3 for step in run.snapshots
    )


def _names(run: FinishedRun, classes: int) -> list[str]:
    told = run.config.get("class_names") or []
    return list(told) if len(told) == classes else [str(i) for i in range(classes)]


def _best_run(task: TaskRuns, array: str) -> FinishedRun | None:
    """The run to show: ours if there is one, else the first that saved such arrays."""
    groups = [*task.of(OURS), *task.groups]
    return next(
        (
            run
            for g in groups
            for run in g.runs
            if any(name.startswith(f"{array}/") for name in run.exam)
        ),
        None,
    )


def examples(task: TaskRuns) -> Plate | None:
    """A few samples of every domain and what the model takes them for."""
    run = _best_run(task, "guess")
    if run is None or run.metric == "miou":
        return None
    domains = [d for d in (run.source, *run.domains) if f"x/{d}" in run.exam]
    names = _names(run, len(next(run.exam[k] for k in run.exam if k.startswith("confusion/"))))
    strips = []
    for domain in domains[:DOMAINS]:
        cells = []
        for x, y, guess in zip(
            *(run.exam[f"{part}/{domain}"] for part in ("x", "y", "guess")), strict=True
        ):
            truth, said = names[int(y)], names[int(guess)]
            verdict = f"✓ {said}" if y == guess else f"✗ {said}, is {truth}"
            cells.append(
                Picture(
                    png(small(pictures(x[None])[0], 96)),
                    f"{domain}: a {truth}, taken for {said}",
                    verdict,
                )
            )
        strips.append(Strip(f"{domain} (source)" if domain == run.source else domain, cells))
    rest = (
        f" {len(domains) - DOMAINS} further domains are not shown."
        if len(domains) > DOMAINS
        else ""
    )
    caption = (
        f"Test samples of each domain, evenly spaced in its data, with what {run.config['method']} (seed {run.seed}) takes "
        "them for. "
        f"The model learned from the first row's domain alone.{rest}"
    )
    return Plate("What the domains look like", caption, strips=strips)


def scenes(task: TaskRuns) -> Plate | None:
    """Street scenes: image, truth, and what the runs make of it, as colours."""
    plain = [
        g
        for g in task.groups
        if not g.differs and any(name.startswith("guess/") for name in g.runs[0].exam)
    ]
    if not plain or task.first.metric != "miou":
        return None
    found = [(g.label, g.runs[0]) for g in (plain if len(plain) < 2 else (plain[0], plain[-1]))]
    labels = [label for label, _ in found]
    run = found[0][1]
    names = _names(run, len(next(run.exam[k] for k in run.exam if k.startswith("confusion/"))))
    strips = []
    for domain in [d for d in (run.source, *run.domains) if f"guess/{d}" in run.exam][:DOMAINS]:
        image = pictures(run.exam[f"x/{domain}"])[0]
        cells = [Picture(png(small(image)), f"{domain}: the image")]
        truth = run.exam[f"y/{domain}"][0]
        cells.append(Picture(png(overlaid(image, truth, names)), f"{domain}: true classes"))
        cells += [Picture(png(overlaid(image, r.exam[f"guess/{domain}"][0], names)), f"{domain}: classes by {label}")
                  for label, r in found if f"guess/{domain}" in r.exam]  # fmt: skip
        strips.append(Strip(f"{domain} (source)" if domain == run.source else domain, cells))
    colours = ["#{:02x}{:02x}{:02x}".format(*c) for c in class_colors(names).tolist()]
    caption = (
        "One scene of each domain: as it is, with its true classes laid over it, and with what "
        f"{listed(labels)} make of it. The first row is the source, the only one that training saw; elsewhere, colours that "
        "break up or leak over "
        "edges are errors."
    )
    return Plate("Street scenes", caption, strips=strips, columns=["image", "truth", *labels],
                 swatches=[*zip(colours, names, strict=True), (NO_LABEL, "no label")])  # fmt: skip


def overlaid(image: Pixels, labels: NDArray[np.integer], names: Sequence[str]) -> Pixels:
    """Classes as colours, with the picture shining through."""
    colour = colorize(labels.astype(int), names).astype(float)
    return small(np.round(0.3 * image + 0.7 * colour).astype(np.uint8))


def confusion(task: TaskRuns) -> Plate | None:
    """Which class is taken for which, domain by domain."""
    run = _best_run(task, "confusion")
    if run is None:
        return None
    domains = [d for d in (run.source, *run.domains) if f"confusion/{d}" in run.exam]
    if len(domains) > MATRICES:  # the source, and where it is worst
        domains = [domains[0], *sorted(domains[1:], key=lambda d: run.figures[d])[: MATRICES - 1]]
    panels = []
    for domain in domains:
        counts = run.exam[f"confusion/{domain}"]
        names = _names(run, len(counts))
        value = 100 * run.figures[domain]
        title = (
            f"{domain}{' (source)' if domain == run.source else ''}: {task.metric} {value:.1f} %"
        )
        alt = f"confusion matrix on {domain}; {_worst(counts, names)}"
        panels.append(Panel(matrix(counts, names, alt), alt, title))
    rest = (
        f" Of {len(run.domains)} unseen domains, those with the most errors."
        if len(run.domains) >= MATRICES
        else ""
    )
    caption = (
        f"Rows are true classes, columns are what {run.config['method']} (seed {run.seed}) said; each number is the share of "
        "its row "
        "in percent, and stronger colour is more. A perfect model has colour on the diagonal alone; a coloured column is a class "
        f"that everything unfamiliar is taken for.{rest}"
    )
    return Plate("Which class is taken for which", caption, panels)


def _worst(counts: NDArray[np.integer], names: Sequence[str]) -> str:
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    np.fill_diagonal(share, 0)
    row, column = divmod(int(share.argmax()), len(names))
    return f"most often {names[row]} is taken for {names[column]}, {100 * share[row, column]:.0f} percent of the time"


def matrix(counts: NDArray[np.integer], names: Sequence[str], alt: str) -> str:
    """A matrix of counts as SVG, each row in percent."""
    share = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
    n, cell = len(names), 22
    left = 8 + 5.2 * max(map(len, names))
    top = 20 if max(map(len, names)) <= 3 else left
    parts = []
    for i, name in enumerate(names):
        middle = cell * i + cell / 2
        parts.append(
            f'<text x="{left - 5:g}" y="{top + middle + 3:g}" text-anchor="end">{html.escape(name)}</text>'
        )
        across = html.escape(name)
        if top == 20:
            parts.append(f'<text x="{left + middle:g}" y="14" text-anchor="middle">{across}</text>')
        else:
            parts.append(
                f'<text transform="translate({left + middle + 3:g} {top - 5:g}) rotate(-90)">{across}</text>'
            )
        for j in range(n):
            if (value := share[i, j]) >= 0.5:
                x, y = left + cell * j, top + cell * i
                parts.append(
                    f'<rect x="{x:g}" y="{y:g}" width="21" height="21" fill-opacity="{0.06 + 0.44 * value / 100:.2f}"/>'
                )
                parts.append(
                    f'<text x="{x + 10.5:g}" y="{y + 14:g}" text-anchor="middle">{value:.0f}</text>'
                )
    size = f"{left + cell * n + 4:g} {top + cell * n + 4:g}"
    wide = f"max-width: {1.4 * (left + cell * n):.0f}px"
    opening = f'<svg class="matrix" style="{wide}" viewBox="0 0 {size}" role="img" aria-label="{html.escape(alt)}">'
    return f"{opening}{''.join(parts)}</svg>"
