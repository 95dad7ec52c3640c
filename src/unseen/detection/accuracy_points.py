"""Scores and accuracies of held-out source data under synthetic shifts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unseen.detection.correctness import SOURCE_SHARE, Correctness
from unseen.detection.one_pass import Moments, Observation, OnePass
from unseen.detection.synthetic_shifts import Shift, Shifts, shifts_for, with_blends
from unseen.errors import UnseenError
from unseen.functional.accuracy_curve import Floats
from unseen.nn.batch import Batch
from unseen.nn.inputs import inputs
from unseen.user_code import describe_error, describe_failure

BLENDS = 60  # of several kinds of shift
MIXTURES = (0.25, 0.5, 0.75)  # parts of a shift in mixtures with the source
CLEARLY = 0.005  # of the area under the ROC curve of errors, to use more than one input
ROWS = 1000  # of a point in the fit of the correctness, where maps have many


OnPoint = Callable[[int, int], None]


@dataclass
class Point:
    """Held-out source data under one shift, or a mixture of it with clean data."""

    kinds: tuple[str, ...]  # none, one, or those blended
    moments: dict[str, Moments]  # by signal
    accuracy: float
    inputs: Tensor  # of the correctness, (M, I)
    correct: Tensor  # (M,)
    share: float = 1.0  # of the shift; the rest is clean


def collect_points(
    one_pass: OnePass,
    batch: Batch,
    clean: Observation,
    shifts: Shifts | None,
    ignore: int,
    seed: int = 0,
    on_point: OnPoint = lambda done, total: None,
) -> list[Point]:
    """Observe the samples under every shift; the first point is the clean source.

    Args:
        on_point: called after each shift with the number done and the number of all.
    """
    kinds = shifts_for(batch.x, label_maps=batch.y.dim() > 1) if shifts is None else shifts
    _check_shifts(kinds)
    if len(kinds) < 3:
        raise UnseenError(
            f"an accuracy estimate needs at least 3 kinds of shifts, not {len(kinds)}"
        )
    points = [_point(one_pass, (), clean)]
    every = list(with_blends(kinds, BLENDS, seed))
    for number, (names, shift) in enumerate(every, start=1):
        x = _apply(shift, batch.x, names, seed)
        points.append(_point(one_pass, names, one_pass.observe(x, batch.y, ignore)))
        on_point(number, len(every))
    return points


def with_mixtures(points: list[Point]) -> list[Point]:
    """Return the points, and mixtures of each with the first, the source.

    Every signal is a function of mean features, so a mixture needs no pass.
    """
    source, result = points[0], list(points)
    for point in points[1:]:
        for share in MIXTURES:
            moments = {
                name: source.moments[name].blend(point.moments[name], share)
                for name in point.moments
            }
            accuracy = (1 - share) * source.accuracy + share * point.accuracy
            result.append(replace(point, moments=moments, accuracy=accuracy, share=share))
    return result


def fit_correctness(
    one_pass: OnePass, points: list[Point], source: Observation
) -> dict[str, Floats]:
    """Fit the correctness to the source and all points, and once without each kind of shift.

    It uses the number of inputs that ranks predictions under kinds left out best; more than one
    only if that is better by CLEARLY. Returns the scores of the points by the kind that was left
    out. The final fit stays in the detector, and its features are added to the points and to the
    observation of the source.
    """
    model = one_pass.correctness
    clean = _regression_rows(one_pass, source)
    tried = {n: area_without_kinds(model, points, clean, n) for n in model.input_counts}
    best = best_count({count: area for count, (area, _) in tried.items()})
    _fit_without("", model, points, clean, best)
    noise = one_pass.noise_scores(source.features)
    source.features[model.name] = model.from_rows(source.logits, noise)
    for point in points:
        point.moments[model.name] = Moments.of(1 - model.probability(point.inputs).unsqueeze(1))
    return tried[best][1]


def area_without_kinds(
    model: Correctness, points: list[Point], clean: tuple[Tensor, Tensor], count: int
) -> tuple[float, dict[str, Floats]]:
    """Fit the correctness without each kind of shift in turn, with that many inputs.

    Returns the mean area under the ROC curve of errors under the kinds left out, and the scores of
    all points by the kind that was left out.
    """
    areas, scores = list[float | None](), dict[str, Floats]()
    for kind in sorted({kind for p in points for kind in p.kinds}):
        _fit_without(kind, model, points, clean, count)
        scores[kind] = np.array([1 - float(model.probability(p.inputs).mean()) for p in points])
        areas += [_error_area(model, p) for p in points if p.kinds == (kind,)]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else 0.5, scores


def best_count(areas: Mapping[int, float]) -> int:
    """Return the number of inputs with the largest area; one input if others add little."""
    return max(areas, key=lambda count: areas[count] - (CLEARLY if count > 1 else 0))


def _fit_without(
    kind: str,
    model: Correctness,
    points: list[Point],
    clean: tuple[Tensor, Tensor],
    count: int,
) -> None:
    """Fit the correctness to the source and the points that do not contain a kind of shift."""
    used = [p for p in points[1:] if kind not in p.kinds]
    rows = torch.cat([clean[0], *(p.inputs for p in used)])
    correct = torch.cat([clean[1], *(p.correct for p in used)])
    weights = torch.ones(len(rows), dtype=torch.float64)
    n = len(clean[0])
    weights[:n] = SOURCE_SHARE / (1 - SOURCE_SHARE) * (len(rows) - n) / n
    model.fit_inputs(rows, correct, weights, count)


def _error_area(model: Correctness, point: Point) -> float | None:
    """Return the area under the ROC curve of errors; None if all predictions are right or wrong."""
    from sklearn.metrics import roc_auc_score  # slow to import

    if point.correct.all() or not point.correct.any():
        return None
    return float(roc_auc_score(point.correct.numpy(), model.probability(point.inputs).numpy()))


def _point(one_pass: OnePass, kinds: tuple[str, ...], seen: Observation) -> Point:
    moments = seen.moments
    if bad := [name for name, m in moments.items() if not m.mean.isfinite().all()]:
        raise UnseenError(
            f"{bad[0]} under {' + '.join(kinds) or 'no shift'} is not finite: look for NaN in the "
            "held-out data or the weights"
        )
    return Point(kinds, moments, seen.accuracy, *_regression_rows(one_pass, seen))


def _regression_rows(one_pass: OnePass, seen: Observation) -> tuple[Tensor, Tensor]:
    """Return the inputs of the correctness and whether predictions are right, at most ROWS."""
    assert seen.correct is not None and seen.counted is not None
    scores = one_pass.noise_scores(seen.features)
    rows = one_pass.correctness.rows_of(seen.logits, scores)
    counted = seen.counted.flatten()
    rows, correct = rows[counted], seen.correct.flatten()[counted]
    most = max(ROWS, seen.n)
    index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:most]
    return rows[index], correct[index]


def _check_shifts(shifts: Shifts) -> None:
    """Raise unless shifts are lists of functions by the kind of shift."""
    if not isinstance(shifts, Mapping) or not all(
        isinstance(functions, list | tuple) and functions and all(map(callable, functions))
        for functions in shifts.values()
    ):
        raise UnseenError(
            "shifts must be a dict of lists of functions, {kind: [function(x, generator), ...]}, "
            f"not {shifts!r:.200}"
        )


def _apply(
    shift: Shift, x: tuple[Tensor, ...], kinds: tuple[str, ...], seed: int
) -> tuple[Tensor, ...]:
    try:
        made = shift(x, torch.Generator().manual_seed(seed))
    except (UnseenError, KeyboardInterrupt):
        raise
    except Exception as error:
        problem = describe_failure(error) or describe_error(error)
        raise UnseenError(
            f"the shift {' + '.join(kinds)} fails, {problem}; it is given a tuple of inputs and "
            "returns one"
        ) from error
    shifted = inputs(made)
    if [t.shape for t in shifted] != [t.shape for t in x]:
        raise UnseenError(f"the shift {' + '.join(kinds)} must keep the shapes of its inputs")
    return shifted
