"""Draw the figures of the documentation with the library's own functions, the same at every build.

python docs/figures/draw.py FOLDER    writes them into FOLDER
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from unseen.data.mini_digits import load_images
from unseen.detection.source_statistics import SourceStatistics
from unseen.functional.mixup import Mixing, mix_targets
from unseen.functional.noise import Gaussian, Sign, perturb
from unseen.functional.pooling import pool
from unseen.functional.scores import relative_deviation
from unseen.models import DigitsNet
from unseen.nn.heads import GaussianHead
from unseen.nn.random import Draws, draw_mixing

INK = {"light": "#22303c", "dark": "#d6dde4"}
ORANGE, BLUE, GREEN, GREY = "#d1603d", "#4a8fbd", "#7aa85c", "#9aa7b4"


def svg(draw: Callable[[str], Any], theme: str, description: str | None = None) -> bytes:
    """Return a figure as SVG, without a date and with fixed ids: builds are reproducible."""
    ink = INK[theme]
    style = {
        "svg.hashsalt": "unseen", "font.size": 10, "text.color": ink, "axes.edgecolor": ink,
        "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink, "axes.spines.top": False,
        "axes.spines.right": False, "legend.frameon": False, "savefig.transparent": True,
    }  # fmt: skip
    metadata = {"Date": None} | ({"Description": description} if description else {})
    with plt.rc_context(style), io.BytesIO() as out:
        figure = draw(theme)
        figure.savefig(out, format="svg", metadata=metadata, bbox_inches="tight")
        plt.close(figure)
        return out.getvalue()


def noise(theme: str) -> Any:
    """Plot densities of the added noise for means and scales within a head's range."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
    many = torch.zeros(1, 200_000)
    sign: Sign
    for axes, sign, formula in (
        (left, "positive", "softplus(μ + σ ε), as printed"),
        (right, "both", "μ + σ ε, our default"),
    ):
        for mu, colour in ((-2.0, BLUE), (0.0, GREEN), (2.0, ORANGE)):
            for sigma, line in ((0.3, "-"), (1.0, "--")):
                gaussian = Gaussian(torch.full_like(many, mu), torch.full_like(many, sigma))
                added = perturb(many, gaussian, Draws([0]).normal(many)[0], 1.0, sign)
                height, edges = np.histogram(added.numpy(), bins=160, range=(-5, 5), density=True)
                centres = (edges[1:] + edges[:-1]) / 2
                axes.plot(
                    centres,
                    height,
                    line,
                    color=colour,
                    label=f"μ = {mu:g}, σ = {sigma:g}",
                    linewidth=1.6,
                )
        axes.set_xlabel(f"added to a feature: {formula}", fontsize=8.5)
        axes.set_yticks([])
        axes.set_ylim(0, 2.2)
        axes.spines["left"].set_visible(False)
    left.legend(fontsize=7.5, loc="upper left")
    return figure


def draws(theme: str) -> Any:
    """Show noise on the pixels of a digit, as if the image were the features of a site."""
    x, y = _digits("digits", "test")
    h = x[int((y == 3).nonzero()[0])][None]
    spread = float(h.std())
    quiet = Gaussian(torch.zeros_like(h), torch.ones_like(h))
    rows = {"one ε for each feature": "feature", "one ε for each channel": "channel"}
    figure, grid = plt.subplots(len(rows), 7, figsize=(7, 2.35), layout="constrained")
    for axes, (title, per) in zip(grid, rows.items(), strict=True):
        noise = Draws(range(6)).normal(h, per)  # type: ignore[arg-type]
        shown = torch.cat([h, *(perturb(h, quiet, eps, 2 * spread, "both") for eps in noise)])
        for place, (cell, picture) in enumerate(zip(axes, shown, strict=True)):
            low, high = float(shown[place].min()), float(shown.max())
            cell.imshow(
                ((picture - min(low, 0)) / (high - min(low, 0))).permute(1, 2, 0).numpy(),
                interpolation="nearest",
            )
            cell.set_axis_off()
            if place == 0:
                cell.set_title("clean", fontsize=8.5)
        axes[1].set_title(title, fontsize=8.5, loc="left")
    return figure


