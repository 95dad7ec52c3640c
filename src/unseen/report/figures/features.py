"""Where source and perturbed samples lie among each other, and what their labels became."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from unseen.report.figures.images import evenly
from unseen.report.figures.svg import MARKERS, SERIES, Drawing, Plate, listed, series
from unseen.report.groups import OURS, TaskRuns
from unseen.report.runs import FinishedRun

MOMENTS = 4
NEEDS = "openTSNE is not installed here: the picture of features over training (t-SNE) is left out; pip install 'unseen[report]'"
Points = NDArray[np.floating]


def can_embed() -> bool:
    try:
        import openTSNE  # noqa: F401
    except ImportError:
        return False
    return True


def tsne(features: Points, start: Points | None = None) -> Points:
    """Two coordinates for each row so that neighbours stay neighbours; the same ones every time."""
    from openTSNE import TSNE, initialization

    logging.getLogger("openTSNE").setLevel(
        logging.ERROR
    )  # it warns that a start of our own is a start of our own
    perplexity = min(30, (len(features) - 1) / 3)
    # Made as small as the usual start is, or t-SNE would keep the old picture.
    start = (
        initialization.pca(features, random_state=0)
        if start is None
        else start / np.std(start[:, 0]) * 1e-4
    )
    fitted = TSNE(perplexity=perplexity, initialization=start, random_state=0, n_jobs=1, neighbors="exact",
                  negative_gradient_method="bh")  # fmt: skip
    return np.asarray(fitted.fit(features))


def features(task: TaskRuns) -> Plate | None:
    """t-SNE of source and perturbed features at several moments of training."""
    run = _shown(task, "embedding_plus")
    if run is None or not can_embed():
        return None
    steps = evenly(list(run.snapshots), MOMENTS)
    panels, start = [], None
    for step in steps:
        arrays = run.snapshot(step)
        clean, plus = arrays["embedding"], arrays["embedding_plus"]
        both = np.concatenate([clean, plus]).astype(np.float64)
        if not np.isfinite(both).all() or np.ptp(both) == 0:
            continue
        start = tsne(both, start)
        drawing = Drawing(3.2)
        for i, part in enumerate((start[: len(clean)], start[len(clean) :])):
            drawing.axes.scatter(
                part[:, 0],
                part[:, 1],
                s=9,
                color=SERIES[i],
                marker=MARKERS[i],
                linewidths=0,
                alpha=0.85,
            )
        drawing.axes.set(xticks=[], yticks=[])
        drawing.axes.grid(visible=False)
        drawing.axes.spines[:].set_visible(True)
        panels.append(
            drawing.panel(
                f"t-SNE of {len(clean)} source samples and their perturbed copies at step {step}",
                f"step {step}",
            )
        )
    if not panels:
        return None
    caption = (
        f"Features of {len(clean)} source samples and of their perturbed copies, laid out in the plane by t-SNE: points that "
        "are close "
        "have similar features; axes and distances between far groups mean nothing. Perturbed samples that lie between or beyond "
        "the source's groups are the new domains that the method learns from; groups that separate by class while the two kinds "
        f"mingle mean that the model has learned to see through the perturbation. Run: {run.config['method']}, seed {run.seed}."
    )
    return Plate(
        "Source and perturbed features (t-SNE)", caption, panels, legend=["source", "perturbed"]
    )


def mixed_labels(task: TaskRuns) -> Plate | None:
    """The density of what mixed labels leave to the true class."""
    run = _shown(task, "y_plus", "labels")
    if run is None:
        return None
    steps = evenly(list(run.snapshots), 3)
    drawing = Drawing()
    shares = []
    for step in steps:
        arrays = run.snapshot(step)
        shares.append(np.take_along_axis(arrays["y_plus"], arrays["labels"][:, None], 1)[:, 0])
    low = min(0.98, float(np.min(shares)))
    edges = np.linspace(np.floor(20 * low) / 20, 1, 21)
    for i, share in enumerate(shares):
        density, _ = np.histogram(np.clip(share, edges[0], 1), edges, density=True)
        drawing.axes.stairs(
            density,
            edges,
            color=series(i)["color"],
            linewidth=1.7,
            linestyle=("-", "--", ":")[i % 3],
        )
    drawing.axes.set(
        xlabel="share of the true class in the mixed label y⁺", ylabel="density", ylim=(0, None)
    )
    rho = run.config["settings"].get("rho", 0.9)
    caption = (
        "Perturbed samples are taught a mixed label y⁺: the true class, or a smoothed label that leaves it only a part "
        f"(ρ = {rho}) and shares the rest among the other classes, blended in the share λ. The curves are the density of what "
        "is left "
        "to the true class, for 1 (a plain label) down to ρ (fully smoothed), at moments of training: weight that moves to the "
        "left "
        "is doubt that the method learned to teach."
    )
    alt = f"density of the true class's share in mixed labels at steps {listed([str(s) for s in steps])}"
    return Plate(
        "Mixed labels", caption, [drawing.panel(alt)], legend=[f"step {step}" for step in steps]
    )


def _shown(task: TaskRuns, *arrays: str) -> FinishedRun | None:
    """The first run of ours whose every snapshot holds these arrays."""
    for group in task.of(OURS):
        run = group.runs[0]
        if run.snapshots and all(
            set(arrays) <= run.snapshot(step).keys() for step in run.snapshots
        ):
            return run
    return None
