"""Confusion matrices by domain."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unseen.report.figures.images import class_names, domain_label, find_run
from unseen.report.figures.svg import Figure, Panel
from unseen.report.groups import TaskRuns

MAX_MATRICES = 6
CELL = 22  # pixels


def confusion_figure(task: TaskRuns) -> Figure | None:
    """Draw the confusion matrix of the source and of the domains with most errors."""
    run = find_run(task, "confusion")
    if run is None:
        return None
    arrays = run.evaluation_arrays
    domains = [d for d in (run.source, *run.domains) if f"confusion/{d}" in arrays]
    all_shown = len(domains) <= MAX_MATRICES
    if not all_shown:
        worst = sorted(domains[1:], key=lambda d: run.values[d])
        domains = [domains[0], *worst[: MAX_MATRICES - 1]]
    names = class_names(run)
    panels = []
    for domain in domains:
        counts = arrays[f"confusion/{domain}"]
        alt = f"confusion matrix on {domain}; {_most_frequent_error(counts, names)}"
        title = domain_label(run, domain, task.metric)
        panels.append(Panel(matrix_svg(counts, names, alt), alt, title))
    caption = (
        f"Rows: true class; columns: class predicted by {run.config['method']} (seed {run.seed}); "
        "in percent of the row."
        + ("" if all_shown else f" The worst of {len(run.domains)} unseen domains.")
    )
    return Figure("Confusion matrices", caption, panels)


def _most_frequent_error(counts: NDArray[np.integer], names: Sequence[str]) -> str:
    fraction = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    np.fill_diagonal(fraction, 0)
    row, column = divmod(int(fraction.argmax()), len(names))
    rate = f"{100 * fraction[row, column]:.0f} percent"
    return f"most frequent error: {names[row]} predicted as {names[column]}, {rate} of the time"


def matrix_svg(counts: NDArray[np.integer], names: Sequence[str], alt: str) -> str:
    """Return a matrix of counts as SVG, each row in percent."""
    shares = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
    longest = max(map(len, names))
    left = 8 + 5.2 * longest
    upright = longest <= 3
    top = 20 if upright else left
    parts = []
    for i, name in enumerate(map(html.escape, names)):
        middle = CELL * i + CELL / 2
        y = top + middle + 3
        parts.append(f'<text x="{left - 5:g}" y="{y:g}" text-anchor="end">{name}</text>')
        if upright:
            parts.append(f'<text x="{left + middle:g}" y="14" text-anchor="middle">{name}</text>')
        else:
            place = f"translate({left + middle + 3:g} {top - 5:g}) rotate(-90)"
            parts.append(f'<text transform="{place}">{name}</text>')
        for j, value in enumerate(shares[i]):
            if value >= 0.5:
                parts.append(_cell_svg(left + CELL * j, top + CELL * i, value))
    width, height = left + CELL * len(names), top + CELL * len(names)
    style = f'class="matrix" style="max-width: {1.4 * width:.0f}px"'
    view = f'viewBox="0 0 {width + 4:g} {height + 4:g}"'
    label = f'role="img" aria-label="{html.escape(alt)}"'
    return f"<svg {style} {view} {label}>{''.join(parts)}</svg>"


def _cell_svg(x: float, y: float, value: float) -> str:
    opacity = f"{0.06 + 0.44 * value / 100:.2f}"
    size = f'width="{CELL - 1}" height="{CELL - 1}"'
    text = f'<text x="{x + 10.5:g}" y="{y + 14:g}" text-anchor="middle">{value:.0f}</text>'
    return f'<rect x="{x:g}" y="{y:g}" {size} fill-opacity="{opacity}"/>{text}'
