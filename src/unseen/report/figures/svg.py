"""Figures as SVG that take their colours from the page, so that one drawing serves light and dark."""

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

# Placeholders: page.css says what each stands for in light and in dark.
INK, LINE = "#101112", "#c0c1c2"
SERIES = tuple(f"#a0a0{n:02d}" for n in range(1, 9))
SYMBOLS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
MARKERS = tuple(SYMBOLS)
WIDTH = 4.2  # inches; as wide as a phone, so that letters stay readable there
STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "unseen", "text.parse_math": False,
    "font.size": 10, "axes.titlesize": 10, "axes.labelsize": 10, "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": LINE, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": LINE,
    "grid.linewidth": 0.5, "axes.axisbelow": True, "lines.linewidth": 1.7, "lines.markersize": 5, "xtick.major.size": 0,
    "ytick.major.size": 0, "axes.unicode_minus": False, "path.simplify": False,
}  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """One drawing: SVG, what it shows in a sentence for those who cannot see it, and a short title."""

    svg: str
    alt: str
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """One image of pixels, as PNG, with the words that stand for it."""

    png: bytes
    alt: str
    below: str = ""


@dataclass(frozen=True)
class Strip:
    """A row of pictures under a name."""

    name: str
    pictures: list[Picture]


@dataclass(frozen=True)
class Plate:
    """A figure of the page: panels or rows of pictures under one title, a legend, and a caption that explains them."""

    title: str
    caption: str
    panels: list[Panel] = field(default_factory=list)
    strips: list[Strip] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)  # above the strips' pictures
    legend: list[str] = field(default_factory=list)  # of series, in their order
    swatches: list[tuple[str, str]] = field(
        default_factory=list
    )  # fixed colours and what they mean


class Drawing:
    """An empty panel to draw on: `axes`, then `panel()`."""

    def __init__(self, height: float = 2.7) -> None:
        from matplotlib.figure import (
            Figure as Canvas,  # half a second: only where something is drawn
        )

        with matplotlib.rc_context(STYLE):
            self.canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
            self.axes: Axes = self.canvas.add_subplot()
        self.axes.grid(axis="x", visible=False)

    def panel(self, alt: str, title: str = "") -> Panel:
        return Panel(svg_of(self.canvas, alt), alt, title)


def svg_of(canvas: Canvas, alt: str) -> str:
    """The drawing for use inside a page: no date, no fixed size, its text as text, its colours as the page's."""
    content = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        canvas.savefig(
            content, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = content.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->|\s+(?=<)|<defs>\s*</defs>",
        "",
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(
        r' (d|x|y|transform|points)="[^"]*"',
        lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m.group()),
        text,
    )
    text = re.sub(
        r"font(-family)?: ([\d.]+px)?[^;\"]*", lambda m: f"font-size: {m[2]}" if m[2] else "", text
    )
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None
    opening = f'<svg {view.group()} role="img" aria-label="{html.escape(alt)}" xmlns:xlink="http://www.w3.org/1999/xlink">'
    text = opening + text[text.index(">") + 1 :].strip()
    for colour, name in {
        INK: "currentColor",
        LINE: "var(--line)",
        **{c: f"var(--s{i})" for i, c in enumerate(SERIES, 1)},
    }.items():
        text = text.replace(colour, name)
    return text


def unique_ids(svg: str, prefix: str) -> str:
    """The same drawing with its names made its own: a page has many, and a name may stand in it once."""
    return re.sub(r'(\bid="|"#|url\(#)(?=[A-Za-z])', rf"\g<1>{prefix}-", svg)


def series(index: int) -> dict[str, Any]:
    """Colour and marker of the nth thing in a legend."""
    return {"color": SERIES[index % len(SERIES)], "marker": MARKERS[index % len(MARKERS)]}


def binned(
    steps: Sequence[float], values: Sequence[float], most: int = 60
) -> tuple[list[float], list[float]]:
    """At most so many points, each the mean of its neighbours."""
    if len(steps) <= most:
        return list(steps), list(values)
    parts = np.array_split(np.arange(len(steps)), most)
    return [float(np.mean([steps[i] for i in p])) for p in parts], [
        float(np.mean([values[i] for i in p])) for p in parts
    ]


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)


def capital(text: str) -> str:
    """As a title or sentence begins; mIoU stays as it is written."""
    return text if text[:2] != text[:2].lower() else text[:1].upper() + text[1:]


def finite(values: Sequence[float]) -> bool:
    return bool(values) and all(math.isfinite(v) for v in values)
