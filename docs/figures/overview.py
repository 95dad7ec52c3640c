"""Draw the README's picture from results/: accuracy on unseen domains, and the score against error.

python docs/figures/overview.py    writes docs/figures/overview-{light,dark}.svg
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from draw import BLUE, GREY, INK, ORANGE, svg
from matplotlib import pyplot as plt

from unseen.report.published import read_published

FIGURES = Path(__file__).parent
RESULTS = FIGURES.parents[1] / "results"
ROWS = (  # grid of results, variant, label
    ("digits", "default", "digits: MNIST to 3 others"),
    ("mini_digits", "default", "mini_digits, embedded"),
    ("cifar10_c", "allconv", "CIFAR-10-C, 75 corruptions"),
    ("google_commands", "default", "spoken commands, 5 corruptions"),
    ("amazon_reviews", "all", "reviews, 12 transfers"),
    ("driving", "camvid_day", "street scenes at dusk (mIoU)"),
)


def accuracies() -> list[tuple[str, tuple[float, float], tuple[float, float], int]]:
    """Return label, (mean, std) of ERM and of uncertainty_guided in %, and the number of seeds."""
    lines = {
        (line.grid, line.variant, line.method): line
        for line in read_published(RESULTS)
        if line.setting == "default"
    }
    rows = []
    for grid, variant, label in ROWS:
        pair = [lines[grid, variant, name] for name in ("erm", "uncertainty_guided")]
        erm, ours = ((100 * m, 100 * s) for m, s in (p.values["average"] for p in pair))
        rows.append((label, erm, ours, len(pair[1].seeds)))
    return rows


def scores() -> tuple[list[float], list[float]]:
    """Return score and error in % of every CIFAR-10-C domain, each a mean over seeds."""
    tasks = json.loads((RESULTS / "uncertainty/scores.json").read_text())["tasks"]
    task = next(t for t in tasks if t["task"] == "cifar10_c")
    score, error = defaultdict(list), defaultdict(list)
    for run in task["runs"]:
        if run["method"] == "uncertainty_guided":
            for name in task["domains"]:
                own = run["scores"]["uncertainty_guided"]["domains"]
                score[name].append(own[name]["score"])
                error[name].append(100 * (1 - run["values"][name]))
    return [mean(v) for v in score.values()], [mean(v) for v in error.values()]


def correlation() -> tuple[float, float]:
    """Return the published rank correlation of score and error, mean and std over seeds."""
    rows = json.loads((RESULTS / "uncertainty/summary.json").read_text())
    row = next(
        r
        for r in rows
        if (r["task"], r["method"], r["metric"])
        == ("cifar10_c", "uncertainty_guided", "rank_correlation")
    )
    return row["mean"], row["std"]


def fingerprint() -> str:
    """Return a digest of the plotted data; the SVG carries it, so a stale picture is detected."""
    data = json.dumps([accuracies(), scores(), correlation()])
    return hashlib.sha256(data.encode()).hexdigest()[:16]


def overview(theme: str) -> Any:
    """Draw both panels."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.4, 3.0), layout="constrained", width_ratios=[1.35, 1]
    )
    rows = accuracies()
    at_right = left.get_yaxis_transform()  # x in 0..1 across the panel, y in rows
    for place, (_, erm, ours, _) in enumerate(reversed(rows)):
        left.plot([erm[0], ours[0]], [place, place], color=GREY, linewidth=1.2, zorder=1)
        for (value, std), colour, offset, name in (
            (erm, BLUE, -0.13, "ERM"),
            (ours, ORANGE, 0.13, "unseen"),
        ):
            left.errorbar(
                value, place + offset, xerr=std, fmt="o", color=colour, markersize=5.5,
                elinewidth=1.2, label=name if place == 0 else None,
            )  # fmt: skip
        gain = ours[0] - erm[0]
        left.text(
            1.0, place, f"{gain:+.1f}".replace("-", "−"), ha="right", va="center", fontsize=9.5,
            transform=at_right,
        )  # fmt: skip
    left.set_yticks(range(len(rows)), [label for label, *_ in reversed(rows)])
    left.set_xlim(10, 90)
    left.set_ylim(-0.6, len(rows) - 0.4)
    left.tick_params(axis="y", length=0)
    left.spines["left"].set_visible(False)
    left.set_xlabel("accuracy on unseen domains, %")
    left.text(1.0, len(rows) - 0.3, "gain", ha="right", fontsize=9.5, transform=at_right)
    left.legend(loc="lower center", bbox_to_anchor=(0.4, 0.97), ncols=2, fontsize=9.5)
    score, error = scores()
    right.scatter(error, score, s=18, color=ORANGE, linewidth=0, alpha=0.85)
    rho, std = correlation()
    right.text(
        0.97, 0.03, f"rank correlation {rho:.2f} ± {std:.2f}", transform=right.transAxes,
        ha="right", color=INK[theme], fontsize=9.5,
    )  # fmt: skip
    right.set_yscale("log")
    right.set_yticks([0.1, 0.2, 0.5, 1.0], ["0.1", "0.2", "0.5", "1"])
    right.minorticks_off()
    right.set_xlabel("error of the model on a domain, %")
    right.set_ylabel("score, from unlabelled data")
    right.set_title("75 corruptions of CIFAR-10", fontsize=10)
    return figure


if __name__ == "__main__":
    for theme in INK:
        path = FIGURES / f"overview-{theme}.svg"
        path.write_bytes(svg(overview, theme, description=fingerprint()))
        print(path)