def mixup(theme: str) -> Any:
    """Plot the density of the mixing weight, and the mixed label as a function of it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.5), layout="constrained")
    for (a, b), colour in zip(
        ((0.5, 0.5), (1.0, 1.0), (2.0, 2.0), (2.0, 0.5)), (BLUE, GREY, GREEN, ORANGE), strict=True
    ):
        many = torch.ones(100_000)
        lam, _ = draw_mixing(Mixing(a * many, b * many, many / 2), Draws([0]), temperature=0.5)
        height, edges = np.histogram(lam.numpy(), bins=40, range=(0, 1), density=True)
        left.plot((edges[1:] + edges[:-1]) / 2, height, color=colour, label=f"a = {a:g}, b = {b:g}")
    left.set_ylim(0, 3.2)
    left.set_yticks([])
    left.set_xlabel("λ: 0 is perturbed, 1 is clean")
    left.legend(fontsize=8)
    lam = torch.linspace(0, 1, 101)
    true_class = torch.zeros(101, dtype=torch.int64)
    for smooth, label, colour in (
        (1.0, "smoothed", ORANGE),
        (0.0, "not smoothed", BLUE),
    ):
        mixed = mix_targets(true_class, lam, torch.full_like(lam, smooth), classes=10, rho=0.9)
        right.plot(lam, mixed[:, 0], color=colour, label=label)
    right.set_ylim(0.88, 1.012)
    right.set_xlabel("λ")
    right.set_ylabel("target of the true class")
    figure.get_layout_engine().set(wspace=0.08)  # the label stays clear of the left panel
    right.legend(fontsize=8, loc="lower right")
    return figure


def step(theme: str) -> Any:
    """Draw one training step as a diagram."""
    figure, axes = plt.subplots(figsize=(7.4, 3.1), layout="constrained")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 44)
    axes.set_axis_off()
    boxes = (
        (11, 32, "source batch S", GREY),
        (38, 38, "inner step (Eq. 4)\nθ* = θ − α ∇L(θ; S)", BLUE),
        (38, 23, "heads map the site's\ninput to μ, σ (Eq. 2)", ORANGE),
        (38, 7, "adversary: ascend the\nloss in the heads (Eq. 1)", ORANGE),
        (68, 23, "K draws of noise,\nmixed labels (Eq. 3)", GREEN),
        (68, 38, "loss of θ* on\nthe K draws", BLUE),
        (92, 23, "update θ and\nheads with both\nlosses (Eq. 6)", GREY),
    )
    for x, y, text, colour in boxes:
        box = {
            "boxstyle": "round,pad=0.55",
            "facecolor": "none",
            "edgecolor": colour,
            "linewidth": 1.6,
        }
        axes.text(x, y, text, ha="center", va="center", fontsize=9, linespacing=1.35, bbox=box)
    arrows = (
        ((19, 34), (26.5, 37.5)), ((19, 30), (25, 25)), ((38, 11.5), (38, 18.5)),
        ((51.5, 23), (59, 23)), ((68, 27.5), (68, 33.5)), ((50.5, 38), (59.5, 38)),
        ((77, 36), (87, 29.5)),
    )  # fmt: skip
    for start, end in arrows:
        axes.annotate(
            "", end, start, arrowprops={"arrowstyle": "-|>", "color": INK[theme], "linewidth": 1.2}
        )
    return figure


def alarm(theme: str) -> Any:
    """Plot scores of batches and the threshold for their size, with an untrained head."""
    source, held_out, domains = _sigma_features()
    reference = SourceStatistics(source.mean(0), held_out)

    def score(features: Tensor) -> Tensor:
        return relative_deviation(features, reference.mean)

    figure, axes = plt.subplots(figsize=(7, 2.9), layout="constrained")
    sizes = [4, 8, 16, 32, 64, 128]
    axes.plot(
        sizes,
        [reference.threshold(score, n, 0.01) for n in sizes],
        color=INK[theme],
        label="threshold, 1 % false alarms",
    )
    for (name, features), colour in zip(domains.items(), (GREY, BLUE, ORANGE), strict=True):
        generator = torch.Generator().manual_seed(0)
        for n in sizes:
            means = torch.stack(
                [
                    features[torch.randperm(len(features), generator=generator)[:n]].mean(0)
                    for _ in range(12)
                ]
            )
            positions = n * np.exp(np.linspace(-0.12, 0.12, 12))
            axes.scatter(
                positions, score(means), s=9, color=colour, label=name if n == sizes[0] else None
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.set_xlabel("samples in the batch")
    axes.set_ylabel("domain score")
    axes.legend(
        fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), handletextpad=0.3
    )
    return figure


@cache
def _sigma_features() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    torch.manual_seed(0)
    head = GaussianHead(DigitsNet().conv1)

    def features(domain: str, split: str) -> Tensor:
        with torch.no_grad():
            return pool(head.sigma(_digits(domain, split)[0]), 1)

    domains = {
        "source, held out": ("digits", "test"),
        "scanner": ("scanner", "test"),
        "photo": ("photo", "test"),
    }
    return (
        features("digits", "train"),
        features("digits", "val"),
        {name: features(*split) for name, split in domains.items()},
    )


@cache
def _digits(domain: str, split: str) -> tuple[Tensor, Tensor]:
    x, y = load_images(domain, split)
    return x.float() / 255, y


FIGURES: dict[str, Callable[[str], Any]] = {
    "noise": noise,
    "draws": draws,
    "mixup": mixup,
    "step": step,
    "alarm": alarm,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in FIGURES.items():
        (folder / f"{name}.svg").write_bytes(svg(figure, "light"))
