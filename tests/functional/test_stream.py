"""Evidence of a stream: e-values, and the false alarms of a detector that looks at every batch."""

from __future__ import annotations

import numpy as np
import pytest

from unseen.functional.stream import Evidence, ForgettingMean, e_value, tabulated_size


def test_e_values_have_mean_one_on_uniform_p_values():
    grid = np.concatenate([np.geomspace(1e-12, 1e-3, 200_000), np.linspace(1e-3, 1, 200_000)])
    values = np.array([e_value(p) for p in grid])
    assert 0.9 < np.trapezoid(values, grid) <= 1.0  # below 1e-12 lies the rest: 1 / log(1e12)
    assert (np.diff(values) <= 1e-9).all() and e_value(0.0) > 1e290 and e_value(1.0) == 0.5


@pytest.mark.parametrize("limit", [20.0, 200.0])
def test_streams_without_a_shift_alarm_less_often_than_stated(limit):
    rng, alarms, batches = np.random.default_rng(0), 0, 20_000
    evidence = Evidence()
    for p in rng.random(batches):
        evidence = evidence.add(e_value(p), limit)
        alarms += evidence.value >= limit
    assert 0 < alarms <= batches / limit


def test_a_shift_is_noticed_within_a_few_batches():
    evidence, count = Evidence(), 0
    while evidence.value < 1000:
        evidence, count = evidence.add(e_value(0.001), 1000), count + 1
    assert count <= 3


def test_evidence_of_streams_in_a_row_is_that_of_one_stream():
    e = np.random.default_rng(0).random(9) * 1.5
    whole, first, second = Evidence(), Evidence(), Evidence()
    for i, value in enumerate(e):
        whole = whole.add(value, 1e9)
        first, second = (
            (first.add(value, 1e9), second) if i < 4 else (first, second.add(value, 1e9))
        )
    assert first.then(second).value == pytest.approx(whole.value, rel=1e-12)
    assert Evidence(5.0).add(0.5, 4.0).value == 0.5  # starts again after an alarm


def test_forgetting_mean_is_the_weighted_mean_of_all_samples():
    rng, decay = np.random.default_rng(0), 0.75
    batches = [rng.random((n, 2)) for n in (8, 3, 5)]
    made = ForgettingMean(np.zeros(2))
    for batch in batches:
        made = made.add(batch.sum(0), len(batch), decay)
    weights = np.concatenate([np.full(len(b), decay ** (2 - i)) for i, b in enumerate(batches)])
    np.testing.assert_allclose(made.mean, np.average(np.concatenate(batches), 0, weights))
    assert made.effective_size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert [tabulated_size([1, 4, 9], n) for n in (0.5, 3.9, 4, 100)] == [1, 1, 4, 9]
