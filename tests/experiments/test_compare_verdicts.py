"""The measurement of verdicts, and its statistics against slow code."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from toy_domains import make

from unseen.experiments import compare_verdicts as module
from unseen.experiments.compare_verdicts import (
    KolmogorovSmirnov,
    area_under_risk_coverage,
    expected_calibration_error,
    judge_run,
)
from unseen.report.tables.verdicts import write_verdicts
from unseen.training.train import train


def test_distances_are_those_of_the_kolmogorov_smirnov_test():
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(80, 3, generator=g), 0.3 + torch.randn(50, 3, generator=g)
    found = module._distances(a.sort(0).values, b.sort(0).values)
    slow = [ks_2samp(a[:, i].numpy(), b[:, i].numpy()).statistic for i in range(3)]
    assert found.tolist() == pytest.approx(slow)


def test_kolmogorov_smirnov_keeps_its_rate_and_sees_a_shift():
    g = torch.Generator().manual_seed(0)
    test = KolmogorovSmirnov.fit(torch.randn(2000, 8, generator=g))
    alarms = [test.alarm(torch.randn(64, 8, generator=g), 0.05) for _ in range(200)]
    assert np.mean(alarms) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert test.alarm(1 + torch.randn(64, 8, generator=g), 0.05)


def test_risk_coverage_and_calibration_by_hand():
    confidence, correct = np.array([0.9, 0.8, 0.3]), np.array([1.0, 0.0, 1.0])
    assert area_under_risk_coverage(confidence, correct) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)
    assert expected_calibration_error(confidence, correct) == pytest.approx((0.1 + 0.8 + 0.7) / 3)


def test_run_is_judged_and_tabulated(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCHES", 4)
    monkeypatch.setattr(module, "SOURCE_BATCHES", 20)
    run = train(make(), "uncertainty_guided", tmp_path / "run", progress=False)
    result = judge_run(run, make())
    groups = result["groups"]
    assert groups["source"]["rates"]["64"]["failing"] <= 0.2
    assert groups["costly"]["rates"]["256"]["failing"] >= 0.5
    rows = write_verdicts(tmp_path / "out", [result], "a command")
    assert {"failing", "alarm", "max_softmax", "ks_embedding"} == {r["method"] for r in rows}
    assert "AUROC of errors" in (tmp_path / "out" / "table.md").read_text()
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == rows
