"""Figures as SVG whose colors are CSS variables, for light and dark themes."""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Placeholders that svg_of replaces by the variables of page.css.
INK, LINE = "#101112", "#c0c1c2"
SERIES = tuple(f"#a0a0{n:02d}" for n in range(1, 9))
SYMBOLS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
MARKERS = tuple(SYMBOLS)
MAX_SERIES = len(SERIES)
WIDTH = 4.2  # inches; the width of a phone, so that text stays readable there
STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "unseen", "text.parse_math": False,
    "font.size": 10, "axes.titlesize": 10, "axes.labelsize": 10, "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": LINE,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.5, "axes.axisbelow": True,
    "lines.linewidth": 1.7, "lines.markersize": 5, "xtick.major.size": 0, "ytick.major.size": 0,
    "axes.unicode_minus": False, "path.simplify": False,
}  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """One plot: SVG, alternative text, title."""

    svg: str
    alt: str
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """One PNG image with alternative text and a line below it."""

    png: bytes
    alt: str
    below: str = ""


@dataclass(frozen=True)
class PictureRow:
    """A row of images under a name."""

    name: str
    pictures: list[Picture]


@dataclass(frozen=True)
class Figure:
    """A figure of the page: panels or rows of images, a legend and a caption."""

    title: str
    caption: str
    panels: list[Panel] = field(default_factory=list)
    rows: list[PictureRow] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)  # headings of the images
    legend: list[str] = field(default_factory=list)  # names of the series, in order
    swatches: list[tuple[str, str]] = field(default_factory=list)  # color and meaning


class Plot:
    """Axes to draw on; `panel` returns the result."""

    def __init__(self, height: float = 2.7) -> None:
        # The import takes half a second: only if something is drawn.
        from matplotlib.figure import Figure as Canvas

        with matplotlib.rc_context(STYLE):
            self.canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
            self.axes: Axes = self.canvas.add_subplot()
        self.axes.grid(axis="x", visible=False)

    def limit_to_percent(self, axis: str) -> None:
        """End an axis of percentages at 0 and 100, with no tick beyond."""
        low, high = getattr(self.axes, f"get_{axis}lim")()
        margin = 0.02 * (min(high, 100) - max(low, 0))  # room for markers
        limits = max(low, -margin), min(high, 100 + margin)
        ticks = [t for t in getattr(self.axes, f"get_{axis}ticks")() if 0 <= t <= 100]
        getattr(self.axes, f"set_{axis}ticks")([t for t in ticks if limits[0] <= t <= limits[1]])
        getattr(self.axes, f"set_{axis}lim")(*limits)

    def panel(self, alt: str, title: str = "") -> Panel:
        return Panel(svg_of(self.canvas, alt), alt, title)


def svg_of(canvas: Canvas, alt: str) -> str:
    """Return SVG to embed: no date, no fixed size, text as text, colors of the page."""
    content = io.BytesIO()
    metadata = {"Date": None, "Creator": None}
    with matplotlib.rc_context(STYLE):
        canvas.savefig(content, format="svg", transparent=True, metadata=metadata)
    text = content.getvalue().decode()
    text = text[text.index("<svg") :]
    unused = r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->|\s+(?=<)|<defs>\s*</defs>"
    text = re.sub(unused, "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    coordinates = r' (d|x|y|transform|points)="[^"]*"'
    text = re.sub(coordinates, lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m.group()), text)
    fonts = r"font(-family)?: ([\d.]+px)?[^;\"]*"
    text = re.sub(fonts, lambda m: f"font-size: {m[2]}" if m[2] else "", text)
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None
    label = f'role="img" aria-label="{html.escape(alt)}"'
    opening = f'<svg {view.group()} {label} xmlns:xlink="http://www.w3.org/1999/xlink">'
    text = opening + text[text.index(">") + 1 :].strip()
    colors = {INK: "currentColor", LINE: "var(--line)"}
    colors |= {color: f"var(--s{i})" for i, color in enumerate(SERIES, 1)}
    for color, name in colors.items():
        text = text.replace(color, name)
    return text


def unique_ids(svg: str, prefix: str) -> str:
    """Return the SVG with prefixed ids: ids must be unique in a page."""
    return re.sub(r'(\bid="|"#|url\(#)(?=[A-Za-z])', rf"\g<1>{prefix}-", svg)


def series_style(index: int) -> dict[str, Any]:
    """Return color and marker of the nth series."""
    return {"color": SERIES[index % len(SERIES)], "marker": MARKERS[index % len(MARKERS)]}


def bin_means(
    steps: Sequence[float], values: Sequence[float], count: int = 60
) -> tuple[list[float], list[float]]:
    """Return at most `count` points, each the mean of its neighbors."""
    if len(steps) <= count:
        return list(steps), list(values)
    parts = np.array_split(np.arange(len(steps)), count)

    def means(sequence: Sequence[float]) -> list[float]:
        return [float(np.mean([sequence[i] for i in part])) for part in parts]

    return means(steps), means(values)


def join_names(names: Sequence[str]) -> str:
    """Return names as they stand in a sentence."""
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)


def capitalize(text: str) -> str:
    """Return the text with a capital first letter; mIoU stays as it is."""
    return text if text[:2] != text[:2].lower() else text[:1].upper() + text[1:]


def all_finite(values: Sequence[float]) -> bool:
    return bool(values) and all(math.isfinite(v) for v in values)
