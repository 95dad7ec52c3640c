"""Confidence by optimal transport, in numpy: the signals COT and COTT of exported models."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unseen.deploy.reductions import Array
from unseen.deploy.thresholds import Integers, TorchRandom

CHUNK = 64  # as unseen.detection.confidence_transport


@dataclass(frozen=True)
class Transport:
    """Features of COT, or of COTT if there is a threshold."""

    temperature: float
    marginal: Array  # (C,) of the source's labels
    threshold: float | None = None

    def features(self, rows: Array) -> Array:
        """Return the features of samples from rows of their logits, (N, P, C) -> (N, 1).

        Samples are matched in groups, in a random order that is always the same.
        """
        order = TorchRandom().permutation(len(rows))
        flat = rows[order].reshape(-1, rows.shape[2])
        probabilities = softmax(flat / rows.dtype.type(self.temperature))
        chunks = np.array_split(probabilities, max(1, math.ceil(len(flat) / CHUNK)))
        matched = np.concatenate([transported_confidence(c, self.marginal) for c in chunks])
        features = 1 - matched
        if self.threshold is not None:
            features = (1 - features < self.threshold).astype(rows.dtype)
        result = np.empty((len(rows), 1), rows.dtype)
        result[order, 0] = features.reshape(rows.shape[:2]).mean(1)
        return result


def softmax(logits: Array) -> Array:
    """Return class probabilities, (M, C) -> (M, C)."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def transported_confidence(probabilities: Array, marginal: Array) -> Array:
    """Return the probability of the label that optimal transport assigns to each sample, (N,)."""
    n = len(probabilities)
    places = (np.arange(n) + 0.5) / n
    ends = np.cumsum(marginal.astype(np.float64)) / marginal.sum()
    labels = np.minimum(np.searchsorted(ends, places), len(marginal) - 1)
    matched = probabilities[:, labels]
    return np.asarray(matched[np.arange(n), assign(-matched.astype(np.float64))])


def assign(cost: Array) -> Integers:
    """Return the column of each row of the cheapest assignment of a square matrix.

    scipy is faster and used where it is installed.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        return shortest_paths(cost)
    return np.asarray(linear_sum_assignment(cost)[1])


def shortest_paths(cost: Array) -> Integers:
    """Assign by successive shortest augmenting paths: Jonker and Volgenant, 1987."""
    n = len(cost)
    row_price, column_price = np.zeros(n), np.zeros(n)
    row_of = np.full(n, -1)  # by column
    for start in range(n):
        distance, previous = np.full(n, np.inf), np.full(n, -1)
        done = np.zeros(n, dtype=bool)
        row, reached, column = start, 0.0, -1
        while True:
            through = reached + cost[row] - row_price[row] - column_price
            closer = ~done & (through < distance)
            distance[closer], previous[closer] = through[closer], row
            column = int(np.argmin(np.where(done, np.inf, distance)))
            reached = float(distance[column])
            if row_of[column] < 0:
                break
            done[column] = True
            row = int(row_of[column])
        gained = reached - distance[done]
        row_price[row_of[done]] += gained
        row_price[start] += reached
        column_price[done] -= gained
        while True:  # turn the path around
            row = int(previous[column])
            other = np.flatnonzero(row_of == row)
            row_of[column] = row
            if row == start:
                break
            column = int(other[other != column][0])
    result = np.empty(n, dtype=np.int64)
    result[row_of] = np.arange(n)
    return result
