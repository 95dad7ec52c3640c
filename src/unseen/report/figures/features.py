"""t-SNE of clean and perturbed features, and the distribution of mixed labels."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from unseen.report.figures.images import spread_evenly
from unseen.report.figures.svg import SERIES, Figure, Plot, join_names, series_style
from unseen.report.groups import OURS, TaskRuns
from unseen.report.runs import FinishedRun

MAX_STEPS = 4
MISSING = (
    "openTSNE is not installed: the t-SNE of features is left out; pip install 'unseen[report]'"
)
Points = NDArray[np.floating]


def has_tsne() -> bool:
    try:
        import openTSNE  # noqa: F401
    except ImportError:
        return False
    return True


def tsne(features: Points, start: Points | None = None) -> Points:
    """Return two coordinates for each row, deterministically."""
    from openTSNE import TSNE, initialization

    # openTSNE warns about any initialization of the caller's.
    logging.getLogger("openTSNE").setLevel(logging.ERROR)
    if start is None:
        start = initialization.pca(features, random_state=0)
    else:  # as small as the default initialization, or t-SNE would keep the old layout
        start = start / np.std(start[:, 0]) * 1e-4
    embedding = TSNE(
        perplexity=min(30, (len(features) - 1) / 3), initialization=start, random_state=0,
        n_jobs=1, neighbors="exact", negative_gradient_method="bh",
    )  # fmt: skip
    return np.asarray(embedding.fit(features))


def tsne_figure(task: TaskRuns) -> Figure | None:
    """Draw t-SNE of clean and perturbed features at several training steps."""
    run = _find_run(task, "embedding_plus")
    if run is None or not has_tsne():
        return None
    panels, start, count = [], None, 0
    for step in spread_evenly(list(run.snapshots), MAX_STEPS):
        arrays = run.snapshot(step)
        clean, perturbed = arrays["embedding"], arrays["embedding_plus"]
        count = len(clean)
        both = np.concatenate([clean, perturbed]).astype(np.float64)
        if not np.isfinite(both).all() or np.ptp(both) == 0:
            continue
        start = tsne(both, start)
        plot = Plot(3.2)
        for i, part in enumerate((start[:count], start[count:])):
            style = series_style(i)
            plot.axes.scatter(part[:, 0], part[:, 1], s=9, linewidths=0, alpha=0.85, **style)
        plot.axes.set(xticks=[], yticks=[])
        plot.axes.grid(visible=False)
        plot.axes.spines[:].set_visible(True)
        alt = f"t-SNE of {count} source samples and their perturbed copies at step {step}"
        panels.append(plot.panel(alt, f"step {step}"))
    if not panels:
        return None
    caption = (
        f"t-SNE of the features of {count} source samples and of their perturbed copies. Axes and "
        "distances between clusters have no meaning. "
        f"Run: {run.config['method']}, seed {run.seed}."
    )
    legend = ["source", "perturbed"]
    return Figure("Clean and perturbed features (t-SNE)", caption, panels, legend=legend)


def mixed_label_figure(task: TaskRuns) -> Figure | None:
    """Draw the distribution of the true class's probability in mixed labels."""
    run = _find_run(task, "y_plus", "labels")
    if run is None:
        return None
    steps = spread_evenly(list(run.snapshots), 3)
    plot = Plot()
    probabilities = []
    for step in steps:
        arrays = run.snapshot(step)
        index = arrays["labels"][:, None]
        probabilities.append(np.take_along_axis(arrays["y_plus"], index, 1)[:, 0])
    low = min(0.98, float(np.min(probabilities)))
    edges = np.linspace(np.floor(20 * low) / 20, 1, 21)
    for i, values in enumerate(probabilities):
        density, _ = np.histogram(np.clip(values, edges[0], 1), edges, density=True)
        dashes = ("-", "--", ":")[i % 3]
        plot.axes.stairs(density, edges, color=SERIES[i], linewidth=1.7, linestyle=dashes)
    label = "probability of the true class in the mixed label y⁺"
    plot.axes.set(xlabel=label, ylabel="density", ylim=(0, None))
    rho = run.config["settings"].get("mixup.rho", 0.9)
    caption = (
        "The mixed label y⁺ of a perturbed sample interpolates between the one-hot label and a "
        f"smoothed one, which gives the true class the probability ρ = {rho}. Density of the true "
        "class's probability at several training steps: 1 is the one-hot label."
    )
    moments = join_names([str(step) for step in steps])
    alt = f"density of the true class's probability in mixed labels at steps {moments}"
    legend = [f"step {step}" for step in steps]
    return Figure("Mixed labels", caption, [plot.panel(alt)], legend=legend)


def _find_run(task: TaskRuns, *arrays: str) -> FinishedRun | None:
    """Return the first run of our method whose every snapshot has these arrays."""
    for group in task.of(OURS):
        run = group.runs[0]
        snapshots = map(run.snapshot, run.snapshots)
        if run.snapshots and all(set(arrays) <= snapshot.keys() for snapshot in snapshots):
            return run
    return None
