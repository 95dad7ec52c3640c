"""Figures, drawn from plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

INK, FAINT, COLOURS = "#22303c", "#c9d1d9", ("#9aa7b4", "#d1603d", "#3d7ea6", "#6a994e")


def demo_figure(
    path: Path,
    accuracy: Mapping[str, Mapping[str, float]],
    scores: Mapping[str, float],
    threshold: float,
    samples: Mapping[str, NDArray[np.uint8]],
) -> None:
    """Accuracy of each method per domain, a few samples of each domain, and the score that warned of it."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    domains = list(scores)
    figure, (images, bars, warning) = plt.subplots(3, 1, figsize=(9, 8.2), height_ratios=[0.9, 2, 1.5], layout="constrained")
    places = np.arange(len(domains))

    strips = [np.concatenate(list(samples[d][:3]), axis=1) for d in domains]
    gap = np.full((strips[0].shape[0], 10, 3), 255, np.uint8)
    row = np.concatenate([part for strip in strips for part in (strip, gap)][:-1], axis=1)
    images.imshow(row, interpolation="nearest", aspect="equal")
    images.set_axis_off()
    images.set_title("What the model was trained on (left), and what it had never seen", loc="left", color=INK)

    width = 0.8 / len(accuracy)
    for index, (method, by_domain) in enumerate(accuracy.items()):
        at = places + (index - (len(accuracy) - 1) / 2) * width
        values = [100 * by_domain[d] for d in domains]
        drawn = bars.bar(at, values, width * 0.94, label=method, color=COLOURS[index % len(COLOURS)])
        bars.bar_label(drawn, fmt="%.0f", fontsize=8, color=INK, padding=2)
    bars.set_ylabel("accuracy, %")
    bars.set_ylim(0, 112)
    bars.legend(frameon=False, ncols=len(accuracy), loc="upper right")

    colours = [COLOURS[2] if scores[d] <= threshold else COLOURS[1] for d in domains]
    drawn = warning.bar(places, [scores[d] for d in domains], 0.5, color=colours)
    warning.bar_label(drawn, fmt="%.2f", fontsize=8, color=INK, padding=2)
    warning.axhline(threshold, color=INK, linewidth=1, linestyle="--")
    warning.annotate("alarm above", (len(domains) - 0.6, threshold), xytext=(0, 3), textcoords="offset points",
                     fontsize=8, color=INK, ha="right")  # fmt: skip
    warning.set_ylabel("domain uncertainty")
    warning.set_title("One-pass score, no labels needed", loc="left", color=INK, fontsize=10)
    for axes in (bars, warning):
        axes.set_xticks(places, [f"{d}\n(source, held out)" if d == domains[0] else d for d in domains])
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
    warning.margins(y=0.18)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    spread = np.asarray(values, dtype=float)
    return float(spread.mean()), float(spread.std(ddof=1)) if len(spread) > 1 else 0.0
